"""Models that cannot be trimmed, and batches that a trimmed one does not take."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import penstock
from penstock.errors import NotSupportedError, UsageError
from tests.refusals import refused

MODELS = {
    "no layers": (lambda: nn.Linear(2, 2), "Linear has no layer of PyG's"),
    "unknown": (lambda: pyg.ChebConv(2, 2, 3), "ChebConv is not known"),
    "direction": (lambda: pyg.SAGEConv(2, 2, flow="target_to_source"), "SAGEConv sends"),
    "cached": (lambda: pyg.GCNConv(2, 2, cached=True), "GCNConv keeps"),
    "maximum": (lambda: pyg.GCNConv(2, 2, aggr="max"), "aggr='max'"),
    "hyperedges": (lambda: pyg.HypergraphConv(2, 2), "takes no x and edge_index", [pyg.HypergraphConv]),
}


@pytest.mark.parametrize("case", MODELS)
def test_models_that_cannot_be_trimmed(case):
    make, words, *also = MODELS[case]
    assert words in refused((UsageError, NotSupportedError), penstock.trim, make(), *also)


def test_batches_that_a_trimmed_model_does_not_take():
    ends = torch.randint(0, 50, (2, 400))
    [batch] = penstock.NeighborLoader(Data(x=torch.rand(50, 4), edge_index=ends), [3, 2], [0, 1, 2], batch_size=3, seed=0)
    x, edge_index = batch.x, batch.edge_index
    assert "the 2 hops" in refused(UsageError, penstock.trim(pyg.GraphSAGE(4, 4, 3)), x, edge_index)
    assert "given 7 rows" in refused(UsageError, penstock.trim(pyg.SAGEConv(4, 4)), x[:7], edge_index)
    assert f"and the batch {batch.num_edges} edges" in refused(UsageError, penstock.trim(pyg.GraphConv(4, 4)), x, edge_index, torch.rand(3))
    attention = penstock.trim(pyg.GATConv(4, 4))
    refused(UsageError, lambda: attention(x, edge_index, return_attention_weights=True))
    refused(UsageError, penstock.trim(pyg.RGCNConv(50, 4, 1)), None, edge_index, torch.zeros(batch.num_edges, dtype=torch.long))
    edge_index[0, 0] += 1
    refused(UsageError, attention, x, edge_index)
