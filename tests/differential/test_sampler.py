"""The sampler against its definition, byte for byte: typed graphs, every mode, any thread."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import EDGE, NODE, Graph
from penstock.sample import NeighborSampler, compaction
from tests.graphs import assert_same_sample, homogeneous_graph, typed_graph


@given(st.integers(0, 2**32 - 1))
def test_hash_table_gives_the_same_as_the_direct_one(seed):
    random = np.random.default_rng(seed)
    graph = homogeneous_graph(random)
    sampler = NeighborSampler(graph, [4, 4], seed=1)
    hashed = sampler.workspace()
    hashed.tables = {NODE: compaction.HashTable()}
    direct = sampler.workspace()
    for batch in range(5):
        seeds = random.integers(0, 500, 40)
        samples = [sampler.sample({NODE: seeds}, epoch=0, batch=batch, workspace=workspace) for workspace in (hashed, direct)]
        assert_same_sample(*samples)


def test_direct_table_survives_the_end_of_its_range(monkeypatch):
    graph = homogeneous_graph(np.random.default_rng(0))
    sampler = NeighborSampler(graph, [4, 4], seed=1)
    worn, fresh = sampler.workspace(), sampler.workspace()
    worn.tables[NODE]._base = np.iinfo(np.int32).max - 300
    for batch in range(3):
        seeds = np.arange(batch, 40)
        assert_same_sample(*(sampler.sample({NODE: seeds}, epoch=0, batch=batch, workspace=w) for w in (worn, fresh)))


def test_threads_and_workspaces_do_not_matter():
    graph = typed_graph(np.random.default_rng(0), hub_degree=4500)
    sampler = NeighborSampler(graph, [5, 5, 3], seed=9)
    seeds = [np.random.default_rng(i).integers(0, 900, 64) for i in range(40)]

    def run(workspaces):
        def one(i):
            workspace = workspaces.pop()
            try:
                return sampler.sample({"paper": seeds[i]}, epoch=2, batch=i, workspace=workspace)
            finally:
                workspaces.append(workspace)

        with ThreadPoolExecutor(len(workspaces)) as pool:
            return list(pool.map(one, range(40)))

    alone = run([sampler.workspace()])
    for num_threads in (2, 4, 7):
        for left, right in zip(alone, run([sampler.workspace() for _ in range(num_threads)]), strict=True):
            assert_same_sample(left, right)


def test_induced_subgraph_holds_every_edge_among_the_nodes():
    random = np.random.default_rng(4)
    graph = typed_graph(random)
    sampler = NeighborSampler(graph, [4, 4], induced=True, seed=3)
    sample = sampler.sample({"paper": np.arange(10)}, epoch=0, batch=0, workspace=sampler.workspace())
    for (src, relation, dst), csc in graph.adjacency.items():
        edges = sample.edges[(src, relation, dst)]
        destinations = np.repeat(np.arange(csc.num_dst), np.diff(csc.indptr))
        inside = np.isin(csc.indices, sample.nodes[src]) & np.isin(destinations, sample.nodes[dst])
        assert sorted(edges.positions) == np.flatnonzero(inside).tolist()
        assert (sample.nodes[src][edges.edge_index[0]] == csc.indices[edges.positions]).all()
        assert (sample.nodes[dst][edges.edge_index[1]] == destinations[edges.positions]).all()


@pytest.mark.parametrize("disjoint", [False, True])
def test_structure(disjoint):
    """What holds for every sample: real edges, no repetition without replacement, seeds first, rows grouped."""
    graph = homogeneous_graph(np.random.default_rng(1), 400, 8000)
    sampler = NeighborSampler(graph, [7, 3], disjoint=disjoint, seed=2)
    seeds = np.array([5, 9, 5, 200])
    sample = sampler.sample({NODE: seeds}, epoch=1, batch=6, workspace=sampler.workspace())
    nodes, edges, csc = sample.nodes[NODE], sample.edges[EDGE], graph.adjacency[EDGE]
    assert nodes[:4].tolist() == seeds.tolist()
    source, target = edges.edge_index
    assert (nodes[source] == csc.indices[edges.positions]).all()
    assert ((csc.indptr[nodes[target]] <= edges.positions) & (edges.positions < csc.indptr[nodes[target] + 1])).all()
    assert (np.diff(target) >= 0).all()
    assert (np.repeat(np.arange(edges.row_ptr.size - 1), np.diff(edges.row_ptr)) == target).all()
    assert len({(t, p) for t, p in zip(target, edges.positions, strict=True)}) == edges.positions.size
    assert sum(sample.num_nodes_per_hop[NODE]) == nodes.size
    assert sum(edges.num_per_hop) == edges.positions.size
    counts = np.diff(edges.row_ptr)[: 4 + sample.num_nodes_per_hop[NODE][1]]
    degrees = np.diff(csc.indptr)[nodes[: counts.size]]
    assert (counts == np.minimum(degrees, np.repeat([7, 3], sample.num_nodes_per_hop[NODE][:2]))).all()
    if disjoint:
        assert (sample.trees[NODE][source] == sample.trees[NODE][target]).all()
        keys = list(zip(sample.trees[NODE], nodes, strict=True))
        assert len(set(keys)) == len(keys)
    else:
        assert len(set(nodes[2:])) == nodes.size - 2


def test_repeated_seeds_draw_on_their_own():
    graph = Graph({NODE: 1001}, {EDGE: homogeneous_graph(np.random.default_rng(0), 1001, 200_000).adjacency[EDGE]}, True)
    sampler = NeighborSampler(graph, [10], seed=0)
    sample = sampler.sample({NODE: np.array([3, 3, 3])}, epoch=0, batch=0, workspace=sampler.workspace())
    taken = np.split(sample.edges[EDGE].positions, 3)
    assert len({tuple(positions) for positions in taken}) == 3
