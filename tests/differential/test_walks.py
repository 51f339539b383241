"""Random walks against their definition, byte for byte: steps, counts. Whole samples are in `test_ways.py`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Walks
from penstock import rng as penstock_rng
from penstock.errors import NotSupportedError
from penstock.kernels.random_walks import cpu, reference
from penstock.records import EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from tests.graphs import assert_same_bytes, poisoned, random_csc

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.sampled_from([0, 1 << 31, (1 << 32) - 1]), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=60)
def test_one_step(seed, end, has_copies, is_apart):
    random = np.random.default_rng(seed)
    csc = random_csc(random, 100, 100, int(random.integers(0, 400)), hub_degree=int(random.choice([0, 5000])))
    num, starts = int(random.integers(1, 5)), random.integers(0, 100, int(random.integers(0, 40)))
    copies = random.integers(0, 1 << 20, starts.size) if has_copies else None
    walkers = np.flatnonzero(random.random(starts.size * num) < 0.7)
    nodes = random.choice([0, *range(100)], walkers.size)  # the hub among them
    place = int(random.integers(0, 50)), end, penstock_rng.derive_key(seed, 3, penstock_rng.WALK), int(random.integers(0, 1 << 32)), 2
    going, positions = reference.take_step(csc.indptr, starts, copies, num, *place, nodes, walkers)
    out = nodes.copy(), walkers.copy(), poisoned(walkers.size)
    indices = None if is_apart else csc.indices
    count, bad = cpu.take_step(csc.indptr, indices, csc.num_edges, starts, copies, num, *place, *out[:2], walkers.size, out[2])
    assert (count, bad) == (going.size, -1)
    assert_same_bytes(out[1][:count], going)
    assert_same_bytes(out[2][:count], positions)
    assert_same_bytes(out[0][:count], nodes[np.isin(walkers, going)])
    visits = np.full(starts.size * num * 3, -1)
    found, at = (csc.indices[positions], None) if is_apart else (csc.indices, positions)
    assert cpu.arrive(found, at, 100, 3, 1, out[0], going, count, visits)
    assert_same_bytes(out[0][:count], csc.indices[positions].astype(np.int64))
    assert_same_bytes(visits.reshape(-1, 3)[going, 1], out[0][:count])
    assert (np.delete(visits, going * 3 + 1) == -1).all()


@given(SEEDS, st.sampled_from([-1, 0, 1, 3, 1000]), st.sampled_from([2, 10, 1 << 40]))
@settings(deadline=None, max_examples=60)
def test_counting(seed, fanout, num_nodes):
    random = np.random.default_rng(seed)
    shape = int(random.integers(0, 20)), int(random.integers(1, 9)), int(random.integers(1, 6))
    visits = np.where(random.random(shape) < 0.3, -1, random.integers(0, num_nodes, shape))
    row_ptr, counts, neighbors = reference.count_visits(visits, fanout)
    most = shape[1] * shape[2]
    scratch = poisoned(cpu.table_size(most), np.int32), poisoned(most), poisoned(most), np.zeros(most + 1, np.int64)
    out = poisoned(shape[0] + 1), poisoned(counts.size), poisoned(counts.size)
    out[0][0] = 11
    assert cpu.count_visits(np.ascontiguousarray(visits.reshape(-1)), *shape, fanout, *scratch, *out) == counts.size
    for ours, theirs in zip((out[0] - 11, *out[1:]), (row_ptr, counts, neighbors), strict=True):
        assert_same_bytes(ours, theirs)
    assert not scratch[-1].any()


def test_lists_that_are_too_long_are_refused(monkeypatch):
    monkeypatch.setattr(cpu, "take_step", lambda *_: (-1, 0))  # as of a list of more than 2**32 neighbours
    csc = random_csc(np.random.default_rng(0), 40, 40, 300)
    sampler = NeighborSampler(Graph({NODE: 40}, {EDGE: csc}, True), [5], walks=Walks(num=50, length=2, end=0))
    with pytest.raises(
        NotSupportedError, match=f"a node has {csc.degrees(np.zeros(1, int))[0]} neighbours, and walks reach at most 4,294,967,296"
    ):
        sampler.sample({NODE: np.arange(40)}, epoch=0, batch=0, workspace=sampler.workspace())
