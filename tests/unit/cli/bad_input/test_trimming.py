"""Models that cannot be trimmed, and batches that a trimmed one does not take."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import penstock
from penstock.errors import NotSupportedError, UsageError
from tests.refusals import refused

LSTM = {"aggrs_kwargs": [{}, {"in_channels": 2, "out_channels": 2}]}


class OwnGCN(pyg.GCNConv):
    """A layer made from one that looks at the degrees of its neighbours."""


class OwnConv(pyg.MessagePassing):
    """A layer whose arguments have other names."""

    def forward(self, h, edges):
        """The sum of neighbours."""
        return self.propagate(edges, x=h)


def replaced(conv):
    conv.forward = lambda x, edge_index: x
    return conv


MODELS = {
    "no layers": (lambda: nn.Linear(2, 2), "Linear has no layer of PyG's"),
    "unknown": (lambda: pyg.MFConv(2, 2), "MFConv is not known"),
    "several hops": (lambda: pyg.ChebConv(2, 2, 3), "ChebConv needs degrees", [pyg.ChebConv]),
    "made from GCN": (lambda: OwnGCN(2, 2), "OwnGCN needs degrees", [OwnGCN]),
    "replaced": (lambda: replaced(pyg.SAGEConv(2, 2)), "the forward of SAGEConv was replaced"),
    "longest list": (lambda: pyg.SAGEConv(2, 2, aggr=["mean", "lstm"], aggr_kwargs=LSTM), "LSTMAggregation in SAGEConv"),
    "norm": (lambda: pyg.GraphSAGE(2, 2, 2, norm="graph_norm"), "looks at all rows"),
    "direction": (lambda: pyg.SAGEConv(2, 2, flow="target_to_source"), "SAGEConv sends"),
    "cached": (lambda: pyg.GCNConv(2, 2, cached=True), "GCNConv keeps"),
    "maximum": (lambda: pyg.GCNConv(2, 2, aggr="max"), "aggr='max'"),
    "means of all": (lambda: pyg.HANConv(2, 2, (["a"], [("a", "to", "a")])), "HANConv takes means over all rows"),
    "other names": (lambda: OwnConv(), "takes no x and edge_index", [OwnConv]),
}


@pytest.mark.parametrize("case", MODELS)
def test_models_that_cannot_be_trimmed(case):
    make, words, *also = MODELS[case]
    assert words in refused((UsageError, NotSupportedError), penstock.trim, make(), *also)


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")
def test_models_whose_code_is_asked_for():
    model = penstock.trim(pyg.SAGEConv(2, 2))
    refused(AttributeError, torch.jit.script, model)
    refused(AttributeError, torch.export.export, model, (torch.rand(3, 2), torch.tensor([[0, 1], [1, 2]])))


def test_batches_that_a_trimmed_model_does_not_take():
    ends = torch.randint(0, 50, (2, 400))
    [batch] = penstock.NeighborLoader(Data(x=torch.rand(50, 4), edge_index=ends), [3, 2], [0, 1, 2], batch_size=3, seed=0)
    x, edge_index = batch.x, batch.edge_index
    assert "the 2 hops" in refused(UsageError, penstock.trim(pyg.GraphSAGE(4, 4, 3)), x, edge_index)
    assert "given 7 rows" in refused(UsageError, penstock.trim(pyg.SAGEConv(4, 4)), x[:7], edge_index)
    assert f"and the batch {batch.num_edges} edges" in refused(UsageError, penstock.trim(pyg.GraphConv(4, 4)), x, edge_index, torch.rand(3))
    attention = penstock.trim(pyg.GATConv(4, 4))
    refused(UsageError, lambda: attention(x, edge_index, return_attention_weights=True))
    edge_index[0, 0] += 1
    refused(UsageError, attention, x, edge_index)
