"""Drawing by weight against its definition, byte for byte: running sums, one hop, whole samples; any piece, thread, tier."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import rng as penstock_rng
from penstock.errors import BudgetError, CorruptStoreError, InputError, UsageError
from penstock.kernels.running_sums import cpu as sums_cpu
from penstock.kernels.running_sums import reference as sums_reference
from penstock.kernels.sample_weighted import cpu, reference
from penstock.records import EDGE, NODE, Graph
from penstock.sample import NeighborSampler, weights
from penstock.sample.lists import TierLists, with_lists
from penstock.sample.weights import Weights, with_weights
from penstock.store.tiers import HostTier
from tests.differential.test_kernels import poisoned
from tests.differential.test_sampler import both
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph, random_csc, typed_graph

SEEDS = st.integers(0, 2**32 - 1)


def random_weights(random, num_edges):
    """Numbers of any size, equal ones, and zeros; sometimes nothing but zeros."""
    kind = random.integers(0, 5)
    values = [
        lambda: random.random(num_edges),
        lambda: 10.0 ** random.uniform(-300, 300, num_edges),
        lambda: random.integers(0, 3, num_edges).astype(np.float64),
        lambda: random.pareto(0.5, num_edges),
        lambda: np.zeros(num_edges),
    ][kind]()
    return np.where(random.random(num_edges) < random.choice([0, 0.3, 0.95]), 0.0, values)


def weighted_graph(random, graph):
    """The graph with weights for all edge types but one of several."""
    chosen = list(graph.adjacency)[: max(1, len(graph.adjacency) - 1)]
    return with_weights(graph, {e: Weights(random_weights(random, graph.adjacency[e].num_edges)) for e in chosen})


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
    most, bad = cpu.bound_neighbors(csc.indptr, csc.num_edges, nodes, fanout, replace)
    assert bad == -1
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


@given(SEEDS, st.sampled_from(["author", "paper", "venue"]), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=20)
def test_whole_samples(seed, seed_type, replace, disjoint):
    random = np.random.default_rng(seed)
    graph = weighted_graph(random, typed_graph(random, hub_degree=int(random.choice([0, 400]))))
    fanouts = {edge_type: random.choice([-1, 0, 1, 4, 70], 2).tolist() for edge_type in graph.adjacency}
    fanouts[("paper", "cites", "paper")] = [2, 3]
    seeds = random.integers(0, graph.num_nodes[seed_type], 15)
    assert_same_sample(*both(graph, fanouts, seed_type, seeds, seed=seed, epoch=1, batch=3, replace=replace, disjoint=disjoint))


def test_threads_workspaces_and_lists_read_elsewhere_do_not_matter():
    random = np.random.default_rng(0)
    graph = weighted_graph(random, homogeneous_graph(random, 500, 8000, hub_degree=4500))
    csc = graph.adjacency[EDGE]
    elsewhere = with_lists(graph, {EDGE: TierLists(HostTier([csc.indices]))})
    assert elsewhere.adjacency[EDGE].sums is csc.sums
    seeds = [random.integers(0, 500, 64) for _ in range(20)]

    def run(graph, num_threads):
        sampler = NeighborSampler(graph, [5, 70, 3], seed=9)
        workspaces = [sampler.workspace() for _ in range(num_threads)]

        def one(i):
            workspace = workspaces.pop()
            try:
                return sampler.sample({NODE: seeds[i]}, epoch=2, batch=i, workspace=workspace)
            finally:
                workspaces.append(workspace)

        with ThreadPoolExecutor(num_threads) as pool:
            return list(pool.map(one, range(20)))

    alone = run(graph, 1)
    for others in (run(graph, 3), run(elsewhere, 2)):
        for left, right in zip(alone, others, strict=True):
            assert_same_sample(left, right)


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
        sampler = NeighborSampler(damaged, [3])
        with pytest.raises(CorruptStoreError, match="lies outside its 300 edges"):
            sampler.sample({NODE: np.arange(40)}, epoch=0, batch=0, workspace=sampler.workspace())
    damaged = Graph({NODE: 50}, {EDGE: replace(weighty.adjacency[EDGE], indices=np.full_like(csc.indices, 50))}, True)
    sampler = NeighborSampler(damaged, [3])
    with pytest.raises(CorruptStoreError, match="comes from node 50, but 'node' has 50 nodes"):
        sampler.sample({NODE: np.arange(40)}, epoch=0, batch=0, workspace=sampler.workspace())


def test_sums_that_do_not_fit_the_container_are_refused(monkeypatch):
    graph = homogeneous_graph(np.random.default_rng(0))
    monkeypatch.setattr("penstock.store.budget.free_in_container", lambda: 1 << 20)
    weights = np.lib.stride_tricks.as_strided(np.ones(1), (4 << 32,), (0,))
    with pytest.raises(BudgetError, match=r"drawing by w takes 136\.\d GiB, and the container .* has 1\.0 MiB left: draw uniformly"):
        with_weights(graph, {EDGE: Weights(weights, "w")})
