"""Bidirectional subgraphs against PyG's, and against a dictionary for the numbers of edges, which PyG leaves open."""

import warnings

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from penstock import NeighborLoader
from penstock.feed.bidirectional import union, with_reverses
from penstock.feed.subgraph import Subgraph, SubgraphEdges
from penstock.records import EDGE, NODE, Graph
from penstock.sample.workspace import Workspace

FORWARD, BACK, CITES, TWICE, ONLY = (
    ("paper", "by", "author"),
    ("author", "rev_by", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "likes", "author"),
    ("field", "holds", "paper"),
)
WORKSPACE = Workspace(Graph({}, {}, is_homogeneous=True), disjoint=False)
UNNAMED = ("author", "writes", "paper")
PARALLEL = ("paper", "rev_cites", "paper")
KINDS = [
    [CITES],
    [CITES, PARALLEL],
    [FORWARD, BACK],
    [FORWARD, UNNAMED],
    [FORWARD, UNNAMED, BACK],
    [TWICE, FORWARD, BACK],
    [ONLY],
    [BACK],
    [FORWARD, TWICE, CITES, ONLY, BACK, UNNAMED],
]


def some_edges(random, num_src, num_dst, num_edges):
    edge_index = torch.from_numpy(np.stack([random.integers(0, num_src, num_edges), np.sort(random.integers(0, num_dst, num_edges))]))
    return SubgraphEdges(edge_index, None, torch.from_numpy(random.integers(0, 10**6, num_edges)), None, [num_edges])


@pytest.mark.parametrize("num_edges", [0, 1, 5, 400])
@pytest.mark.parametrize("num_nodes", [1, 7, 300])
def test_homogeneous(num_nodes, num_edges):
    random = np.random.default_rng([num_nodes, num_edges])
    edges = some_edges(random, num_nodes, num_nodes, num_edges)
    found = with_reverses(Subgraph({NODE: torch.arange(num_nodes)}, {EDGE: edges}, {NODE: [num_nodes]}, None), True, WORKSPACE, np.empty)
    sources, targets = edges.edge_index
    theirs = SamplerOutput(torch.arange(num_nodes), sources, targets, edges.positions).to_bidirectional()
    assert torch.equal(found.edges[EDGE].edge_index, torch.stack([theirs.row, theirs.col]))
    first = {}
    for pairs in (edges.edge_index, edges.edge_index.flip(0)):
        for pair, position in zip(pairs.T.tolist(), edges.positions.tolist(), strict=True):
            first.setdefault(tuple(pair), position)
    assert found.edges[EDGE].positions.tolist() == [first[tuple(pair)] for pair in found.edges[EDGE].edge_index.T.tolist()]
    assert (found.num_nodes_per_hop, found.edges[EDGE].num_per_hop) == (None, None)
    by_target = theirs.col.bincount(minlength=num_nodes).cumsum(0)
    assert found.edges[EDGE].row_ptr.tolist() == [0, *by_target.tolist()]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("edge_types", KINDS, ids=lambda types: " ".join(e[1] for e in types))
def test_typed(edge_types, seed):
    random = np.random.default_rng(seed)
    size = {"paper": 20, "author": 9, "field": 3}
    edges = {e: some_edges(random, size[e[0]], size[e[2]], int(random.integers(0, 120))) for e in edge_types}
    nodes = {t: torch.arange(n) for t, n in size.items()}
    rows, cols = ({e: each.edge_index[end] for e, each in edges.items()} for end in (0, 1))
    with warnings.catch_warnings(record=True) as their_warnings:
        warnings.simplefilter("always")
        theirs = HeteroSamplerOutput(nodes, rows, cols, {e: each.positions for e, each in edges.items()}).to_bidirectional()
    with warnings.catch_warnings(record=True) as ours:
        warnings.simplefilter("always")
        found = with_reverses(Subgraph(nodes, edges, None, None), False, WORKSPACE, np.empty)
    assert len(ours) == len(their_warnings)
    for e, each in found.edges.items():
        assert torch.equal(each.edge_index, torch.stack([theirs.row[e], theirs.col[e]])), e
        assert each.row_ptr is None or torch.equal(each.row_ptr.diff(), theirs.col[e].bincount(minlength=size[e[2]])), e
        assert (each.positions is None) == (theirs.edge[e] is None), e
        assert each.positions is None or torch.equal(each.positions, theirs.edge[e]), e


def test_many_edges():
    """Of long lists, by a sort of another kind."""
    random = np.random.default_rng(0)
    num_src, num_dst = 3_000, 2_000
    lists = [(random.integers(0, num_src, n), random.integers(0, num_dst, n)) for n in (50_000, 30_000)]
    both, row_ptr, numbers = union(*lists, num_src, num_dst, WORKSPACE, np.empty)
    keys = np.concatenate([sources + targets * num_src for sources, targets in lists])
    expected, first = np.unique(keys, return_index=True)
    assert np.array_equal(both[0] + both[1] * num_src, expected)
    assert np.array_equal(numbers, first)
    assert np.array_equal(np.repeat(np.arange(num_dst), np.diff(row_ptr)), both[1])


def test_an_edge_that_was_sampled_keeps_its_number():
    """In PyG, two edges that reverse each other get each other's number, and so each other's attributes."""
    edge_index = torch.tensor([[0, 1, 2], [1, 0, 0]])
    data = Data(num_nodes=3, edge_index=edge_index, edge_attr=torch.tensor([10, 20, 30]))
    batch = next(iter(NeighborLoader(data, [-1, -1], torch.tensor([0]), batch_size=1, subgraph_type="bidirectional")))
    pairs = [tuple(pair) for pair in batch.n_id[batch.edge_index].T.tolist()]
    assert dict(zip(pairs, batch.edge_attr.tolist(), strict=True)) == {(0, 1): 10, (1, 0): 20, (2, 0): 30, (0, 2): 30}


def test_a_type_without_reverses_is_named():
    data = HeteroData()
    data["paper"].num_nodes, data["field"].num_nodes = 4, 2
    data[ONLY].edge_index = torch.tensor([[0, 1], [2, 3]])
    loader = NeighborLoader(data, [2], ("paper", torch.tensor([2])), batch_size=1, subgraph_type="bidirectional")
    with pytest.warns(UserWarning, match="no edge type that holds the reverses of field/holds/paper, or more than one"):
        next(iter(loader))


@pytest.mark.parametrize("kind", ["bidirectional", "induced"])
def test_a_transform_is_told_of_no_hops(kind):
    """As by PyG, whose `to_bidirectional` sets None."""
    data, told = HeteroData(), []
    data["paper"].num_nodes = 4
    data[CITES].edge_index = torch.tensor([[0, 1], [2, 3]])

    def note(output):
        told.append((output.num_sampled_nodes, output.num_sampled_edges))
        return output

    next(iter(NeighborLoader(data, [2], "paper", batch_size=4, subgraph_type=kind, transform_sampler_output=note)))
    assert told == [(None, None)]
