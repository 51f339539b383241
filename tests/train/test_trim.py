"""A trimmed model gives what it gave before, for the rows that count, with its gradients."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.grad_mode import set_multithreading_enabled
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import trim_to_layer

import penstock
from penstock.kernels import _triton
from penstock.train import trimmed
from tests.train.trimming_cases import CASES, WIDTH, Model, assert_alike, assert_near, hops, make_batch, make_data, of_edges, results

ATTENTION = ["gat", "gatv2", "transformer, plain"]
SOME = 8
"""Batches, of other data every time."""


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


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which dynamo looks at
@pytest.mark.parametrize("case", ["sage", "gcn, weights", *ATTENTION])
def test_under_torch_compile(case, monkeypatch):
    make, names = CASES[case]
    note, is_traced = trimmed.Forward.note, []

    def spied(*args, **kwargs):
        is_traced.append(torch.compiler.is_compiling())
        return note(*args, **kwargs)

    monkeypatch.setattr(trimmed.Forward, "note", spied)
    model = Model(make).double()
    compiled = torch.compile(penstock.trim(copy.deepcopy(model)), backend="eager")
    for conv in [*model.convs, *compiled.convs]:
        conv.dropout = 0.0
    for seed in range(2):
        batch = make_batch(make_data(200 + seed))
        edges = of_edges(names, batch.num_edges)
        assert_alike(results(compiled, batch, edges), results(model, batch, edges))
    assert is_traced, "no look-up"
    assert not any(is_traced), "look-ups are compiled again for the sizes of each batch"


def test_every_layer_that_is_known_is_tried():
    assert {type(make()) for make, _ in CASES.values()} == set(trimmed.KNOWN) - {pyg.HGTConv}  # which takes rows of all types


@pytest.mark.parametrize("case", ["sage", "graph, weights", "gcn, weights", *ATTENTION])
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
    assert_near(found, untrimmed(batch.x, batch.edge_index, *given)[: batch.batch_size])


WAYS = [
    {"pad": True},
    {"disjoint": True},
    {"num_workers": 2},
    {"shared_draws": 2},
    {"replace": True},
    {"layer_wise": True},
    {"walks": penstock.Walks(num=4, length=3)},
]


@pytest.mark.parametrize("options", WAYS, ids=lambda options: next(iter(options)))
def test_batches_of_all_kinds(options):
    model, batch = Model(CASES["gcn"][0]).double(), make_batch(**options)
    whole = results(model, batch)
    assert_alike(results(penstock.trim(model), batch), whole)


@pytest.mark.filterwarnings("ignore:The usage of .scatter:UserWarning")  # of PyG, on a device
@pytest.mark.parametrize("case", ["sage", "sage, max", "graph, weights", "gin", "gcn", "gcn, weights", *ATTENTION])
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


@pytest.mark.parametrize("is_moved", [False, True])
def test_models_that_cut_rows_on_a_device(is_moved, device, monkeypatch):
    """As on the CPU; each layer gets a view of the batch's edges, of which none is compared with others, for which a device waits."""
    where, data, seed = _triton.tensor_device(device), typed_data((200, 60, 30)), int(np.random.default_rng().integers(1 << 30))
    model = CuttingTypes(data)
    model.layers = Typed().layers
    model, options = penstock.trim(model.double()), {"input_nodes": "a", "batch_size": 5, "shuffle": True, "seed": seed}
    batch = next(iter(penstock.NeighborLoader(data, [3, 2, 2], **options)))
    there = device if where.type == "cuda" and not is_moved else None
    there = next(iter(penstock.NeighborLoader(data, [3, 2, 2], device=there, **options))).to(where)
    expected, model = cut_by_itself(model, batch), model.to(where)
    if is_moved:
        cut_by_itself(model, there)  # copies are compared once
    monkeypatch.setattr(torch, "equal", None)
    assert_alike([cut_by_itself(model, there).cpu()], [expected])


@pytest.mark.parametrize(
    "transform", [lambda batch: Data(x=batch.x, edge_index=batch.edge_index), Data.clone], ids=["of edges alone", "of copies"]
)
def test_a_transform_may_leave_out_what_layers_are_cut_by(transform, device):
    """On a device it is in use as long as the edges are, whose batch is gone by then."""
    where = _triton.tensor_device(device)
    there = {"device": device} if where.type == "cuda" else {}
    loader = penstock.NeighborLoader(
        make_data(), [3, 3, 3], batch_size=16, seed=0, num_workers=1, filter_per_worker=True, transform=transform, **there
    )
    model = penstock.trim(Model(CASES["sage"][0]).double()).to(where)
    with torch.no_grad():
        assert all(len(model(batch.x, batch.edge_index)) == 16 for _, batch in zip(range(3), loader, strict=False))


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


class Attentive(nn.Module):
    """Three layers of HGT."""

    def __init__(self, data, make=pyg.HGTConv, sizes=(WIDTH, WIDTH, WIDTH)):
        super().__init__()
        self.layers = nn.ModuleList(make(size, WIDTH, data.metadata(), heads=2) for size in sizes)

    def forward(self, x_dict, edge_index_dict):
        for layer in self.layers:
            x_dict = layer(x_dict, edge_index_dict)
        return x_dict


class MyHGTConv(pyg.HGTConv):
    """A layer of one's own."""


def halved(data):
    """Somebody changes what is sent."""
    model = Attentive(data)
    for layer in model.layers:
        layer.register_message_forward_hook(lambda conv, given, sent: sent / 2)
    return model


MODELS = {
    "HeteroConv": lambda data: Typed(),
    "to_hetero": lambda data: pyg.to_hetero(pyg.GraphSAGE(WIDTH, WIDTH, 3), data.metadata()),
    "hgt": Attentive,
    "hgt, hooks": halved,
    "hgt, mine": partial(Attentive, make=MyHGTConv),
    "hgt, lazy": partial(Attentive, sizes=(-1, WIDTH, -1)),
}


@pytest.mark.parametrize("num_nodes", [(12, 4, 3), (12, 200, 3), (200, 60, 3), (200, 1, 90)])
@pytest.mark.parametrize("kind", MODELS)
def test_typed_graphs(num_nodes, kind):
    """Some of whose types have no more nodes after a hop or two, or none before that."""
    data = typed_data(num_nodes)
    random = np.random.default_rng()
    loader = penstock.NeighborLoader(data, [3, 2, 2], input_nodes="a", batch_size=5, shuffle=True, seed=int(random.integers(1 << 30)))
    batches = list(loader)[:SOME]
    model = MODELS[kind](data).double()
    if "lazy" in kind:
        other = copy.deepcopy(model)
        has_all = next(batch for batch in loader if all(len(rows) for rows in batch.x_dict.values()))  # PyG looks at a row of each type
        model(has_all.x_dict, has_all.edge_index_dict)
        penstock.trim(other)(has_all.x_dict, has_all.edge_index_dict)
        other.load_state_dict(model.state_dict())
    whole = [typed_results(model, batch) for batch in batches]
    model = other if "lazy" in kind else penstock.trim(model, also=[MyHGTConv])
    for batch, wanted in zip(batches, whole, strict=True):
        assert_alike(typed_results(model, batch), wanted)
    assert len(model(batches[0].x_dict, batches[0].edge_index_dict)["a"]) < batches[0]["a"].num_nodes or num_nodes[0] < 20


class CuttingTypes(Attentive):
    """Cuts rows and edges itself, as PyG's documentation has it."""

    def forward(self, x_dict, edge_index_dict, num_sampled_nodes_dict, num_sampled_edges_dict):
        for number, layer in enumerate(self.layers):
            cut = trim_to_layer(number, num_sampled_nodes_dict, num_sampled_edges_dict, x_dict, edge_index_dict)
            x_dict, edge_index_dict, _ = cut
            x_dict = {key: x.tanh() for key, x in layer(x_dict, edge_index_dict).items()}
        return x_dict


class CuttingTypesOfBatch(CuttingTypes):
    """Takes all that it needs from a batch."""

    def forward(self, batch):
        return super().forward(batch.x_dict, batch.edge_index_dict, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict)


@pytest.mark.parametrize("num_nodes", [(12, 4, 3), (12, 200, 3), (200, 60, 3), (200, 1, 90)])
@pytest.mark.parametrize("is_hgt", [False, True])
def test_typed_models_that_cut_rows_themselves(num_nodes, is_hgt):
    """They are called as ever, and give what they gave whole; by themselves they lose edges of types whose hops find no new nodes."""
    data = typed_data(num_nodes)
    whole = (Attentive(data) if is_hgt else Typed()).double()
    model, of_batch = CuttingTypes(data).double(), CuttingTypesOfBatch(data)
    model.layers = whole.layers
    expected, model = copy.deepcopy(whole), penstock.trim(model)
    of_batch.layers = model.layers
    penstock.trim(of_batch)
    seed = int(np.random.default_rng().integers(1 << 30))
    for batch in list(penstock.NeighborLoader(data, [3, 2, 2], input_nodes="a", batch_size=5, shuffle=True, seed=seed))[:SOME]:
        rows = model(batch.x_dict, batch.edge_index_dict, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict)["a"]
        x = batch.x_dict
        for layer in expected.layers:
            x = {key: rows_of.tanh() for key, rows_of in layer(x, batch.edge_index_dict).items()}
        assert_alike([rows[: batch["a"].batch_size]], [x["a"][: batch["a"].batch_size]])
        assert torch.equal(of_batch(batch)["a"], rows)


@pytest.mark.parametrize("kind", ["hgt, lazy", "hgt, mine, lazy"])
def test_a_lazy_layer_of_types_without_rows(kind):
    """As behind a hop that found none of them."""
    make, batches = MyHGTConv if "mine" in kind else pyg.HGTConv, []
    while not batches:
        data = typed_data((200, 1, 90))
        loader = penstock.NeighborLoader(data, [3, 2, 2], input_nodes="a", batch_size=5)
        batches = [batch for batch in loader if 0 in [sum(counts[:2]) for counts in batch.num_sampled_nodes_dict.values()]]
    lazy, batch = Attentive(data, make, (-1, -1, -1)).double(), batches[0]
    penstock.trim(lazy, also=[MyHGTConv])(batch.x_dict, batch.edge_index_dict)
    assert [each.shape for each in lazy.parameters()] == [each.shape for each in Attentive(data, make).parameters()]


def cut_by_itself(model, batch):
    """The rows of the seeds, by a model that cuts rows."""
    with torch.no_grad():
        rows = model(batch.x_dict, batch.edge_index_dict, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict)
    return rows["a"][: batch["a"].batch_size]


def typed_data(num_nodes):
    """A graph of three types, with so many nodes."""
    random = np.random.default_rng()
    data = HeteroData()
    for node_type, count in zip("abc", num_nodes, strict=True):
        data[node_type].x = torch.from_numpy(random.normal(size=(count, WIDTH)))
    for edge_type, count in zip(TYPES, (90, 300, 400, 100, 20), strict=True):
        ends = [random.integers(0, data[edge_type[at]].num_nodes, count) for at in (0, 2)]
        data[edge_type].edge_index = torch.from_numpy(np.stack(ends))
    return data


def typed_results(model, batch):
    """Zeros for gradients that are none: a relation without edges that count may get none."""
    model.zero_grad()
    rows = model(batch.x_dict, batch.edge_index_dict)["a"][: batch["a"].batch_size]
    rows.square().sum().backward()
    return [rows.detach(), *(torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters())]


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
        assert_near(penstock.trim(model)(batch.x, batch.edge_index), whole)


@pytest.mark.parametrize("case", ["sage", "gcn", *ATTENTION])
def test_what_is_computed_is_what_is_read(case, monkeypatch):
    """The rows that layers give are the nodes known a hop before, last hop first; sums go over the edges of these hops, where there is
    one by a product of matrices; and nothing is wrapped twice."""
    model, batch = Model(CASES[case][0]).double(), make_batch()
    given, edges, products, attended = [], [], [], []
    forwards = [conv.forward for conv in penstock.trim(model).convs]
    for conv in penstock.trim(model).convs:
        conv.register_forward_hook(lambda _, __, rows: given.append(len(rows)))
        multiply, send = trimmed.product, conv.propagate
        monkeypatch.setattr(conv, "propagate", lambda e, send=send, **more: edges.append(e.layout) or send(e, **more))
    monkeypatch.setattr(trimmed, "product", lambda adj_t, x: products.append(adj_t._nnz()) or multiply(adj_t, x))
    for kind, attend in trimmed.OF_ATTENTION.items():
        seen = lambda conv, x, e, size, attend=attend: attended.append((e.size(1), *size)) or attend(conv, x, e, size)  # noqa: E731
        monkeypatch.setitem(trimmed.OF_ATTENTION, kind, seen)
    model(batch.x, batch.edge_index)
    known, counts = np.cumsum(batch.num_sampled_nodes), np.cumsum(batch.num_sampled_edges)
    assert given == list(known[-2::-1])
    assert products == (list(counts[::-1] + known[-2::-1]) if case == "gcn" else [])
    assert attended == (list(zip(counts[::-1], known[:0:-1], known[-2::-1], strict=True)) if case in ATTENTION else [])
    assert edges == ([torch.sparse_csr] * 3 if case == "sage" else [])
    assert [conv.forward for conv in penstock.trim(model).convs] == forwards


@pytest.mark.parametrize("kind", [*ATTENTION, "hgt"])
def test_edges_in_many_pieces(kind, monkeypatch):
    monkeypatch.setattr("penstock.train.attention._PIECE_BYTES", 1000)
    if kind == "hgt":
        test_typed_graphs((200, 60, 30), kind)
    else:
        test_rows_and_gradients_are_those_of_the_whole_batch(kind)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_gradients(case):
    """As of a Hessian, or of a penalty; also where they are asked of weights alone, so that what cannot be told need not be looked at."""
    make, names = CASES[case]
    model, batch = Model(make).double().eval(), make_batch()
    edges = of_edges(names, batch.num_edges)

    def second():
        rows = batch.x.clone().requires_grad_()
        out = model(rows, batch.edge_index, *edges)[: batch.batch_size].square().sum()
        (of_rows,) = torch.autograd.grad(out, rows, create_graph=True)
        weights = [each for each in model.parameters() if each.requires_grad]
        return torch.autograd.grad(of_rows.square().sum(), weights, allow_unused=True, materialize_grads=True)

    whole = second()
    penstock.trim(model)
    for conv in model.convs:
        conv.fuse &= conv.aggr != "mean"  # torch has no second gradients of its means, and says so
    assert_alike(second(), whole)


def test_gradients_of_gradients_of_hgt():
    data = typed_data((200, 60, 30))
    (batch, *_) = penstock.NeighborLoader(data, [3, 2, 2], input_nodes="a", batch_size=5, shuffle=True)
    model = Attentive(data).double()

    def second():
        rows = {t: x.clone().requires_grad_() for t, x in batch.x_dict.items()}
        out = model(rows, batch.edge_index_dict)["a"][:5].square().sum()
        of_rows = torch.autograd.grad(out, list(rows.values()), create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in of_rows), list(model.parameters()), materialize_grads=True)

    whole = second()
    penstock.trim(model)
    assert_alike(second(), whole)


@pytest.mark.parametrize("case", ["sage", "graph, weights", "gin", "gcn", "gat", "gat, no loops", "gatv2", "transformer, plain"])
def test_transforms_of_torch_func(case):
    make, names = CASES[case]
    model, batch = Model(make).double().eval(), make_batch()
    edges, weights = of_edges(names, batch.num_edges), {name: each.detach() for name, each in model.named_parameters()}

    def loss(weights, factor):
        given = {name: each * factor for name, each in weights.items()}
        return torch.func.functional_call(model, given, (batch.x, batch.edge_index, *edges))[: batch.batch_size].square().sum()

    def transformed():
        one, two = torch.tensor(1.0).double(), torch.tensor([1.0, 0.5]).double()
        gradients = torch.func.grad(loss)(weights, one).values()
        return [
            *gradients,
            *torch.func.jvp(lambda factor: loss(weights, factor), (one,), (one,)),
            torch.func.vmap(loss, (None, 0))(weights, two),
        ]

    whole = transformed()
    penstock.trim(model)
    assert_alike(transformed(), whole)


def clone(module):
    """Another module with the same `forward`, whose weights depend on the first one's, as libraries for MAML make it."""
    other = object.__new__(type(module))
    other.__dict__ = module.__dict__.copy()
    other._parameters = {name: None if each is None else each * 2 for name, each in module._parameters.items()}
    other._modules = {name: clone(each) for name, each in module._modules.items()}
    return other


@pytest.mark.parametrize("case", ["sage", "gcn, weights", "gat", "gatv2", "agnn", "pna"])
def test_copies_that_share_a_forward(case):
    make, names = CASES[case]
    model, batch = Model(make).double().eval(), make_batch()
    edges = of_edges(names, batch.num_edges)
    whole = [
        clone(model)(batch.x, batch.edge_index, *edges)[: batch.batch_size],
        model(batch.x, batch.edge_index, *edges)[: batch.batch_size],
    ]
    penstock.trim(model)
    found = [each(batch.x, batch.edge_index, *edges) for each in (clone(model), model)]
    assert_alike(found, whole)
    assert not torch.equal(*found)
    assert_alike(model.forward(batch.x, batch.edge_index, *edges), whole[1])


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_is_for_any_batch():
    model, batch, other = Model(CASES["sage"][0]).double().eval(), make_batch(), make_batch(make_data(80))
    whole = model(other.x, other.edge_index)
    traced = torch.jit.trace(penstock.trim(model), (batch.x, batch.edge_index))
    torch.testing.assert_close(traced(other.x, other.edge_index), whole)
