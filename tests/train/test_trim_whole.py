"""Batches without hops, induced and bidirectional ones: a trimmed model computes all rows of them, as the model did, by products."""

import copy

import pytest
import torch
from torch_geometric import nn as pyg
from torch_geometric.data import HeteroData

import penstock
from penstock.errors import UsageError
from penstock.feed.layers import hops_of
from penstock.train import trimmed
from tests.train.test_trim import MODELS, MyHGTConv, typed_data, typed_results
from tests.train.trimming_cases import CASES, WIDTH, Model, assert_alike, make_batch, of_edges, results

KINDS = [{"subgraph_type": "induced"}, {"subgraph_type": "bidirectional"}, {"subgraph_type": "induced", "disjoint": True}]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind.values())))
@pytest.mark.parametrize("case", CASES)
def test_rows_and_gradients_are_as_before(case, kind, caplog):
    make, names = CASES[case]
    model, batch = Model(make, 5).double(), make_batch(**kind)
    edges = of_edges(names, batch.num_edges)
    for conv in model.convs:
        conv.dropout = 0.0
    whole = results(model, batch, edges)
    assert_alike(results(penstock.trim(model), batch, edges), whole)
    assert len(model(batch.x, batch.edge_index, *edges)) == batch.num_nodes
    copied = copy.deepcopy(batch)
    assert_alike(results(model, copied, edges), whole)
    assert hops_of(copied.edge_index, batch.num_nodes, batch.num_nodes)
    assert not caplog.messages


@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional graph")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind.values())))
@pytest.mark.parametrize("name", [name for name in MODELS if "lazy" not in name])
def test_typed_graphs(name, kind):
    data = typed_data((200, 60, 30))
    loader = penstock.NeighborLoader(data, [3, 2, 2], input_nodes="a", batch_size=5, shuffle=True, seed=1, **kind)
    model = MODELS[name](data).double()
    trimmed_model = penstock.trim(copy.deepcopy(model), also=[MyHGTConv])
    for _, batch in zip(range(5), loader, strict=False):
        assert_alike(typed_results(trimmed_model, batch), typed_results(model, batch))


def test_reverses_in_typed_bidirectional_batches_are_left_to_the_layers(caplog):
    """They are sorted by source, as in PyG."""
    to, back = ("a", "to", "b"), ("b", "rev_to", "a")
    ends = torch.stack([torch.arange(30), torch.arange(30) % 7])
    data = HeteroData({"a": {"x": torch.rand(30, WIDTH).double()}, "b": {"x": torch.rand(7, WIDTH).double()}})
    data[to].edge_index, data[back].edge_index = ends, ends.flip(0)
    batch = make_batch(data, (5, 5), input_nodes="b", batch_size=3, subgraph_type="bidirectional")
    conv = penstock.trim(pyg.SAGEConv(WIDTH, WIDTH).double())
    rows = batch["a"].x, batch["b"].x
    assert len(conv(rows, batch[to].edge_index)) == len(rows[1])
    assert not caplog.messages
    assert len(conv(rows[::-1], batch[back].edge_index)) == len(rows[0])
    [message] = caplog.messages
    assert "the reverses in a typed bidirectional batch" in message


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind["subgraph_type"])
@pytest.mark.parametrize("case", ["sage", "gcn", "gat"])
def test_by_products(case, kind, monkeypatch):
    """No layer sends a row along each edge."""
    model, batch, sent = penstock.trim(Model(CASES[case][0]).double()), make_batch(**kind), []
    monkeypatch.setattr(trimmed.OF_PRODUCTS[0], "message", lambda *_, **__: sent.append("sage"))
    monkeypatch.setattr(pyg.GCNConv, "message", lambda *_, **__: sent.append("gcn"))
    monkeypatch.setattr(pyg.GATConv, "message", lambda *_, **__: sent.append("gat"))
    assert len(model(batch.x, batch.edge_index)) == batch.num_nodes
    assert not sent


def test_shares_of_attention_and_edges_that_were_written_to():
    """The shares are those of all edges, so they may be asked for; edges that were changed in place are refused, as of any batch."""
    batch, conv = make_batch(subgraph_type="induced"), pyg.GATConv(WIDTH, 4, heads=2).double()
    rows, (edges, shares) = conv(batch.x, batch.edge_index, return_attention_weights=True)
    found, (same, found_shares) = penstock.trim(conv)(batch.x, batch.edge_index, return_attention_weights=True)
    assert_alike([found, found_shares], [rows, shares])
    assert torch.equal(same, edges)
    batch.edge_index[0, 0] = 1
    with pytest.raises(UsageError, match="were written to since the loader made it"):
        conv(batch.x, batch.edge_index)


def test_shares_of_attention_where_a_hop_finds_no_destinations():
    """The layer gives as many rows of these as it is given, and yet other edges are left out."""
    data, to, back = HeteroData(), ("a", "to", "b"), ("b", "back", "a")
    data["a"].x, data["b"].x = torch.rand(3, WIDTH).double(), torch.rand(2, WIDTH).double()
    data[to].edge_index, data[back].edge_index = torch.tensor([[0, 1], [0, 1]]), torch.tensor([[1], [0]])
    batch = make_batch(data, (1, 1, 1), input_nodes=("b", [0]), batch_size=1)
    assert (batch["a"].num_sampled_nodes, batch["b"].num_sampled_nodes) == ([0, 1, 0, 1], [1, 0, 1, 0])
    conv, rows = penstock.trim(pyg.GATConv(WIDTH, 4, add_self_loops=False).double()), (batch["a"].x[:1], batch["b"].x[:1])
    assert len(conv(rows, batch[to].edge_index)) == 1
    with pytest.raises(UsageError, match="return_attention_weights"):
        conv(rows, batch[to].edge_index, return_attention_weights=True)
