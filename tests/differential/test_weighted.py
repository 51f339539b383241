"""Drawing by weight against its definition, byte for byte: running sums, one hop. Whole samples are in `test_ways.py`."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import rng as penstock_rng
from penstock.errors import BudgetError, CorruptStoreError, InputError, UsageError
from penstock.kernels.running_sums import cpu as sums_cpu
from penstock.kernels.running_sums import reference as sums_reference
from penstock.kernels.sample_neighbors.cpu import count_neighbors
from penstock.kernels.sample_weighted import cpu, reference
from penstock.records import EDGE, NODE, Graph
from penstock.sample import NeighborSampler, weights
from penstock.sample.weights import Weights, with_weights
from tests.differential.test_kernels import poisoned
from tests.differential.ways import random_weights
from tests.graphs import assert_same_bytes, homogeneous_graph, random_csc

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
def test_running_sums(seed):
    random = np.random.default_rng(seed)
    csc = random_csc(random, 50, 40, int(random.integers(0, 500)), hub_degree=int(random.choice([0, 300])))
    values = random_weights(random, csc.num_edges)
    expected = sums_reference.running_sums(csc.indptr, values)
    out, at = poisoned(csc.num_edges), int(random.integers(0, 41))
    for first, last in ((0, at), (at, 40)):
        start, end = csc.indptr[first], csc.indptr[last]
        assert sums_cpu.running_sums(csc.indptr, first, last, start, values[start:end], out[start:end]) == (-1, -1)
    assert_same_bytes(out, expected)
    guide = np.zeros((csc.num_edges >> 3) + 1, np.uint32)
    sums_cpu.guide(csc.indptr, out, guide)
    assert_same_bytes(guide, sums_reference.guide(csc.indptr, out))
    drawable = poisoned(40, np.int32)
    sums_cpu.count_drawable(csc.indptr, out, drawable)
    assert drawable.tolist() == sums_reference.count_drawable(csc.indptr, out).tolist()
    for start, end in zip(csc.indptr[:-1], csc.indptr[1:], strict=True):
        steps = np.diff(out[start:end], prepend=0)
        assert ((steps > 0) == (values[start:end] > 0)).all()
        assert start == end or out[end - 1] <= 1 << 62
    if csc.num_edges:
        where = int(random.integers(0, csc.num_edges))
        values[where] = random.choice([-1.0, -1e-300, np.nan, np.inf])
        assert sums_reference.running_sums(csc.indptr, values) == where
        assert sums_cpu.running_sums(csc.indptr, 0, 40, 0, values, out) == (where, -1)


@given(
    SEEDS,
    st.sampled_from([-1, 0, 1, 2, 3, 5, 15, 63, 64, 65, 200]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([np.int32, np.int64]),
)
@settings(deadline=None, max_examples=60)
def test_one_hop(seed, fanout, replace, with_copies, dtype):
    random = np.random.default_rng(seed)
    hub = int(random.choice([0, 100, 500]))
    csc = random_csc(random, 300, 100, int(random.integers(0, 2000)), hub_degree=hub, dtype=dtype)
    sums = sums_reference.running_sums(csc.indptr, random_weights(random, csc.num_edges))
    nodes = random.integers(0, 100, int(random.integers(0, 80)))
    copies = random.integers(0, 1 << 20, nodes.size) if with_copies else None
    key = penstock_rng.derive_key(seed, 3, penstock_rng.SAMPLE)
    place = dict(batch=int(random.integers(0, 1 << 32)), hop=2, edge_type=7)
    row_ptr, positions, neighbors = reference.sample_neighbors(
        csc.indptr, csc.indices, sums, nodes, fanout=fanout, replace=replace, key=key, copies=copies, **place
    )
    most, _ = count_neighbors(csc.indptr, csc.num_edges, nodes, fanout, replace)
    assert most >= positions.size
    sizes = cpu.scratch_sizes(fanout)
    out = poisoned(nodes.size + 1), poisoned(most), poisoned(most, dtype)
    out[0][0] = 11
    taken = cpu.sample_neighbors(
        csc.indptr, csc.indices, sums, sums_reference.guide(csc.indptr, sums), 300, nodes, fanout, replace, key, place["batch"], 2, 7,
        copies,
        poisoned(sizes[0]), poisoned(sizes[1], np.uint32), *out,
    )  # fmt: skip
    assert taken == positions.size
    assert_same_bytes(out[0] - 11, row_ptr)
    assert_same_bytes(out[1][:taken], positions)
    assert_same_bytes(out[2][:taken].astype(np.int64), neighbors)


def test_pieces_and_numbers_of_edges_do_not_matter(monkeypatch):
    random = np.random.default_rng(1)
    csc = random_csc(random, 50, 90, 3000, hub_degree=400, edge_ids=True)
    values = random.random(3400).astype(np.float32)
    whole = weights.sum_up(EDGE, csc, Weights(values))
    monkeypatch.setattr(weights, "PIECE", 100)
    assert_same_bytes(weights.sum_up(EDGE, csc, Weights(values)), whole)
    assert_same_bytes(weights.sum_up(EDGE, csc, Weights(values[csc.edge_ids], by_position=True)), whole)
    assert_same_bytes(weights.sum_up(EDGE, csc, Weights(values * np.float32(2.0**90))), whole)  # only quotients count


def test_induced_keeps_edges_of_weight_zero():
    graph = with_weights(homogeneous_graph(np.random.default_rng(0)), {EDGE: Weights(np.zeros(4000))})
    sampler = NeighborSampler(graph, [3], induced=True)
    sample = sampler.sample({NODE: np.arange(500)}, epoch=0, batch=0, workspace=sampler.workspace())
    assert sample.nodes[NODE].size == 500
    assert sample.edges[EDGE].positions.size == 4000


def test_what_is_refused():
    random = np.random.default_rng(0)
    csc = random_csc(random, 50, 40, 300, edge_ids=True)
    graph = Graph({NODE: 50}, {EDGE: csc}, True)
    for value in (-1.0, np.nan, np.inf):
        values = np.ones(300)
        values[17] = value
        with pytest.raises(InputError, match=rf"w is {value:g} at edge 17 \(from \d+ to \d+\): weights are finite, and 0"):
            with_weights(graph, {EDGE: Weights(values, "w")})
    for values in (np.ones(299), np.ones((300, 1)), np.ones(300, complex)):
        with pytest.raises(InputError, match=r"w must be one number per edge, \[300\]; got"):
            with_weights(graph, {EDGE: Weights(values, "w")})
    weighty = with_weights(graph, {EDGE: Weights(np.ones(300))})
    with pytest.raises(UsageError, match="at hop 0 must be at most 1048576 by weight, or -1 = all; got"):
        NeighborSampler(weighty, [1 << 21])
    for value in (-5, 1 << 40):
        indptr = csc.indptr.copy()
        indptr[7] = value
        damaged = Graph({NODE: 50}, {EDGE: replace(weighty.adjacency[EDGE], indptr=indptr)}, True)
        with pytest.raises(CorruptStoreError, match="lies outside its 300 edges"):
            with_weights(damaged, {EDGE: Weights(np.ones(300))})


def test_sums_that_do_not_fit_the_container_are_refused(monkeypatch):
    graph = homogeneous_graph(np.random.default_rng(0))
    monkeypatch.setattr("penstock.store.budget.free_in_container", lambda: 1 << 20)
    weights = np.lib.stride_tricks.as_strided(np.ones(1), (4 << 32,), (0,))
    with pytest.raises(BudgetError, match=r"drawing by w takes 136\.\d GiB, and the container .* has 1\.0 MiB left: draw uniformly"):
        with_weights(graph, {EDGE: Weights(weights, "w")})
