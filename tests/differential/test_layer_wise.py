"""Layer-wise sampling: what follows from its rule. Whole samples are compared with their definition in `test_ways.py`."""

import numpy as np
import pytest

from penstock.errors import CorruptStoreError, NotSupportedError, UsageError
from penstock.kernels.sample_layer import cpu
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.times import Timestamps, with_times
from penstock.sample.weights import Weights, with_weights
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph


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


def test_what_is_refused():
    random = np.random.default_rng(0)
    graph = homogeneous_graph(random)
    for options in ({"replace": True}, {"disjoint": True}, {"shared_draws": 1}):
        with pytest.raises(UsageError, match=r"^layer_wise .* leave out "):
            NeighborSampler(graph, [3], layer_wise=True, **options)
    with pytest.raises(UsageError, match=r"\(also those of sampling by time\) share none"):
        NeighborSampler(with_times(graph, Timestamps({}, {EDGE: random.integers(0, 9, 4000)})), [3], layer_wise=True)
    with pytest.raises(NotSupportedError, match="layer_wise chooses nodes by their numbers of edges, not by weight"):
        NeighborSampler(with_weights(graph, {EDGE: Weights(np.ones(4000))}), [3], layer_wise=True)


def test_what_was_read_before_an_error_is_forgotten(monkeypatch):
    """A workspace is used again after a batch whose lists could be read in part only."""
    monkeypatch.setattr("penstock.sample.host_run.PIECE", 10)
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
