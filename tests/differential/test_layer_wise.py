"""Layer-wise sampling against its definition, byte for byte; any thread, workspace, table, tier, piece; what follows from the rule."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptStoreError, NotSupportedError, UsageError
from penstock.kernels.sample_layer import cpu
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.lists import DirectLists, PrefixLists, TierLists, with_lists
from penstock.sample.reference import sample_hops
from penstock.sample.times import Timestamps, with_times
from penstock.sample.weights import Weights, with_weights
from penstock.store.tiers import HostTier
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph, random_csc, typed_graph

SEEDS = st.integers(0, 2**32 - 1)


def both(graph, num_neighbors, seed_type, seeds, *, seed, epoch=0, batch=0):
    sampler = NeighborSampler(graph, num_neighbors, layer_wise=True, seed=seed)
    ours = sampler.sample({seed_type: seeds}, epoch=epoch, batch=batch, workspace=sampler.workspace())
    how = {"replace": False, "disjoint": False, "layer_wise": True, "seed": seed, "epoch": epoch, "batch": batch}
    return ours, sample_hops(graph, sampler.fanouts, {seed_type: seeds}, **how)


@given(SEEDS, st.lists(st.sampled_from([-1, 1, 2, 7, 30, 200]), min_size=1, max_size=3), st.sampled_from([np.int32, np.int64]))
@settings(deadline=None, max_examples=60)
def test_homogeneous(seed, fanouts, dtype):
    random = np.random.default_rng(seed)
    num_nodes = int(random.choice([4, 200]))  # few: the same neighbours again and again
    csc = random_csc(random, num_nodes, num_nodes, int(random.integers(0, 900)), hub_degree=int(random.choice([0, 1, 2000])), dtype=dtype)
    seeds = random.integers(0, num_nodes, int(random.integers(0, 30)))
    ours, reference = both(Graph({NODE: num_nodes}, {EDGE: csc}, True), fanouts, NODE, seeds, seed=seed, epoch=seed % 5, batch=seed % 7)
    assert_same_sample(ours, reference)
    for fanout, count in zip(fanouts, ours.num_nodes_per_hop[NODE][1:], strict=True):
        assert fanout < 0 or count <= fanout


@given(SEEDS, st.sampled_from(["author", "paper", "venue"]))
@settings(deadline=None, max_examples=20)
def test_typed(seed, seed_type):
    random = np.random.default_rng(seed)
    graph = typed_graph(random, hub_degree=int(random.choice([0, 400])))
    fanouts = {edge_type: random.choice([-1, 0, 1, 4, 70], 2).tolist() for edge_type in graph.adjacency}
    fanouts[("paper", "cites", "paper")] = [2, 3]
    seeds = random.integers(0, graph.num_nodes[seed_type], 15)
    assert_same_sample(*both(graph, fanouts, seed_type, seeds, seed=seed, epoch=1, batch=3))


def sample(graph, fanouts, seeds, **options):
    sampler = NeighborSampler(graph, fanouts, seed=3, **options)
    return sampler.sample({NODE: seeds}, epoch=0, batch=0, workspace=sampler.workspace())


def test_with_room_for_all_it_is_all_neighbours():
    graph = homogeneous_graph(np.random.default_rng(0), hub_degree=400)
    for seeds in (np.arange(40), np.array([7, 7, 3])):
        whole = sample(graph, [-1, -1], seeds)
        assert_same_sample(sample(graph, [500, 500], seeds, layer_wise=True), whole)
        assert_same_sample(sample(graph, [-1, -1], seeds, layer_wise=True), whole)


def test_every_edge_from_a_node_of_the_batch_is_there():
    """Of each hop: from nodes that were chosen, from seeds, from hops before and from the hop itself."""
    graph = homogeneous_graph(np.random.default_rng(0), hub_degree=400)
    taken, csc = sample(graph, [30, 20, 10], np.arange(40), layer_wise=True), graph.adjacency[EDGE]
    edges, per_hop = taken.edges[EDGE], np.cumsum(taken.num_nodes_per_hop[NODE])
    assert per_hop.tolist() == [40, 70, 90, 100]
    for hop in range(3):
        known, expanded = taken.nodes[NODE][: per_hop[hop + 1]], range(0 if hop == 0 else per_hop[hop - 1], per_hop[hop])
        for row in expanded:
            start, end = csc.indptr[taken.nodes[NODE][row] :][:2]
            inside = start + np.flatnonzero(np.isin(csc.indices[start:end], known))
            assert_same_bytes(edges.positions[edges.row_ptr[row] : edges.row_ptr[row + 1]], inside)


def test_equal_numbers():
    """Which 64 bits never show: the first candidates that were seen are taken."""
    first, ids, places = np.array([5, 2, 5, 5, 9, 1], np.uint64), np.array([70, 10, 11, 12, 13, 14, 15]), np.empty(6, np.int64)
    cpu.choose(first, np.uint64(5), 4, 1, ids, places)
    assert places.tolist() == [1, 2, 3, -1, -1, 4]
    assert ids[:5].tolist() == [70, 10, 11, 12, 15]


def test_threads_workspaces_tables_and_lists_read_elsewhere_do_not_matter(monkeypatch):
    random = np.random.default_rng(0)
    graph = homogeneous_graph(random, 500, 8000, hub_degree=4500)
    csc = graph.adjacency[EDGE]
    tier, chosen = HostTier([csc.indices]), random.permutation(500)[:100]
    places = [TierLists(tier), DirectLists(csc, chosen, tier), PrefixLists(csc, chosen, tier)]
    seeds = [random.integers(0, 500, 64) for _ in range(20)]

    def run(graph, num_threads):
        sampler = NeighborSampler(graph, [90, 70, 3], layer_wise=True, seed=9)
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
    others = [run(graph, 3)]
    for lists in (None, *places):
        others.append(run(with_lists(graph, {EDGE: lists}), 2))
        with monkeypatch.context() as context:
            context.setattr("penstock.sample.neighbor.PIECE", 100)
            others.append(run(with_lists(graph, {EDGE: lists}), 2))
    monkeypatch.setattr("penstock.sample.compaction.DIRECT_LIMIT", 10)
    others.append(run(graph, 2))
    for other in others:
        for left, right in zip(alone, other, strict=True):
            assert_same_sample(left, right)


def test_induced_has_the_same_nodes():
    graph = homogeneous_graph(np.random.default_rng(0))
    drawn, induced = (sample(graph, [30, 20], np.arange(40), layer_wise=True, induced=induced) for induced in (False, True))
    assert_same_bytes(drawn.nodes[NODE], induced.nodes[NODE])
    assert induced.edges[EDGE].positions.size > drawn.edges[EDGE].positions.size


def test_what_is_refused():
    random = np.random.default_rng(0)
    graph = homogeneous_graph(random)
    for options in ({"replace": True}, {"disjoint": True}, {"shared_draws": 1}):
        with pytest.raises(UsageError, match=r"^layer_wise .* leave out "):
            NeighborSampler(graph, [3], layer_wise=True, **options)
    with pytest.raises(UsageError, match=r"\(of times too\) share none"):
        NeighborSampler(with_times(graph, Timestamps({}, {EDGE: random.integers(0, 9, 4000)})), [3], layer_wise=True)
    with pytest.raises(NotSupportedError, match="layer_wise counts edges, and these are drawn by weight"):
        NeighborSampler(with_weights(graph, {EDGE: Weights(np.ones(4000))}), [3], layer_wise=True)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_damaged_graphs_are_refused(is_elsewhere):
    csc = random_csc(np.random.default_rng(0), 50, 40, 300)

    def taken(damaged):
        lists = TierLists(HostTier([damaged.indices])) if is_elsewhere else None
        return sample(Graph({NODE: 50}, {EDGE: replace(damaged, lists=lists)}, True), [2], np.arange(40), layer_wise=True)

    for value in (-5, 1 << 40):
        indptr = csc.indptr.copy()
        indptr[7] = value
        with pytest.raises(CorruptStoreError, match="lies outside its 300 edges"):
            taken(replace(csc, indptr=indptr))
    for value in (-1, 50):
        indices = csc.indices.copy()
        indices[123] = value
        with pytest.raises(CorruptStoreError, match=f"the edge at position 123 comes from node {value}, but 'node' has 50 nodes"):
            taken(replace(csc, indices=indices))


def test_what_was_read_before_an_error_is_forgotten(monkeypatch):
    """A workspace is used again after a batch whose lists could be read in part only."""
    monkeypatch.setattr("penstock.sample.neighbor.PIECE", 10)
    graph = homogeneous_graph(np.random.default_rng(0))
    csc = graph.adjacency[EDGE]
    indices = csc.indices.copy()
    indices[csc.indptr[39]] = -1
    damaged = Graph({NODE: 500}, {EDGE: CSC(csc.indptr, indices)}, True)
    sampler = NeighborSampler(damaged, [20, 20], layer_wise=True, seed=3)
    workspace, place = sampler.workspace(), {"epoch": 0, "batch": 0}
    with pytest.raises(CorruptStoreError):
        sampler.sample({NODE: np.arange(40)}, **place, workspace=workspace)
    again = sampler.over(graph).sample({NODE: np.arange(40)}, **place, workspace=workspace)
    assert_same_sample(again, sample(graph, [20, 20], np.arange(40), layer_wise=True))
