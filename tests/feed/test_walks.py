"""`walks`: edges come from nodes that a walk can reach; typed graphs; and a model trained on them. See also `test_ways.py`."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphConv
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import scatter

import penstock
from penstock import LinkNeighborLoader, NeighborLoader, Walks
from penstock.cache.presample import presample_visits
from penstock.feed.inputs import open_input
from penstock.order import RandomOrder
from penstock.records import NODE
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds
from penstock.store import ingest
from tests.feed.inputs import digests, homogeneous_data
from tests.graphs import assert_same_sample

WALKS = Walks(num=6, length=3)
OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, seed=5, walks=WALKS)
PATH = [("user", "rates", "item"), ("item", "rated_by", "user")]


def bipartite(num_users=60, num_items=90, num_edges=500):
    """Users who rate items; features say which node a row is of."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.arange(num_users).float()[:, None], torch.arange(num_items).float()[:, None]
    users, items = (torch.randint(0, most, (num_edges,), generator=generator) for most in (num_users, num_items))
    data["user", "rates", "item"].edge_index = torch.stack([users, items])
    data["user", "rates", "item"].stars = torch.arange(num_edges)
    data["item", "rated_by", "user"].edge_index = torch.stack([items, users])
    return data


def check(batch, data):
    """Rows are those of their nodes; edges come from nodes that a walk can reach, no more than walks have steps, the most visited first."""
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert {"e_id", "edge_attr"}.isdisjoint(batch.keys())
    reaches = torch.zeros(data.num_nodes, data.num_nodes)
    reaches[data.edge_index[1], data.edge_index[0]] = 1
    reaches = reaches + reaches @ reaches + reaches @ reaches @ reaches
    source, target = batch.edge_index
    assert (reaches[batch.n_id[target], batch.n_id[source]] > 0).all()
    weights = batch.edge_weight
    assert (weights.dtype, weights.shape) == (torch.float32, source.shape)
    assert scatter(weights, target, dim_size=batch.num_nodes).max() <= WALKS.num * WALKS.length
    assert (weights >= 1).all()
    assert ((weights[1:] <= weights[:-1]) | (target[1:] != target[:-1])).all()
    counts = batch.row_ptr.diff()
    assert (counts[:32] <= 3).all()
    assert (counts[32:] <= 2).all()


def test_data():
    data = homogeneous_data()
    found = digests(NeighborLoader(data, **OPTIONS))
    for batch in NeighborLoader(data, **OPTIONS):
        check(batch, data)
    assert digests(NeighborLoader(data, **(OPTIONS | {"walks": Walks(num=6, length=3, end=0.4)}))) != found
    assert digests(NeighborLoader(data, **(OPTIONS | {"walks": Walks(num=6, length=3, path=[("node", "to", "node")])}))) == found


def test_weights_are_cut_layer_by_layer():
    """What a model computes with `layers` is what it computes with all edges."""
    batch = next(iter(NeighborLoader(homogeneous_data(), **OPTIONS)))
    conv, x = GraphConv(2, 4), batch.x / 300
    whole = conv(x, batch.edge_index, batch.edge_weight)[:32]
    last = penstock.layers(batch)[-1]
    cut = conv((x[: last.num_src], x[: last.num_dst]), last.edge_index, batch.edge_weight[: last.sources.numel()])
    assert torch.allclose(cut, whole)
    product = last.adj_t(batch.edge_weight[: last.sources.numel()]) @ x[: last.num_src]
    assert torch.allclose(product, scatter(x[last.edge_index[0]] * batch.edge_weight[: last.sources.numel(), None], last.edge_index[1]))


def test_stores_of_pyg():
    data = homogeneous_data(is_sorted=True)
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    lists = data.edge_index[0], torch.cat([torch.zeros(1, dtype=torch.int64), data.edge_index[1].bincount(minlength=300).cumsum(0)])
    graph.put_edge_index(lists, edge_type=None, layout="csc", size=(300, 300))
    options = OPTIONS | {"input_nodes": torch.arange(300)}
    for ours, theirs in zip(NeighborLoader((features, graph), **options), NeighborLoader(data, **options), strict=True):
        assert torch.equal(ours.edge_weight, theirs.edge_weight)
        assert torch.equal(ours.x, theirs.x)


def test_along_a_path():
    """Batches of a bipartite graph have items only; the data keeps its edges."""
    data, walks = bipartite(), Walks(num=6, length=2, path=PATH)
    options = dict(num_neighbors=[3, 2], input_nodes="item", batch_size=30, seed=5, walks=walks)
    loader = NeighborLoader(data, **options)
    rates = torch.zeros(60, 90)
    rates[tuple(data[PATH[0]].edge_index)] = 1
    reaches = rates.T @ rates
    for batch in loader:
        assert batch.edge_types == [("item", "walks", "item")]
        edges, ids = batch["item", "walks", "item"], batch["item"].n_id
        source, target = edges.edge_index
        assert ((reaches + reaches @ reaches)[ids[target], ids[source]] > 0).all()
        assert torch.equal(batch["item"].x, data["item"].x[ids])
        assert scatter(edges.edge_weight, target).max() <= 12
        assert batch["user"].x.shape == (0, 1)
        assert [layer.edges["item", "walks", "item"].num_dst for layer in penstock.layers(batch)][-1] == 30
    assert data.edge_types == PATH


def test_links():
    data = homogeneous_data()
    options = dict(num_neighbors=[3], batch_size=100, neg_sampling="binary", seed=1, walks=Walks(num=4, length=2))
    kept, left = (list(LinkNeighborLoader(data, **options, exclude_links=which)) for which in (None, "self"))
    assert sum(batch.num_excluded_edges for batch in left) > 0
    for one, other in zip(kept, left, strict=True):
        assert one.edge_weight.numel() == other.edge_weight.numel() + other.num_excluded_edges


def test_trees():
    """Disjoint trees: the walks of a seed are its own, and the batch says whose each node is."""
    for batch in NeighborLoader(homogeneous_data(), **OPTIONS, disjoint=True):
        assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])


class Weighted(nn.Module):
    """Two layers that take the mean of those that walks visited, weighed by how often (PinSAGE's importance pooling)."""

    def __init__(self, num_features, num_classes):
        super().__init__()
        self.first, self.second = GraphConv(num_features, 64), GraphConv(64, num_classes)

    def forward(self, batch):
        _, target = batch.edge_index
        shares = batch.edge_weight / scatter(batch.edge_weight, target, dim_size=batch.num_nodes).clamp(min=1)[target]
        x = functional.dropout(batch.x, 0.5, self.training)
        x = functional.dropout(self.first(x, batch.edge_index, shares).relu(), 0.5, self.training)
        return self.second(x, batch.edge_index, shares)[: batch.batch_size]


def test_a_model_learns(real_graphs, tmp_path):
    """On cora, walks in training and in evaluation, near what GraphSAGE reaches there."""
    store = ingest(real_graphs / "cora.npz", tmp_path / "cora", memory="4GiB")
    torch.manual_seed(0)
    options = dict(num_neighbors=[10, 10], walks=Walks(num=20, length=3), seed=0)
    train = NeighborLoader(store, **options, input_nodes="train", batch_size=140, shuffle=True)
    model = Weighted(1433, 7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-3)
    for _ in range(15):
        for batch in train:
            optimizer.zero_grad()
            functional.cross_entropy(model(batch), batch.y[: batch.batch_size]).backward()
            optimizer.step()
    model.eval()
    (test,) = NeighborLoader(store, **options, input_nodes="test", batch_size=1000)
    assert (model(test).argmax(dim=1) == test.y[:1000]).float().mean() > 0.76


def test_lists_off_the_path_are_not_read():
    """What is kept of neighbour lists is of those that walks came by."""
    data = bipartite()
    data["user", "views", "item"].edge_index = data["user", "rates", "item"].edge_index.clone()
    graph = open_input(data, is_sorted=False).graph
    sampler = NeighborSampler(graph, [3], walks=Walks(num=4, length=2, path=PATH))
    visits = presample_visits(SampledBatches(sampler, NodeSeeds("item", np.arange(90)), RandomOrder(90, 1), 30))
    assert visits.lists[PATH[0]].sum() > 0
    assert visits.lists["user", "views", "item"].sum() == 0


def test_a_workspace_for_any_walks():
    graph, seeds = open_input(homogeneous_data(), is_sorted=False).graph, {NODE: np.arange(40)}
    samplers = [
        NeighborSampler(graph, [fanout], walks=walks) for fanout, walks in ((1, Walks(num=1, length=1)), (-1, Walks(num=50, length=20)))
    ]
    workspace = samplers[0].workspace()
    for sampler in (*samplers, *samplers):
        place = dict(epoch=0, batch=0)
        expected = sampler.sample(seeds, **place, workspace=sampler.workspace())
        assert_same_sample(sampler.sample(seeds, **place, workspace=workspace), expected)
