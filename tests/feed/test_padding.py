"""Batches whose hops are filled up: what was sampled is in them, bit for bit, nothing that is added reaches it, and sizes are few."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, SAGEConv
from torch_geometric.utils import trim_to_layer

import penstock
from penstock.errors import StateError
from penstock.feed import Padding
from penstock.feed.subgraph import Subgraph, SubgraphEdges
from penstock.plan import Plan
from tests.feed.inputs import digests, homogeneous_data, typed_data
from tests.padding import without_padding

OPTIONS = dict(num_neighbors=[4, 3], batch_size=25, shuffle=True, seed=3)


def make_loader(data, **options):
    seeds = data.train_mask if isinstance(data, Data) else ("paper", "train")
    return penstock.NeighborLoader(data, **{**OPTIONS, "input_nodes": seeds, **options})


def assert_is(padded, plain):
    assert penstock.digest(without_padding(padded)) == penstock.digest(plain)


def sizes_of(batch):
    return [(store._key, name, value.shape) for store in batch.stores for name, value in store.items() if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("data", [homogeneous_data(), typed_data()], ids=["homogeneous", "typed"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        {"replace": True},
        {"disjoint": True},
        {"plan": Plan(policy="lru", cache="40 rows")},
        {"plan": Plan(policy="belady", cache="40 rows", window=3)},
        {"num_neighbors": [-1, 2, 1]},
    ],
)
def test_a_padded_batch_is_the_batch(data, options):
    options = {**options, "drop_last": True}
    padded, plain = make_loader(data, pad=True, **options), make_loader(data, **options)
    shapes = set()
    for got, expected in zip(padded, plain, strict=True):
        shapes.add(str(sizes_of(got)))
        assert_is(got, expected)
    stats = padded.stats()
    assert len(shapes) == len(stats.padding_steps) <= 2
    assert sum(stats.padding_steps.values()) == len(padded)
    assert (stats.num_nodes, stats.num_edges, stats.gathered_bytes) == (
        plain.stats().num_nodes, plain.stats().num_edges, plain.stats().gathered_bytes,
    )  # fmt: skip
    assert stats.padding_nodes > 0


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(device_topology="host"),
        Plan(device_policy="presample", device_cache="20 rows"),
        Plan(device_policy="fifo", device_cache="40 rows"),
        Plan(device_policy="clock", device_cache="40 rows"),
    ],
    ids=["drawn there", "drawn here", "presample", "fifo", "clock"],
)
def test_the_same_on_a_device(plan, device):
    for data in (homogeneous_data(), typed_data()):
        some = torch.arange(50) if isinstance(data, Data) else ("paper", torch.arange(50))
        expected = digests(make_loader(data, pad=True, input_nodes=some))
        assert digests(make_loader(data, pad=True, input_nodes=some, device=device, plan=plan, num_workers=2)) == expected


class Sage(torch.nn.Module):
    def __init__(self, conv=SAGEConv):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = conv(2, 8), conv(8, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)

    def trimmed(self, batch):
        x, edge_index, (nodes, edges) = batch.x, batch.edge_index, (batch.num_sampled_nodes, batch.num_sampled_edges)
        for number, conv in enumerate((self.first, self.second)):
            x, edge_index, _ = trim_to_layer(number, nodes, edges, x, edge_index)
            x = conv(x, edge_index) if number else conv(x, edge_index).relu()
        return x

    def cut(self, batch):
        first, second = penstock.layers(batch)
        x = self.first((batch.x, batch.x[: first.num_dst]), first.edge_index).relu()
        return self.second((x, x[: second.num_dst]), second.edge_index)


@pytest.mark.parametrize("conv", [SAGEConv, GATConv])
def test_what_a_model_computes_of_the_seeds_is_the_same(conv):
    model, data = Sage(conv), homogeneous_data()
    for padded, plain in zip(make_loader(data, pad=True), make_loader(data), strict=True):
        num = plain.batch_size
        expected = model(plain.x, plain.edge_index)[:num]
        for got in (model(padded.x, padded.edge_index), model.trimmed(padded), model.cut(padded)):
            torch.testing.assert_close(got[: padded.batch_size], expected, rtol=1e-5, atol=1e-3)


def test_a_compiled_model_is_compiled_once():
    def count(pad):
        compiled = []

        def backend(graph, inputs):
            compiled.append(graph)
            return graph

        torch._dynamo.reset()
        model = torch.compile(Sage(), backend=backend, dynamic=False)
        for batch in make_loader(homogeneous_data(), pad=pad, drop_last=True):
            model(batch.x, batch.edge_index)
        return len(compiled)

    assert count(True) == 1
    assert count(False) > 1


def test_larger_batches_have_the_next_sizes():
    data = homogeneous_data()
    small = Padding({"node": (26, 30, 30)}, {("node", "to", "node"): (20, 60)})
    loader = make_loader(data, pad=small)
    for got, expected in zip(loader, make_loader(data), strict=True):
        sizes = got.num_sampled_nodes + got.num_sampled_edges
        assert_is(got, expected)
        steps = [size / given for size, given in zip(sizes, (26, 30, 30, 20, 60), strict=True)]
        assert min(steps) > 1.25
    assert min(loader.stats().padding_steps) > 1


def test_which_sizes_a_batch_has():
    """Those that it has room in: with a node more in each hop, and just as many edges."""
    padding = Padding({"node": (10, 20)}, {("node", "to", "node"): (30,)})

    def fit(nodes, edges):
        step, hops = padding.fit(
            Subgraph({}, {("node", "to", "node"): SubgraphEdges(None, None, None, None, [edges])}, {"node": nodes}, None)
        )
        return step, [hops["node"][:, 1].tolist(), hops["node", "to", "node"][:, 1].tolist()]

    assert fit([9, 19], 30) == (0, [[10, 20], [30]])
    assert fit([10, 0], 0) == (1, [[13, 25], [38]])
    assert fit([0, 0], 31) == (1, [[13, 25], [38]])
    assert fit([0, 26], 0) == (2, [[16, 32], [47]])
    assert fit([0, 32], 0) == (3, [[20, 40], [59]])


def test_measured_sizes_have_room():
    """Also where an epoch has few batches: those of others are measured then."""
    loader = make_loader(typed_data(), pad=True, batch_size=100)
    assert len(loader) == 2
    for _ in range(6):
        for _ in loader:
            pass
    assert loader.stats().padding_steps == {0: 12}


def test_what_is_counted():
    loader, nodes, edges = make_loader(typed_data(), pad=True), 0, 0
    for batch in loader:
        nodes += sum(int((~store.pad_node_mask).sum()) for store in batch.node_stores)
        edges += sum(int((~store.pad_edge_mask).sum()) for store in batch.edge_stores)
    assert (loader.stats().padding_nodes, loader.stats().padding_edges) == (nodes, edges)


def test_a_loader_beside_of_another_type_has_sizes_of_its_own():
    loader = make_loader(typed_data(), pad=True)
    beside = loader.beside("author")
    assert beside.padding != loader.padding
    for got, expected in zip(beside, make_loader(typed_data()).beside("author"), strict=True):
        assert_is(got, expected)


def test_models_that_divide_by_what_a_zero_has_none_of():
    def train(pad):
        torch.manual_seed(0)
        first, second = torch.nn.Linear(2, 8, bias=False), SAGEConv(8, 7)
        for batch in make_loader(homogeneous_data(), pad=pad):
            x = first(batch.x + 1)
            logits = second(x / x.norm(dim=1, keepdim=True), batch.edge_index)[: batch.batch_size]
            torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size]).backward()
        return first.weight.grad

    torch.testing.assert_close(train(True), train(False))


def test_fields_along_another_dimension():
    data = homogeneous_data()
    data.across_edges = torch.arange(2 * 3000.0).view(2, 3000)  # PyG cuts what is named so along the last one, as an adjacency
    data.edge_across_index = torch.arange(2 * 3000).view(2, 3000)
    plain = next(iter(make_loader(data)))
    padded = next(iter(make_loader(data, pad=True)))
    assert torch.equal(padded.edge_across_index[:, padded.pad_edge_mask], plain.edge_across_index)


def test_a_budget_counts_what_is_added(tmp_path):
    store = penstock.ingest(homogeneous_data(), tmp_path / "store")
    large = Padding({"node": (2000, 2000, 2000)}, {("node", "to", "node"): (50, 300)})
    options = dict(num_neighbors=[4, 3], input_nodes=None, batch_size=25, plan=Plan(host_memory="2GiB"))
    plain, padded = (penstock.NeighborLoader(store, pad=pad, **options).engine.caches.fitted for pad in (False, large))
    assert padded.batch_bytes > 20 * plain.batch_bytes


def test_sizes_of_one_loader_are_given_to_another():
    data = homogeneous_data()
    loader = make_loader(data, pad=True)
    other = make_loader(data, input_nodes=torch.arange(100, 200), shuffle=False, sampler=range(99, -1, -1), pad=loader.padding)
    assert other.padding == loader.padding
    assert sizes_of(next(iter(other))) == sizes_of(next(iter(loader)))
    beside = loader.beside(torch.arange(100))
    assert sizes_of(next(iter(beside))) == sizes_of(next(iter(loader)))


def test_states_know_the_sizes():
    data = homogeneous_data()
    loader = make_loader(data, pad=True)
    whole, again = digests(loader), make_loader(data, pad=True, num_workers=2)
    iterator = iter(again)
    for _ in range(2):
        next(iterator)
    resumed = make_loader(data, pad=True)
    resumed.load_state_dict(again.state_dict())
    assert digests(resumed) == whole[2:]
    with pytest.raises(StateError, match="padding"):
        make_loader(data).load_state_dict(loader.state_dict())
    for more in ({"num_nodes": {"node": (99, 99, 99)}}, {"num_edges": {("node", "to", "node"): (99, 99)}}):
        with pytest.raises(StateError, match="padding"):
            make_loader(data, pad=replace(loader.padding, **more)).load_state_dict(loader.state_dict())


def test_links():
    data = homogeneous_data()
    options = dict(
        num_neighbors=[4, 3], batch_size=40, neg_sampling="binary", exclude_links="self", seed=2, edge_label_index=data.edge_index[:, :400]
    )
    loader = penstock.LinkNeighborLoader(data, pad=True, **options)
    for got, expected in zip(loader, penstock.LinkNeighborLoader(data, **options), strict=True):
        assert torch.equal(got.edge_label_index, expected.edge_label_index)
        assert got.num_excluded_edges == expected.num_excluded_edges
        assert_is(got, expected)


def test_within_a_budget(tmp_path):
    store = penstock.ingest(homogeneous_data(), tmp_path / "store")
    plan = Plan(host_memory="2GiB")
    options = dict(num_neighbors=[4, 3], input_nodes=None, batch_size=25, shuffle=True, seed=3, plan=plan)
    for got, expected in zip(penstock.NeighborLoader(store, pad=True, **options), penstock.NeighborLoader(store, **options), strict=True):
        assert_is(got, expected)
