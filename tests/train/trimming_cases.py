"""Models to be trimmed, graphs and batches for them."""

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import penstock
from penstock.feed.layers import hops_of

WIDTH = 6
LINEAR = lambda size=WIDTH: nn.Sequential(nn.Linear(size, WIDTH), nn.Tanh())  # noqa: E731
EDGE = {"edge_dim": 3}
CASES = {
    "sage": (lambda: pyg.SAGEConv(WIDTH, WIDTH), ()),
    "sage, max": (lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="max", project=True, normalize=True), ()),
    "sage, several": (lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr=["mean", "std"], root_weight=False), ()),
    "sage, softmax": (lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="softmax"), ()),
    "graph": (lambda: pyg.GraphConv(WIDTH, WIDTH, aggr="mean"), ()),
    "graph, weights": (lambda: pyg.GraphConv(WIDTH, WIDTH), ("edge_weight",)),
    "graph, mean of weights": (lambda: pyg.GraphConv(WIDTH, WIDTH, aggr="mean"), ("edge_weight",)),
    "gin": (lambda: pyg.GINConv(LINEAR(), train_eps=True), ()),
    "gine": (lambda: pyg.GINEConv(LINEAR(), edge_dim=3), ("edge_attr",)),
    "gat": (lambda: pyg.GATConv(WIDTH, WIDTH, heads=2, concat=False), ()),
    "gat, attributes": (lambda: pyg.GATConv(WIDTH, WIDTH, add_self_loops=False, **EDGE), ("edge_attr",)),
    "gat, no loops": (lambda: pyg.GATConv(WIDTH, WIDTH // 2, heads=2, add_self_loops=False, residual=True, bias=False), ()),
    "gat, two maps": (lambda: pyg.GATConv((WIDTH, WIDTH), WIDTH // 2, heads=2, residual=True), ()),
    "gat, mean": (lambda: pyg.GATConv(WIDTH, WIDTH, aggr="mean"), ()),
    "gat, max": (lambda: pyg.GATConv(WIDTH, WIDTH, aggr="max"), ()),
    "gatv2": (lambda: pyg.GATv2Conv(WIDTH, WIDTH, share_weights=True), ()),
    "gatv2, two maps": (lambda: pyg.GATv2Conv((WIDTH, WIDTH), WIDTH // 2, heads=2, residual=True, add_self_loops=False), ()),
    "gatv2, attributes": (lambda: pyg.GATv2Conv(WIDTH, WIDTH, add_self_loops=False, **EDGE), ("edge_attr",)),
    "transformer, plain": (lambda: pyg.TransformerConv(WIDTH, WIDTH // 2, heads=2, beta=True), ()),
    "transformer, no root": (lambda: pyg.TransformerConv((WIDTH, WIDTH), WIDTH, 2, concat=False, root_weight=False, bias=False), ()),
    "transformer": (lambda: pyg.TransformerConv(WIDTH, WIDTH, beta=True, **EDGE), ("edge_attr",)),
    "gated": (lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH), ()),
    "gen": (lambda: pyg.GENConv(WIDTH, WIDTH, norm="layer"), ()),
    "general": (lambda: pyg.GeneralConv(WIDTH, WIDTH, attention=True), ()),
    "le": (lambda: pyg.LEConv(WIDTH, WIDTH), ("edge_weight",)),
    "film": (lambda: pyg.FiLMConv(WIDTH, WIDTH, num_relations=3), ("edge_type",)),
    "edge": (lambda: pyg.EdgeConv(LINEAR(2 * WIDTH)), ()),
    "nn": (lambda: pyg.NNConv(WIDTH, WIDTH, nn.Linear(3, WIDTH * WIDTH)), ("edge_attr",)),
    "cg": (lambda: pyg.CGConv(WIDTH, dim=3), ("edge_attr",)),
    "rgcn": (lambda: pyg.RGCNConv(WIDTH, WIDTH, num_relations=3, num_bases=2), ("edge_type",)),
    "rgcn, fast": (lambda: pyg.FastRGCNConv(WIDTH, WIDTH, num_relations=3), ("edge_type",)),
    "pna": (lambda: pyg.PNAConv(WIDTH, WIDTH, ["mean", "max"], ["identity", "amplification"], torch.tensor([0, 1, 5, 6])), ()),
    "agnn": (lambda: pyg.AGNNConv(), ()),
    "cluster": (lambda: pyg.ClusterGCNConv(WIDTH, WIDTH), ()),
    "gcn": (lambda: pyg.GCNConv(WIDTH, WIDTH), ()),
    "gcn, weights": (lambda: pyg.GCNConv(WIDTH, WIDTH, improved=True), ("edge_weight",)),
    "gcn, improved": (lambda: pyg.GCNConv(WIDTH, WIDTH, improved=True, bias=False), ()),
    "gcn, no loops": (lambda: pyg.GCNConv(WIDTH, WIDTH, add_self_loops=False), ()),
    "gcn, plain": (lambda: pyg.GCNConv(WIDTH, WIDTH, normalize=False), ("edge_weight",)),
}


class Model(nn.Module):
    """Three layers, as anybody writes them."""

    def __init__(self, make, num_layers=3):
        super().__init__()
        self.convs = nn.ModuleList(make() for _ in range(num_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(num_layers))

    def forward(self, x, edge_index, *edges):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x, edge_index, *edges)).tanh()
        return x


def make_data(num_nodes=300, num_edges=1200):
    """Some nodes have loops, several of them or none, some edges are there twice, and some nodes have none at all."""
    random = np.random.default_rng()
    ends = torch.from_numpy(random.integers(0, num_nodes - num_nodes // 10, (2, num_edges)))
    ends[:, : num_edges // 20] = torch.arange(num_edges // 20) // 2
    ends[:, -num_edges // 10 :] = ends[:, : num_edges // 10]
    return Data(x=torch.from_numpy(random.normal(size=(num_nodes, WIDTH))), edge_index=ends, num_nodes=num_nodes)


def make_batch(data=None, num_neighbors=(4, 3, 2), **options):
    data = make_data() if data is None else data
    options = {"batch_size": 20, "shuffle": True, "seed": int(np.random.default_rng().integers(1 << 30)), **options}
    return next(iter(penstock.NeighborLoader(data, list(num_neighbors), **options)))


def of_edges(names, num_edges):
    shapes = {"edge_weight": torch.rand(num_edges).double(), "edge_attr": torch.rand(num_edges, 3).double()}
    return [torch.randint(0, 3, (num_edges,)) if name == "edge_type" else shapes[name] for name in names]


def results(model, batch, edges=()):
    """The rows of the seeds, and all gradients."""
    x = batch.x.clone().requires_grad_()
    model.zero_grad()
    rows = model(x, batch.edge_index, *edges)[: batch.batch_size]
    rows.square().sum().backward()
    return [rows.detach(), x.grad, *(each.grad for each in model.parameters())]


def assert_alike(one, other):
    for left, right in zip(one, other, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-8)


def assert_near(found, whole):
    """In half precision, by the median of the differences: 0.004 at most in 300 tries, 0.035 and more with rows or weights exchanged. A
    single number may differ by 0.15: LayerNorm enlarges the rounding of rows that are nearly constant."""
    assert (found.float() - whole.float()).abs().median() < 0.015


def hops(batch, edges):
    known = np.cumsum(batch.num_sampled_nodes)[-1]
    return hops_of(edges, known, known)
