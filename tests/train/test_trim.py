"""A trimmed model gives what it gave before, for the rows that count, with its gradients."""

import copy
import gc
import logging
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.grad_mode import set_multithreading_enabled
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData

import penstock
from penstock.errors import MissingFieldError
from penstock.feed.layers import hops_of
from penstock.kernels import _triton
from penstock.train import trimming

WIDTH = 6
WALKS = penstock.Walks(num=4, length=3)
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
    "gatv2": (lambda: pyg.GATv2Conv(WIDTH, WIDTH, share_weights=True), ()),
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


@pytest.mark.parametrize("case", CASES)
def test_rows_and_gradients_are_those_of_the_whole_batch(case):
    make, names = CASES[case]
    model, batch = Model(make).double(), make_batch()
    edges = of_edges(names, batch.num_edges)
    for conv in model.convs:
        conv.dropout = 0.0
    whole = results(model, batch, edges)
    assert penstock.trim(model) is model
    assert_alike(results(model, batch, edges), whole)
    assert len(model(batch.x, batch.edge_index, *edges)) == batch.batch_size


def test_every_layer_that_is_known_is_tried():
    assert {type(make()) for make, _ in CASES.values()} == set(trimming.KNOWN)


@pytest.mark.parametrize("case", ["sage", "graph, weights", "gcn, weights", "gat"])
@pytest.mark.parametrize(
    ("num_neighbors", "num_layers"), [([-1, -1], 2), ([3, 2, 2], 2), ([5], 1), ([2] * 6, 6)], ids=["all", "more hops", "one", "six"]
)
def test_hops_that_find_nothing_new(case, num_neighbors, num_layers):
    """In a graph that two hops exhaust; and with more hops than layers."""
    make, names = CASES[case]
    model, batch = Model(make, num_layers).double(), make_batch(make_data(30, 200), num_neighbors)
    edges = of_edges(names, batch.num_edges)
    whole = results(model, batch, edges)
    assert_alike(results(penstock.trim(model), batch, edges), whole)


@pytest.mark.parametrize("case", ["sage", "graph, weights", "gcn, weights"])
def test_weights_that_learn_and_numbers_of_half_the_width(case):
    """Go along edges: torch has no products for them."""
    make, names = CASES[case]
    model, batch = Model(make).double(), make_batch()
    edges = [each.requires_grad_() for each in of_edges(names, batch.num_edges)]
    whole = [*results(model, batch, edges), *(each.grad for each in edges)]
    for each in edges:
        each.grad = None
    assert_alike([*results(penstock.trim(model), batch, edges), *(each.grad for each in edges)], whole)
    model, batch.x = model.bfloat16(), batch.x.bfloat16()
    given = [each.detach().bfloat16() for each in edges]
    found = model(batch.x, batch.edge_index, *given)
    assert found.dtype == torch.bfloat16
    untrimmed = Model(make).bfloat16()
    untrimmed.load_state_dict(model.state_dict())
    torch.testing.assert_close(found, untrimmed(batch.x, batch.edge_index, *given)[: batch.batch_size], rtol=0.1, atol=0.1)


WAYS = [
    {"pad": True},
    {"disjoint": True},
    {"num_workers": 2},
    {"shared_draws": 2},
    {"replace": True},
    {"layer_wise": True},
    {"walks": WALKS},
]


@pytest.mark.parametrize("options", WAYS, ids=lambda options: next(iter(options)))
def test_batches_of_all_kinds(options):
    model, batch = Model(CASES["gcn"][0]).double(), make_batch(**options)
    whole = results(model, batch)
    assert_alike(results(penstock.trim(model), batch), whole)


@pytest.mark.filterwarnings("ignore:The usage of .scatter:UserWarning")  # of PyG, on a device
@pytest.mark.parametrize("case", ["sage", "sage, max", "graph, weights", "gin", "gcn", "gcn, weights", "gat"])
@pytest.mark.parametrize("is_moved", [False, True])
def test_on_a_device(case, is_moved, device):
    """Batches that come there, or are moved there, are computed as on the CPU, and their gradients."""
    make, names = CASES[case]
    where, data, seed = _triton.tensor_device(device), make_data(), int(np.random.default_rng().integers(1 << 30))
    batch, model = make_batch(data, seed=seed), penstock.trim(Model(make).double())
    there = make_batch(data, seed=seed, device=device if where.type == "cuda" and not is_moved else None).to(where)
    edges = of_edges(names, batch.num_edges)
    expected = results(model, batch, edges)
    with set_multithreading_enabled(False):  # on a pretended device other threads know nothing of this one's stream
        got = results(copy.deepcopy(model).to(where), there, [each.to(where) for each in edges])
    assert_alike([each.cpu() for each in got], expected)
    assert hops(there, there.edge_index) is not None


def test_links():
    data, model = make_data(), Model(CASES["sage"][0]).double()
    loader = penstock.LinkNeighborLoader(data, [3, 3, 3], neg_sampling_ratio=1.0, batch_size=16, seed=0)
    batch = next(iter(loader))
    whole = model(batch.x, batch.edge_index)[batch.edge_label_index]
    found = penstock.trim(model)(batch.x, batch.edge_index)
    assert len(found) < batch.num_nodes
    torch.testing.assert_close(found[batch.edge_label_index], whole)


@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, pyg.GAT, pyg.GIN])
@pytest.mark.parametrize("jk", [None, "last", "cat", "max"])
def test_models_of_pyg(kind, jk):
    model, batch = kind(WIDTH, 8, 3, 2, jk=jk, norm="layer_norm", norm_kwargs={"mode": "node"}).double(), make_batch()
    whole = results(model, batch)
    found = results(penstock.trim(model), batch)
    assert_alike(found, whole)


TYPES = {
    ("a", "to", "b"): lambda: pyg.SAGEConv(WIDTH, WIDTH),
    ("b", "to", "a"): lambda: pyg.GATConv((WIDTH, WIDTH), WIDTH, add_self_loops=False),
    ("a", "likes", "a"): lambda: pyg.GCNConv(WIDTH, WIDTH),
    ("c", "to", "a"): lambda: pyg.GraphConv(WIDTH, WIDTH, aggr="mean"),
    ("b", "to", "c"): lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="max"),
}


class Typed(nn.Module):
    """Three layers over a typed graph."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(pyg.HeteroConv({key: make() for key, make in TYPES.items()}) for _ in range(3))

    def forward(self, x_dict, edge_index_dict):
        for layer in self.layers:
            x_dict = {key: x.tanh() for key, x in layer(x_dict, edge_index_dict).items()}
        return x_dict


@pytest.mark.parametrize("num_nodes", [(12, 4, 3), (12, 200, 3), (200, 60, 3), (200, 1, 90)])
@pytest.mark.parametrize("is_made", [False, True], ids=["HeteroConv", "to_hetero"])
def test_typed_graphs(num_nodes, is_made):
    """Some of whose types have no more nodes after a hop or two, or none before that."""
    random = np.random.default_rng()
    data = HeteroData()
    for node_type, count in zip("abc", num_nodes, strict=True):
        data[node_type].x = torch.from_numpy(random.normal(size=(count, WIDTH)))
    for edge_type, count in zip(TYPES, (90, 300, 400, 100, 20), strict=True):
        ends = [random.integers(0, data[edge_type[at]].num_nodes, count) for at in (0, 2)]
        data[edge_type].edge_index = torch.from_numpy(np.stack(ends))
    loader = penstock.NeighborLoader(data, [3, 2, 2], input_nodes="a", batch_size=5, shuffle=True, seed=int(random.integers(1 << 30)))
    batches = list(loader)
    model = pyg.to_hetero(pyg.GraphSAGE(WIDTH, WIDTH, 3), data.metadata()).double() if is_made else Typed().double()
    whole = [typed_results(model, batch) for batch in batches]
    penstock.trim(model)
    for batch, wanted in zip(batches, whole, strict=True):
        assert_alike(typed_results(model, batch), wanted)
    assert len(model(batches[0].x_dict, batches[0].edge_index_dict)["a"]) < batches[0]["a"].num_nodes or num_nodes[0] < 20


def typed_results(model, batch):
    """Zeros for gradients that are none: a relation without edges that count may get none."""
    model.zero_grad()
    rows = model(batch.x_dict, batch.edge_index_dict)["a"][: batch["a"].batch_size]
    rows.square().sum().backward()
    return [rows.detach(), *(torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters())]


def test_other_edges_are_left_to_the_layers(caplog):
    """A whole graph's, with the bits of before; and a training over edges that are nobody's batch is told of, once."""
    data, model = make_data(), Model(CASES["gcn"][0]).double()
    before = model(data.x, data.edge_index)
    penstock.trim(model)
    with caplog.at_level(logging.WARNING, "penstock"):
        model.eval()
        assert torch.equal(model(data.x, data.edge_index), before)
        assert not caplog.messages
        model.train()
        batch = make_batch(data)
        assert len(model(batch.x, batch.edge_index.flip(1))) == batch.num_nodes
        assert torch.equal(model(data.x, data.edge_index), before)
    assert [message for message in caplog.messages if "edges that no loader made" in message] == caplog.messages[:1] == caplog.messages


def test_a_trimmed_model_is_still_a_model():
    """It is copied, pickled, trimmed again, saved and loaded, and inferred with; its weights have the names of before."""
    data, model = make_data(), Model(CASES["sage"][0])
    data.x = data.x.float()
    names, plain = list(model.state_dict()), copy.deepcopy(model)
    batch = make_batch(data)
    want = penstock.trim(penstock.trim(model))(batch.x, batch.edge_index)
    assert list(model.state_dict()) == names
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.convs[0].forward.conv is other.convs[0]
        assert torch.equal(other(batch.x, batch.edge_index), want)
        with torch.no_grad():
            other.convs[0].lin_l.weight.zero_()
        assert not torch.equal(other(batch.x, batch.edge_index), want)
    assert torch.equal(model(batch.x, batch.edge_index), want)
    kept = pyg.GraphSAGE(WIDTH, 8, 2, 5).eval()
    whole = penstock.infer(kept, data)
    np.testing.assert_array_equal(penstock.infer(penstock.trim(kept), data), whole)
    np.testing.assert_allclose(kept(data.x, data.edge_index).detach(), whole, rtol=1e-4, atol=1e-5)
    assert len(plain(batch.x, batch.edge_index)) == batch.num_nodes


class OwnConv(pyg.MessagePassing):
    """A layer that nobody knows."""

    def forward(self, x, edge_index, factor=1.0):
        """The largest of the neighbours, times something, and the node itself."""
        return x + factor * self.propagate(edge_index, x=x)


def test_layers_of_ones_own():
    model, batch = Model(lambda: OwnConv(aggr="max")).double(), make_batch()
    whole = results(model, batch, [2.0])
    assert_alike(results(penstock.trim(model, also=[OwnConv]), batch, [2.0]), whole)


class Skipping(Model):
    """With connections that skip a layer."""

    def forward(self, x, edge_index, is_cut):
        """What is skipped is cut to what the layer gives, or not."""
        for conv in self.convs:
            out = conv(x=x, edge_index=edge_index)
            x = out + (x[: len(out)] if is_cut else x)
        return x


def test_connections_that_skip_a_layer():
    model, batch = Skipping(CASES["gat"][0]).double(), make_batch()
    whole = results(model, batch, [True])
    assert_alike(results(penstock.trim(model), batch, [True]), whole)
    with pytest.raises(RuntimeError, match="must match the size") as caught:
        model(batch.x, batch.edge_index, False)
    assert "the model is trimmed" in caught.value.__notes__[0]


def test_batches_that_have_no_hops_are_computed_whole():
    model, batch = penstock.trim(Model(CASES["sage"][0]).double()), make_batch(subgraph_type="induced")
    with pytest.raises(MissingFieldError):
        penstock.layers(batch)
    assert len(model(batch.x, batch.edge_index)) == batch.num_nodes


def hops(batch, edges):
    known = np.cumsum(batch.num_sampled_nodes)[-1]
    return hops_of(edges, known, known)


def test_copies_are_known_while_their_batch_is_there():
    """Also one that was found before: a whole graph may have the edges that a batch had."""
    batch, other = make_batch(), make_batch()
    edges = copy.deepcopy(batch).edge_index
    for _ in range(2):
        assert hops(batch, edges).num_src == hops(batch, batch.edge_index).num_src
    assert hops(other, other.edge_index.clone()).num_src != hops(batch, edges).num_src
    changed = batch.edge_index.clone()
    changed[0, 0] += 1
    assert hops(batch, changed) is None
    other.edge_index[0, 0] += 1
    assert hops(other, other.edge_index.clone()) is None
    late, freed = batch.edge_index.clone(), weakref.ref(batch.edge_index)
    assert hops(batch, late)
    known = copy.copy(batch.num_sampled_nodes)
    del batch
    gc.collect()
    assert freed() is None
    assert hops_of(late, sum(known), sum(known)) is None


def test_equal_edges_of_two_batches():
    """A node is a neighbour in one, and a seed of the other: a copy may be of either, and is computed whole."""
    data = Data(x=torch.rand(4, WIDTH).double(), edge_index=torch.tensor([[2], [0]]))
    first, second = (make_batch(data, (1,), input_nodes=seeds, batch_size=3, shuffle=False) for seeds in ([0, 1, 2], [0, 1]))
    conv = penstock.trim(CASES["sage"][0]().double())
    assert torch.equal(first.edge_index, second.edge_index)
    assert [len(conv(batch.x, batch.edge_index)) for batch in (first, second)] == [3, 2]
    assert len(conv(first.x, first.edge_index.clone())) == 3


def test_weights_of_another_width_and_sizes_that_are_said():
    model, batch = Model(CASES["graph"][0]).double(), make_batch()
    weights, size = torch.rand(batch.num_edges), (batch.num_nodes, batch.num_nodes)
    whole = results(model, batch, [weights, size])
    assert_alike(results(penstock.trim(model), batch, [weights, size]), whole)


def test_batches_without_edges():
    """Two are equal, and have other nodes."""
    lone = Data(x=torch.rand(9, WIDTH).double(), edge_index=torch.empty(2, 0, dtype=torch.int64))
    batches, model = [make_batch(lone, batch_size=size) for size in (2, 3)], Model(CASES["sage"][0]).double()
    whole = [model(batch.x, batch.edge_index) for batch in batches]
    penstock.trim(model)
    for batch, rows in zip(batches, whole, strict=True):
        torch.testing.assert_close(model(batch.x, batch.edge_index.clone()), rows)


@pytest.mark.parametrize("case", ["sage", "gcn"])
@pytest.mark.parametrize("name", trimming.HOOKS[:3])
def test_hooks_of_layers_are_called(case, name):
    model, batch = Model(CASES[case][0]).double(), make_batch()
    for conv in model.convs:
        getattr(conv, f"register_{name}_forward_hook")(lambda _, __, rows: rows * 0.5)
    whole = results(model, batch)
    assert_alike(results(penstock.trim(model), batch), whole)


def test_parts_of_layers_may_be_others():
    """A map of GCN's that is not linear; another aggregation; weights that are computed, for which a layer gets another class."""
    models = [Model(CASES[case][0]).double() for case in ("gcn", "sage", "gcn")]
    for convs in zip(*(model.convs for model in models), strict=True):
        convs[0].lin = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double()
        convs[1].aggr_module = pyg.SoftmaxAggregation()
    batch = make_batch()
    whole = [results(model, batch) for model in models]
    for model, wanted in zip(models, whole, strict=True):
        penstock.trim(model)
        if model is models[2]:
            for conv in model.convs:
                nn.utils.parametrize.register_parametrization(conv, "bias", nn.Identity())
        torch.testing.assert_close(results(model, batch)[0], wanted[0])


def test_ties_share_a_gradient():
    """Of the maximum of equal rows, as PyG's."""
    data = make_data()
    data.x = data.x.round()
    model, batch = Model(CASES["sage, max"][0]).double(), make_batch(data)
    whole = results(model, batch)
    assert_alike(results(penstock.trim(model), batch), whole)


def test_half_precision_by_autocast():
    model, batch = Model(CASES["gcn"][0]), make_batch()
    batch.x = batch.x.float()
    whole = model(batch.x, batch.edge_index)[: batch.batch_size]
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(penstock.trim(model)(batch.x, batch.edge_index).float(), whole, rtol=0.1, atol=0.1)


class Joining(nn.Module):
    """Takes what it gets by name, and gives its layers that."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(pyg.GraphConv(WIDTH, WIDTH) for _ in range(3))
        self.jump = pyg.JumpingKnowledge("cat")

    def forward(self, x, edge_index):
        xs = [x]
        for conv in self.convs:
            xs.append(conv(edge_index=edge_index, x=xs[-1], edge_weight=None))
        return self.jump(xs=xs)


def test_arguments_by_name():
    model, batch = Joining().double(), make_batch()
    whole = results(model, batch)
    assert_alike(results(penstock.trim(model), batch), whole)


class Scaling(pyg.MessagePassing):
    """A layer with arguments of any name, and one whose default is not None."""

    def forward(self, x, edge_index, power=1.0, **more):
        """The sum of neighbours, times something."""
        return x + (2.0 if power is None else power) * more.get("factor", 1.0) * self.propagate(edge_index, x=x)


def test_arguments_of_ones_own_layers():
    conv, batch = Scaling(), make_batch()
    whole = conv(batch.x, batch.edge_index, None, factor=3.0)[: batch.batch_size]
    found = penstock.trim(conv, also=[Scaling])(batch.x, batch.edge_index, None, factor=3.0)
    torch.testing.assert_close(found[: batch.batch_size], whole)


def test_a_forward_of_ones_own_stays():
    model, batch = Model(CASES["sage"][0]).double(), make_batch()
    before = model.forward
    model.forward = lambda *given: 100 + before(*given)
    whole = model(batch.x, batch.edge_index)[: batch.batch_size]
    torch.testing.assert_close(penstock.trim(model)(batch.x, batch.edge_index), whole)


def test_what_is_explained_is_computed_whole():
    model, batch = penstock.trim(Model(CASES["sage"][0]).double()), make_batch()
    for conv in model.convs:
        conv.explain = True
        conv._edge_mask, conv._loop_mask, conv._apply_sigmoid = torch.ones(batch.num_edges).double(), None, False
    assert len(model(batch.x, batch.edge_index)) == batch.num_nodes


@pytest.mark.parametrize("case", ["sage", "gat", "gcn"])
def test_what_is_computed_is_what_is_read(case, monkeypatch):
    """The rows that layers give are the nodes known a hop before, last hop first; sums go over the edges of these hops, where there is
    one by a product of matrices; and nothing is wrapped twice."""
    model, batch = Model(CASES[case][0]).double(), make_batch()
    given, edges, products = [], [], []
    forwards = [conv.forward for conv in penstock.trim(model).convs]
    for conv in penstock.trim(model).convs:
        conv.register_forward_hook(lambda _, __, rows: given.append(len(rows)))
        multiply, send = trimming.product, conv.propagate
        monkeypatch.setattr(conv, "propagate", lambda e, send=send, **more: edges.append(e.layout) or send(e, **more))
    monkeypatch.setattr(trimming, "product", lambda adj_t, x: products.append(adj_t._nnz()) or multiply(adj_t, x))
    model(batch.x, batch.edge_index)
    known, counts = np.cumsum(batch.num_sampled_nodes), np.cumsum(batch.num_sampled_edges)
    assert given == list(known[-2::-1])
    assert products == (list(counts[::-1] + known[-2::-1]) if case == "gcn" else [])
    assert edges == {"sage": [torch.sparse_csr] * 3, "gat": [torch.strided] * 3, "gcn": []}[case]
    assert [conv.forward for conv in penstock.trim(model).convs] == forwards
