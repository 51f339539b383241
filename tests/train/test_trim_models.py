"""Models and edges as users have them: what is trimmed, what is left as it is, and what both have in common."""

import copy
import gc
import logging
import pickle
import weakref

import numpy as np
import pytest
import torch
import torch_geometric
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import trim_to_layer

import penstock
from penstock.errors import MissingFieldError, UsageError
from penstock.feed.layers import hops_of
from penstock.train import trimmed
from penstock.train.trimming import _leave_uncut
from tests.train.trimming_cases import CASES, WIDTH, Model, assert_alike, hops, make_batch, make_data, of_edges, results


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
    assert (
        [message for message in caplog.messages if "edges that no loader of Penstock sorted" in message]
        == caplog.messages[:1]
        == caplog.messages
    )


def test_batches_that_have_no_hops_are_computed_whole():
    model, batch = penstock.trim(Model(CASES["sage"][0]).double()), make_batch(subgraph_type="induced")
    with pytest.raises(MissingFieldError):
        penstock.layers(batch)
    assert len(model(batch.x, batch.edge_index)) == batch.num_nodes


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


def test_batches_without_edges():
    """Two are equal, and have other nodes."""
    lone = Data(x=torch.rand(9, WIDTH).double(), edge_index=torch.empty(2, 0, dtype=torch.int64))
    batches, model = [make_batch(lone, batch_size=size) for size in (2, 3)], Model(CASES["sage"][0]).double()
    whole = [model(batch.x, batch.edge_index) for batch in batches]
    penstock.trim(model)
    for batch, rows in zip(batches, whole, strict=True):
        torch.testing.assert_close(model(batch.x, batch.edge_index.clone()), rows)


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


class Cutting(Model):
    """Cuts rows and edges itself, as PyG's documentation has it."""

    def forward(self, x, edge_index, num_nodes, num_edges, *edges):
        values = edges[0] if edges else None
        for number, conv in enumerate(self.convs):
            x, edge_index, values = trim_to_layer(number, num_nodes, num_edges, x, edge_index, values)
            x = conv(x, edge_index, *([] if values is None else [values])).tanh()
        return x


@pytest.mark.parametrize("num_neighbors", [(4, 3, 2), (1, 1, 8)])
@pytest.mark.parametrize("case", ["sage", "sage, max", "graph, weights", "gine", "gat", "gatv2, attributes", "transformer", "pna"])
def test_models_that_cut_rows_themselves(case, num_neighbors):
    """They are called as ever; each layer gives no more rows than are read, and nothing is compared."""
    make, names = CASES[case]
    model, batch = Cutting(make).double(), make_batch(make_data(3000, 30_000), num_neighbors)
    edges = [batch.num_sampled_nodes, batch.num_sampled_edges, *of_edges(names, batch.num_edges)]
    given = copy.deepcopy(edges[:2])
    for conv in model.convs:
        conv.dropout = 0.0
    whole = results(model, batch, edges)
    assert len(model(batch.x, batch.edge_index, *edges)) > batch.batch_size
    penstock.trim(penstock.trim(model))
    assert_alike(results(model, batch, edges), whole)
    assert len(model(batch.x, batch.edge_index, *edges)) == batch.batch_size
    assert edges[:2] == given
    moved = batch.clone()
    assert_alike(results(model, moved, edges), whole)


@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GAT, pyg.GIN])
@pytest.mark.parametrize("by_name", [True, False])
def test_models_of_pyg_that_cut_rows_themselves(kind, by_name):
    model, batch = kind(WIDTH, 8, 3, 2).double(), make_batch(make_data(3000, 30_000))
    cut = {"num_sampled_nodes_per_hop": batch.num_sampled_nodes, "num_sampled_edges_per_hop": batch.num_sampled_edges}
    forward = (
        (lambda x, edges: model(x, edges, **cut)) if by_name else lambda x, edges: model(x, edges, None, None, None, None, *cut.values())
    )
    whole = forward(batch.x, batch.edge_index)
    assert len(whole) > batch.batch_size
    penstock.trim(model)
    found = forward(batch.x, batch.edge_index)
    assert len(found) == batch.batch_size
    assert_alike([found], [whole[: batch.batch_size]])


def test_ways_to_name_what_cuts_rows():
    def in_a_closure():
        from torch_geometric.utils import trim_to_layer as cut

        class Model(Cutting):
            def forward(self, x, edge_index, num_nodes, num_edges):
                for number, conv in enumerate(self.convs):
                    x, edge_index, _ = cut(number, num_nodes, num_edges, x, edge_index)
                    x = conv(x, edge_index)
                return x

        return Model

    class InAMethod(Model):
        def cut(self, number, *given):
            return torch_geometric.utils.trim_to_layer(number, *given)

        @torch.no_grad()
        def forward(self, x, edge_index, num_nodes, num_edges):
            for number, conv in enumerate(self.convs):
                x, edge_index, _ = self.cut(number, num_nodes, num_edges, x, edge_index)
                x = conv(x, edge_index)
            return x

    class InAFunctionWithin(Model):
        def forward(self, x, edge_index, num_nodes, num_edges):
            def step(number, x, edge_index):
                x, edge_index, _ = trim_to_layer(number, num_nodes, num_edges, x, edge_index)
                return self.convs[number](x, edge_index), edge_index

            for number in range(3):
                x, edge_index = step(number, x, edge_index)
            return x

    class Static(InAMethod):
        @staticmethod
        def cut(*given):
            return trim_to_layer(*given)

    class ByAFunction(Model):
        def forward(self, x, edge_index, num_nodes, num_edges):
            for number, conv in enumerate(self.convs):
                x, edge_index = _cut_by_hand(number, num_nodes, num_edges, x, edge_index)
                x = conv(x, edge_index)
            return x

    batch = make_batch()
    for kind in (in_a_closure(), InAMethod, InAFunctionWithin, Static, ByAFunction):
        model = kind(CASES["sage"][0]).double()
        whole = model(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
        found = penstock.trim(model)(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
        assert len(found) == batch.batch_size
        assert_alike([found], [whole[: batch.batch_size]])


def _cut_by_hand(*given):
    return trim_to_layer(*given)[:2]


_of_no_module = eval("lambda rows: rows", {"__name__": None})


def test_functions_that_are_of_no_module():
    """As of a notebook, or written by a program."""

    class Calling(Model):
        def forward(self, x, edge_index):
            return _of_no_module(super().forward(x, edge_index))

    batch = make_batch()
    assert len(penstock.trim(Calling(CASES["sage"][0]).double())(batch.x, batch.edge_index)) == batch.batch_size


def test_only_counts_of_a_batch_are_altered():
    """A list that the model fills is the caller's, and another list of whole numbers is what it was."""

    class Telling(Cutting):
        def forward(self, x, edge_index, num_nodes, num_edges, widths, rows, by_layer):
            x = super().forward(x, edge_index, num_nodes, num_edges)
            rows.append(x)
            by_layer["last"] = x
            return x * sum(widths)

    model, batch, told = Telling(CASES["sage"][0]).double(), make_batch(), ([], {})
    given = [batch.num_sampled_nodes, batch.num_sampled_edges, [1, 2, 3], *told]
    whole = results(model, batch, given)
    assert_alike(results(penstock.trim(model), batch, given), whole)
    assert [len(rows) for rows in told[0]] == [len(told[0][0]), batch.batch_size]
    assert told[1]["last"] is told[0][1]


def test_functions_of_the_edges():
    """`torch.func` wraps what a function is given, and that has no memory of its own."""
    model, batch = Model(CASES["sage"][0]).double(), make_batch()

    def loss(x, edges):
        return model(x, edges)[: batch.batch_size].square().sum()

    whole = torch.func.grad(loss)(batch.x, batch.edge_index)
    penstock.trim(model)
    assert_alike([torch.func.grad(loss)(batch.x, batch.edge_index)], [whole])


@pytest.mark.parametrize("is_numpy", [True, False])
def test_memory_that_is_used_again(is_numpy):
    """What was read there before is another batch's."""
    data = Data(x=torch.rand(8, WIDTH), edge_index=torch.tensor([[2, 2, 6, 7], [0, 1, 4, 5]]))
    batches = [make_batch(data, (1,), input_nodes=seeds, batch_size=2, shuffle=False) for seeds in ([0, 1], [4, 5])]
    assert [batch.num_sampled_nodes for batch in batches] == [[2, 1], [2, 2]]
    memory, kept = torch.empty(2, 2, dtype=torch.int64), []
    for batch in batches:
        if is_numpy:
            memory.numpy()[:] = batch.edge_index.numpy()
            kept.append(torch.from_numpy(memory.numpy()))
        else:
            kept.append(memory[:])
            kept[-1].copy_(batch.edge_index)
        assert hops(batch, kept[-1]).num_src == hops(batch, batch.edge_index).num_src


class CuttingTypes(nn.Module):
    """As PyG's example `hierarchical_sage`."""

    def __init__(self, edge_types):
        super().__init__()
        self.convs = nn.ModuleList(pyg.HeteroConv({e: pyg.SAGEConv(WIDTH, WIDTH) for e in edge_types}) for _ in range(2))

    def forward(self, x_dict, edge_index_dict, num_nodes, num_edges):
        for number, conv in enumerate(self.convs):
            x_dict, edge_index_dict, _ = trim_to_layer(number, num_nodes, num_edges, x_dict, edge_index_dict)
            x_dict = {key: x.tanh() for key, x in conv(x_dict, edge_index_dict).items()}
        return x_dict["a"]


def test_types_without_edges_in_some_batches():
    """A part of no edges is known by its memory, not by its numbers, which parts of other batches have, too."""
    random, data = torch.Generator().manual_seed(1), HeteroData()
    for node_type in "abc":
        data[node_type].x = torch.rand(40, WIDTH, generator=random).double()
    for edge_type in ["ab", "ba", "cc"]:
        data[edge_type[0], "to", edge_type[1]].edge_index = torch.randint(0, 40, (2, 8), generator=random)
    data["a", "no", "b"].edge_index = data["b", "no", "a"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    model = CuttingTypes(data.edge_types).double()
    batches = list(penstock.NeighborLoader(data, [1, 1], input_nodes="a", batch_size=2, seed=1))
    given = [(b.x_dict, b.edge_index_dict, b.num_sampled_nodes_dict, b.num_sampled_edges_dict) for b in batches]
    whole = [model(*each)[:2] for each in given]
    penstock.trim(model)
    for each, rows in zip(given, whole, strict=True):
        torch.testing.assert_close(model(*each)[:2], rows)


def test_edges_that_are_cut_need_no_second_look(monkeypatch):
    """Each layer is given another view of the edges: of the same memory, so that numbers need not be compared, for which a device waits."""
    compared = []
    monkeypatch.setattr(torch, "equal", lambda *both: compared.append(both) or True)
    model, batch = penstock.trim(Cutting(CASES["sage"][0]).double()), make_batch()
    cut = [batch.num_sampled_nodes, batch.num_sampled_edges]
    model(batch.x, batch.edge_index, *cut)
    assert not compared
    model(batch.x, batch.edge_index.clone(), *cut)
    assert len(compared) == 1


class OfBatch(Cutting):
    """Takes all that it needs from a batch."""

    def forward(self, batch):
        return super().forward(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)


@pytest.mark.parametrize("num_neighbors", [(4, 3, 2), (1, 1, 8)])
def test_models_that_cut_rows_of_a_batch(num_neighbors):
    model, batch = OfBatch(CASES["sage"][0]).double(), make_batch(make_data(3000, 30_000), num_neighbors)
    counts = batch.num_sampled_nodes, batch.num_sampled_edges
    given, whole = copy.deepcopy(counts), model(batch)
    penstock.trim(model)
    for _ in range(2):
        assert_alike([model(batch)], [whole[: batch.batch_size]])
    assert (batch.num_sampled_nodes, batch.num_sampled_edges) == given
    assert batch.num_sampled_nodes is counts[0]
    del batch.num_sampled_nodes, batch.num_sampled_edges
    (same,), _ = _leave_uncut(model, (batch,), {})
    assert same is batch


@pytest.mark.parametrize("num_neighbors", [(4, 3, 2), (1, 1, 8)], ids=["edges without rows", "fewer rows than are cut"])
def test_rows_are_not_cut_twice(num_neighbors):
    """By numbers that a model finds elsewhere: the error says so."""

    class Elsewhere(Cutting):
        def forward(self, batch):
            return super().forward(batch["of"].x, batch["of"].edge_index, batch["of"].num_sampled_nodes, batch["of"].num_sampled_edges)

    model, batch = Elsewhere(CASES["sage"][0]).double(), {"of": make_batch(make_data(3000, 30_000), num_neighbors)}
    model(batch)
    with pytest.raises((IndexError, RuntimeError)) as caught:
        penstock.trim(model)(batch)
    assert "do not cut rows a second time, but by trim_to_layer with lists that" in caught.value.__notes__[0]


@pytest.mark.parametrize("case", ["sage", "sage, max", "graph, weights", "gine", "gat", "gatv2, attributes", "transformer, plain", "edge"])
@pytest.mark.parametrize("num_neighbors", [(-1,), (4, 3, 2)])
def test_destinations_that_are_the_seeds_alone(case, num_neighbors):
    """As where a model over all nodes is computed layer by layer."""
    make, names = CASES[case]
    conv, batch = make().double(), make_batch(num_neighbors=num_neighbors)
    edges = of_edges(names, batch.num_edges)
    given, into_seeds = (batch.x, batch.x[: batch.batch_size]), penstock.layers(batch)[-1].edge_index
    whole = conv(given, into_seeds, *(each[: into_seeds.shape[1]] for each in edges))
    assert_alike([penstock.trim(conv)(given, batch.edge_index, *edges)], [whole])
    assert len(whole) == batch.batch_size


class OneSided(nn.Module):
    """Nodes of type "b" have no features: the first layer computes their rows from those of "a" alone."""

    def __init__(self, make):
        super().__init__()
        first, later = TYPES[:2], TYPES
        self.layers = nn.ModuleList(pyg.HeteroConv({key: make() for key in types}) for types in (first, later, later))

    def forward(self, x_dict, edge_index_dict):
        for layer in self.layers:
            x_dict = {key: x.tanh() for key, x in layer(x_dict, edge_index_dict).items()}
        return x_dict


TYPES = [("a", "likes", "a"), ("a", "to", "b"), ("b", "to", "a")]


@pytest.mark.parametrize("case", ["sage", "sage, max", "graph", "gin"])
def test_destinations_without_rows(case):
    data, random = HeteroData(), np.random.default_rng()
    sizes = {"a": 300, "b": 15}
    data["a"].x, data["b"].num_nodes = torch.from_numpy(random.normal(size=(sizes["a"], WIDTH))), sizes["b"]
    for edge_type in TYPES:
        data[edge_type].edge_index = torch.from_numpy(np.stack([random.integers(0, sizes[edge_type[at]], 900) for at in (0, 2)]))
    batch, model = make_batch(data, input_nodes="a"), OneSided(CASES[case][0]).double()
    whole = model({"a": batch["a"].x}, batch.edge_index_dict)["a"][: batch["a"].batch_size]
    for edges in (batch.edge_index_dict, {key: each.clone() for key, each in batch.edge_index_dict.items()}):
        found = penstock.trim(model)({"a": batch["a"].x}, edges)["a"]
        assert_alike([found], [whole])
    with pytest.raises(UsageError, match="more layers than the 3 hops"):
        model.layers[0]({"a": batch["a"].x[: batch["a"].batch_size]}, batch.edge_index_dict)


@pytest.mark.parametrize("case", ["sage", "gcn", "gat"])
@pytest.mark.parametrize("name", trimmed.HOOKS[:3])
def test_hooks_of_layers_are_called(case, name):
    model, batch = Model(CASES[case][0]).double(), make_batch()
    for conv in model.convs:
        getattr(conv, f"register_{name}_forward_hook")(lambda _, __, rows: rows * 0.5)
    whole = results(model, batch)
    assert_alike(results(penstock.trim(model), batch), whole)


def test_parts_of_layers_may_be_others():
    """A map of GCN's that is not linear; another aggregation; weights that are computed, for which a layer gets another class; other
    messages."""
    models = [Model(CASES[case][0]).double() for case in ("gcn", "sage", "gcn", "gat", "sage")]
    for convs in zip(*(model.convs for model in models), strict=True):
        convs[0].lin = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double()
        convs[1].aggr_module = pyg.SoftmaxAggregation()
        convs[3].message = lambda x_j, alpha: -alpha.unsqueeze(-1) * x_j
        convs[4].message = lambda x_j: 2 * x_j
    batch = make_batch()
    whole = [results(model, batch) for model in models]
    for model, wanted in zip(models, whole, strict=True):
        penstock.trim(model)
        if model is models[2]:
            for conv in model.convs:
                nn.utils.parametrize.register_parametrization(conv, "bias", nn.Identity())
        torch.testing.assert_close(results(model, batch)[0], wanted[0])


def test_weights_of_another_width_and_sizes_that_are_said():
    model, batch = Model(CASES["graph"][0]).double(), make_batch()
    weights, size = torch.rand(batch.num_edges), (batch.num_nodes, batch.num_nodes)
    whole = results(model, batch, [weights, size])
    assert_alike(results(penstock.trim(model), batch, [weights, size]), whole)


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


@pytest.mark.parametrize("num_hops", [1, 2, 3])
def test_more_layers_than_hops_of_a_graph_of_two_types(num_hops):
    """Each hop finds new nodes of one type only, so that numbers of rows fit several hops."""
    random = torch.Generator().manual_seed(0)
    data, edges = HeteroData(), torch.randint(0, 300, (2, 3000), generator=random)
    data["user"].x, data["item"].x = torch.rand(300, 4, generator=random), torch.rand(300, 4, generator=random)
    data["user", "buys", "item"].edge_index, data["item", "of", "user"].edge_index = edges, edges.flip(0)
    batch = next(iter(penstock.NeighborLoader(data, [3] * num_hops, "user", batch_size=9, shuffle=True, seed=1)))

    class Layers(nn.Module):
        def __init__(self, num_layers):
            super().__init__()
            self.convs = nn.ModuleList(pyg.HeteroConv({e: pyg.SAGEConv(4, 4) for e in data.edge_types}) for _ in range(num_layers))

        def forward(self, x_dict, edge_index_dict):
            for conv in self.convs:
                x_dict = {t: rows.tanh() for t, rows in conv(x_dict, edge_index_dict).items()}
            return x_dict["user"]

    for num_layers in range(1, num_hops + 3):
        model = Layers(num_layers)
        given, expected = (batch.x_dict, batch.edge_index_dict), model(batch.x_dict, batch.edge_index_dict)[:9]
        model = penstock.trim(model)
        if num_layers > num_hops:
            with pytest.raises(UsageError, match=f"more layers than the {num_hops} hops"):
                model(*given)
            continue
        torch.testing.assert_close(model(*given)[:9], expected)
