"""Drawing by shared numbers against its definition, byte for byte: one hop; who shares. Whole samples are in `test_ways.py`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import rng as penstock_rng
from penstock.errors import NotSupportedError, UsageError
from penstock.kernels.sample_shared import cpu, reference
from penstock.records import EDGE, NODE
from penstock.sample import NeighborSampler
from penstock.sample.times import Timestamps, with_times
from penstock.sample.weights import Weights, with_weights
from tests.graphs import assert_same_bytes, homogeneous_graph, poisoned, random_csc

SEEDS = st.integers(0, 2**32 - 1)


def scratch(num_dst, longest, last_stamp=0):
    """For lists of up to so many neighbours; a table that has been used so much."""
    table = np.zeros(cpu.table_size(longest), np.int32)
    table[-1] = last_stamp
    ids, repeats, numbers = (poisoned(longest + cpu.VECTOR, dtype) for dtype in (np.uint64, np.uint32, np.uint64))
    return np.zeros((num_dst + 63) // 64, np.uint64), ids, repeats, table, numbers


@given(SEEDS, st.sampled_from([1, 2, 3, 5, 15, 64, 200]), st.booleans(), st.sampled_from([np.int32, np.int64]))
@settings(deadline=None, max_examples=60)
def test_one_hop(seed, fanout, is_apart, dtype):
    random = np.random.default_rng(seed)
    num_src = int(random.choice([4, 300]))  # few: the same neighbours again and again
    csc = random_csc(random, num_src, 100, int(random.integers(0, 2000)), hub_degree=int(random.choice([0, 100, 500])), dtype=dtype)
    nodes = random.integers(0, 100, int(random.integers(0, 80)))
    key, batch = penstock_rng.derive_key(seed, 3, penstock_rng.SHARED), int(random.integers(0, 1 << 32))
    row_ptr, positions, neighbors = reference.sample_neighbors(
        csc.indptr, csc.indices, nodes, fanout=fanout, key=key, batch=batch, hop=2, source=7
    )
    lists, begins, longest = csc.indices, None, int(np.diff(csc.indptr).max())
    if is_apart:
        begins = 5 + np.concatenate([[0], np.cumsum(csc.degrees(nodes))])
        lists = np.concatenate([np.empty(0, dtype), *(csc.indices[csc.indptr[node] : csc.indptr[node + 1]] for node in nodes)])
    out = poisoned(nodes.size + 1), poisoned(positions.size), poisoned(positions.size, dtype)
    out[0][0] = 11
    stamp = int(random.choice([0, 1, (1 << 31) - 1 - int(random.integers(0, 1000))]))
    place = key, batch, 2, 7
    memory = scratch(100, longest, stamp)
    for _ in range(2):  # the second time it is known in whose lists none comes twice
        bad = cpu.sample_neighbors(csc.indptr, lists, begins, num_src, nodes, fanout, *place, *memory, *out)
        assert bad == -1
        assert_same_bytes(out[0] - 11, row_ptr)
        assert_same_bytes(out[1], positions)
        assert_same_bytes(out[2].astype(np.int64), neighbors)


@given(SEEDS, st.integers(1, 200))
@settings(deadline=None)
def test_the_bound(seed, count):
    """The largest of the smallest, whatever the numbers are: even, all near each other, equal, at the ends."""
    random = np.random.default_rng(seed)
    ends = np.array([0, 1, (1 << 64) - 1, (1 << 64) - 2], np.uint64)
    kinds = [
        lambda: random.integers(0, 1 << 64, count, np.uint64),
        lambda: random.integers(0, 3, count, np.uint64) + random.choice(ends[:2]),
        lambda: random.choice(ends, count),
        lambda: np.uint64(1) << random.integers(0, 64, count, np.uint64),
        lambda: np.full(count, random.choice(ends)),
    ]
    numbers, fanout = kinds[random.integers(0, 5)](), int(random.integers(1, count + 1))
    bound = cpu.find_bound(numbers, count, fanout)
    assert_same_bytes(np.flatnonzero(numbers <= bound)[:fanout], reference.choose(numbers, fanout))


def test_batches_of_a_group_have_the_same_numbers():
    """With all nodes as seeds, a batch is the same again while its group lasts."""
    graph = homogeneous_graph(np.random.default_rng(0))
    sampler = NeighborSampler(graph, [3, 2], shared_draws=4, seed=1)
    workspace = sampler.workspace()
    taken = [
        sampler.sample({NODE: np.arange(500)}, epoch=0, batch=batch, workspace=workspace).edges[EDGE].positions.tobytes()
        for batch in range(10)
    ]
    assert [taken.index(each) for each in taken] == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]


def test_what_is_refused():
    random = np.random.default_rng(0)
    graph = homogeneous_graph(random)
    for options in ({"replace": True}, {"disjoint": True}):
        with pytest.raises(UsageError, match=r"^shared_draws "):
            NeighborSampler(graph, [3], shared_draws=1, **options)
    with pytest.raises(UsageError, match=r"disjoint trees \(also those of sampling by time\) have none"):
        NeighborSampler(with_times(graph, Timestamps({}, {EDGE: random.integers(0, 9, 4000)})), [3], shared_draws=1)
    with pytest.raises(NotSupportedError, match="shared_draws draws uniformly, not by weight"):
        NeighborSampler(with_weights(graph, {EDGE: Weights(np.ones(4000))}), [3], shared_draws=1)
