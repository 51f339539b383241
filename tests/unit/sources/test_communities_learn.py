"""The claim of the planted communities: features alone stay under 60% test accuracy, GraphSAGE exceeds 90%."""

import numpy as np
import pytest
import torch
from tests.pyg import nn
from tests.tables import edges_of, read_all

from penstock.records import NODE
from penstock.sources.generate import generate


class Sage(torch.nn.Module):
    def __init__(self, dim, num_classes):
        super().__init__()
        self.convs = torch.nn.ModuleList([nn.SAGEConv(dim, 64), nn.SAGEConv(64, num_classes)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


class Mlp(torch.nn.Module):
    def __init__(self, dim, num_classes):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(dim, 64), torch.nn.ReLU(), torch.nn.Linear(64, num_classes))

    def forward(self, x, edge_index):
        return self.layers(x)


def best_test_accuracy(model, x, y, edge_index, split, num_epochs):
    """The best over all epochs, which is kind to the MLP."""
    optimizer, best = torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4), 0.0
    for _ in range(num_epochs):
        out = model(x, edge_index)
        best = max(best, float((out[split["test"]].argmax(1) == y[split["test"]]).float().mean()))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(out[split["train"]], y[split["train"]]).backward()
        optimizer.step()
    return best


@pytest.mark.parametrize("options", [{}, {"num_classes": 6, "num_communities": 60}])
def test_the_graph_tells_what_features_do_not(options):
    torch.manual_seed(0)
    source = generate("communities", num_nodes=3000, **options)
    columns = read_all(source.nodes[NODE].table)
    x, y, edge_index = torch.from_numpy(columns["x"]), torch.from_numpy(columns["y"]), torch.from_numpy(edges_of(source))
    split = {part: torch.from_numpy(ids) for part, ids in source.splits[NODE]["default"].items()}
    num_classes = source.nodes[NODE].num_classes
    alone = best_test_accuracy(Mlp(x.shape[1], num_classes), x, y, edge_index, split, 100)
    together = best_test_accuracy(Sage(x.shape[1], num_classes), x, y, edge_index, split, 25)
    assert 1.5 / num_classes < alone < 0.6
    assert together > 0.9


def test_a_linear_classifier_with_many_examples_stays_below_too():
    """As many training nodes as default: what the features allow is known, 45%, so no amount of training helps."""
    source = generate("communities")
    columns, split = read_all(source.nodes[NODE].table), source.splits[NODE]["default"]
    x, y = columns["x"], columns["y"]
    centers = np.stack([x[split["train"]][y[split["train"]] == label].mean(0) for label in range(16)])
    scores = x[split["test"]] @ centers.T - (centers**2).sum(1) / 2
    assert np.mean(scores.argmax(1) == y[split["test"]]) == pytest.approx(0.45, abs=0.03)
