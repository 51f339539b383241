"""Models fed layer by layer equal the same PyG layers over the whole graph, and so does layer-wise inference."""

import copy
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import HeteroData
from torch_geometric.nn import GCNConv

import penstock
from penstock.errors import MissingFieldError, UsageError
from penstock.feed import NeighborLoader, layers
from penstock.feed.inputs import ArrayInput
from penstock.inference.needed import find_needed
from penstock.inference.shelves import MemoryShelf
from penstock.inference.steps import run
from penstock.records import EDGE, NODE
from penstock.store import Store
from penstock.train.config import PLAIN_MODELS, TYPED_MODELS
from penstock.train.inference import steps_of
from penstock.train.models import GNN, KINDS
from penstock.train.rows import LearntRows
from penstock.train.typed_models import TypedGNN
from tests.train.stores import make_data, make_store, make_typed_data, make_typed_store


def whole_graph(model, data):
    """The model's own PyG layers over the full edge list."""
    x = data.x
    degree = torch.zeros(data.num_nodes).index_add_(0, data.edge_index[1], torch.ones(data.num_edges))
    for i, conv in enumerate(model.convs):
        if model.kind == "gcn":
            full = GCNConv(conv.in_channels, conv.out_channels)
            full.load_state_dict(conv.state_dict())
            x = full(x, data.edge_index)
        else:
            x = conv(x, data.edge_index)
        if i < model.num_layers - 1:
            x = F.elu(x) if model.kind == "gat" else x.relu()
    return x, degree


def make_model(kind, **options):
    torch.manual_seed(0)
    return GNN(kind, [4, 16, 16, 5], dropout=0.5, input_dropout=0.2, heads=2, **options).eval()


def infer(model, graph, x, wanted, folder=None, **options):
    with torch.no_grad():
        source = ArrayInput(graph, {t: {"x": rows} for t, rows in x.items()})
        steps = steps_of(model, graph)
        return run(source, steps, find_needed(source, steps, wanted), MemoryShelf(folder), **options)


@pytest.mark.parametrize("kind", PLAIN_MODELS)
def test_full_neighbourhoods_give_the_full_graph_model(kind):
    data, model = make_data(), make_model(kind)
    expected, degree = whole_graph(model, data)
    loader = NeighborLoader(data, [-1, -1, -1], batch_size=64, shuffle=True, seed=0)
    for batch in loader:
        out = model(batch.x, layers(batch), degree[batch.n_id] if model.needs_degree else None)
        torch.testing.assert_close(out, expected[batch.n_id[: batch.batch_size]], rtol=1e-4, atol=1e-5)


def test_every_model_is_one_of_its_own():
    assert KINDS.keys() == PLAIN_MODELS.keys(), "KINDS in train/models.py"
    data = make_data()
    outs = {kind: whole_graph(make_model(kind), data)[0] for kind in PLAIN_MODELS}
    for one, other in itertools.combinations(outs, 2):
        assert not torch.allclose(outs[one], outs[other]), (one, other)


@pytest.mark.parametrize("kind", PLAIN_MODELS)
@pytest.mark.parametrize("memory_bytes", [2 << 30, 0])
def test_inference_is_exact(kind, memory_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.inference.shelves.MEMORY_BYTES", memory_bytes)
    data, model = make_data(), make_model(kind)
    store = make_store(tmp_path / "store")
    nodes = np.array([3, 0, 399, 17])

    def advance(count):  # a killed process must not leave a file as large as a layer
        assert [path.name for path in tmp_path.iterdir()] == ["store"]

    out = infer(model, store.graph(), {NODE: store.node_field("x")}, (NODE, nodes), tmp_path, batch_size=50, num_workers=2, advance=advance)
    expected, _ = whole_graph(model, data)
    torch.testing.assert_close(torch.from_numpy(out), expected[nodes].detach(), rtol=1e-4, atol=1e-5)


def test_wide_rows_are_inferred_in_smaller_batches(tmp_path, monkeypatch):
    store, model, told = make_store(tmp_path / "store"), make_model("sage"), []
    graph = store.graph()
    narrow, wide = (width + width * graph.adjacency[EDGE].num_edges // 400 for width in (16, 64))  # bytes that a node reads, in the mean
    monkeypatch.setattr("penstock.inference.steps.BATCH_BYTES", 300 * narrow)
    infer(model, graph, {NODE: store.node_field("x")}, (NODE, np.arange(400)), advance=lambda count: count and told.append(count))
    size = 300 * narrow // wide
    assert size in (74, 75)
    assert told == [300, 100, *[size] * 5, 400 - 5 * size, *[size] * 5, 400 - 5 * size]


@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_sampled_sums_are_unbiased(kind):
    """The mean over many samples of the first layer approaches the full sum."""
    data = make_data()
    torch.manual_seed(0)
    model = GNN(kind, [4, 3], dropout=0.0, input_dropout=0.0, heads=1).eval()
    if kind == "gin":  # a linear map, or the mean of the outputs is not the output of the mean
        model.convs[0].nn = torch.nn.Sequential(torch.nn.Linear(4, 3))
    expected, degree = whole_graph(model, data)
    seeds = torch.arange(40)
    loader = NeighborLoader(data, [2], input_nodes=seeds, batch_size=40, seed=0)
    outs = []
    for _ in range(600):
        (batch,) = loader
        outs.append(model(batch.x, layers(batch), degree[batch.n_id]).detach())
    outs = torch.stack(outs)
    z = (outs.mean(0) - expected[:40]) / (outs.std(0) / 600**0.5 + 1e-6)
    assert z.abs().max() < 4.5


@pytest.mark.parametrize("kind", TYPED_MODELS)
@pytest.mark.parametrize(("batch_size", "memory_bytes"), [(40, 2 << 30), (None, 0)])
def test_typed_models(kind, batch_size, memory_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.inference.shelves.MEMORY_BYTES", memory_bytes)
    monkeypatch.setattr("penstock.inference.steps.BATCH_BYTES", 128 << 10)
    data = make_typed_data()
    store = make_typed_store(tmp_path / "store")
    graph, counts = store.graph(), dict(store.num_nodes)
    torch.manual_seed(0)
    model = TypedGNN(
        kind, {"paper": 3, "author": 5, "venue": None}, lambda t: LearntRows(counts[t], 8), graph.edge_types, "paper", hidden=8,
        num_outputs=3, num_layers=2, dropout=0.5, input_dropout=0.0, heads=2,
    ).eval()  # fmt: skip
    x = {t: store.node_field("x", t) for t in ("paper", "author")}
    source = ArrayInput(graph, {t: {"x": rows} for t, rows in x.items()})
    whole = next(iter(NeighborLoader(source, [-1, -1], input_nodes=("paper", np.arange(300)), batch_size=300)))
    features = {t: whole[t].x if t in x else model.table(t)(whole[t].n_id) for t in counts}
    expected = model(features, layers(whole)).detach()
    nodes = np.array([5, 0, 299])
    out = infer(model, graph, x, ("paper", nodes), tmp_path, batch_size=batch_size)
    torch.testing.assert_close(torch.from_numpy(out), expected[nodes], rtol=1e-4, atol=1e-5)
    assert data["venue"].num_nodes == counts["venue"]


@pytest.mark.parametrize("kind", TYPED_MODELS)
def test_types_of_any_name(kind):
    """A module's parts cannot be called everything."""
    names = {"items": 3, "user.v2": 2, "type": None, "user_v2": 2}
    edge_types = [("user.v2", "r.x", "items"), ("type", "r_x", "items"), ("user.v2", "r_x", "items"), ("user_v2", "r.x", "items")]
    model = TypedGNN(
        kind, names, lambda t: LearntRows(5, 4), edge_types, "items", hidden=4, num_outputs=2, num_layers=1, dropout=0.0,
        input_dropout=0.0, heads=2,
    )  # fmt: skip
    data = HeteroData()
    for t, width in names.items():
        data[t].num_nodes = 5
        if width is not None:
            data[t].x = torch.randn(5, width)
    for e in edge_types:
        data[e].edge_index = torch.randint(0, 5, (2, 12))
    batch = next(iter(NeighborLoader(data, [3], input_nodes="items", batch_size=5)))
    x = {t: batch[t].x if width is not None else model.table(t)(batch[t].n_id) for t, width in names.items()}
    assert model(x, layers(batch)).shape == (5, 2)
    assert len({key for key in model.state_dict() if "lin_l.weight" in key}) == (len(edge_types) if kind == "rgcn" else 0)


def test_layers_hold_what_the_batch_holds():
    data = make_data()
    batch = next(iter(NeighborLoader(data, [3, 2, 4], batch_size=10, seed=0)))
    cut = layers(batch)
    assert [layer.num_dst for layer in cut] == list(np.cumsum(batch.num_sampled_nodes)[2::-1])
    assert cut[0].num_src == batch.num_nodes
    assert cut[-1].num_dst == 10
    for layer in cut:
        dense = torch.zeros(layer.num_dst, layer.num_src)
        dense.index_put_((layer.edge_index[1], layer.edge_index[0]), torch.ones(layer.sources.numel()), accumulate=True)
        assert torch.equal(layer.adj_t().to_dense(), dense)
    assert cut[0].sources.data_ptr() == batch.edge_index.data_ptr(), "no copy"


@pytest.mark.parametrize("kind", ["bidirectional", "induced"])
def test_layers_want_our_batches(kind):
    data = make_data()
    with pytest.raises(MissingFieldError, match="num_sampled_nodes"):
        layers(data)
    batch = next(iter(NeighborLoader(data, [3, 3], batch_size=10, subgraph_type=kind)))
    assert "num_sampled_nodes" not in batch
    assert "num_sampled_edges" not in batch
    with pytest.raises(MissingFieldError, match="directional"):
        penstock.layers(batch)


def drop_edges(batch):
    batch.edge_index = batch.edge_index[:, ::2]


def shuffle_edges(batch):
    batch.edge_index = batch.edge_index.flip(1)


def write_to_edges(batch):
    batch.edge_index[0, 0] = 0


def write_to_pointers(batch):
    batch.row_ptr = batch.row_ptr + 1


CHANGES = [drop_edges, shuffle_edges, write_to_edges, write_to_pointers]


@pytest.mark.parametrize("is_typed", [False, True])
@pytest.mark.parametrize("change", [*CHANGES, None], ids=lambda change: change and change.__name__)
@pytest.mark.parametrize("is_transform", [False, True])
def test_layers_want_the_edges_as_they_came(change, is_typed, is_transform, tmp_path):
    """What is cut by row pointers of other edges is read beyond its end, or wrong."""

    def transform(batch):
        if change is not None:
            change(next(store for store in batch.edge_stores if store.edge_index.numel()))
        return batch

    data, seeds = (make_typed_data(), "paper") if is_typed else (make_data(), None)
    options = dict(input_nodes=seeds, batch_size=10, seed=0, transform=transform if is_transform else None)
    batch = next(iter(NeighborLoader(data, [3, 2], **options)))
    batch = batch if is_transform else transform(batch)
    torch.save(batch, tmp_path / "batch.pt")
    copies = [copy.copy(batch), copy.deepcopy(batch), batch.clone(), torch.load(tmp_path / "batch.pt", weights_only=False)]
    for each in [batch] if change is write_to_edges else [batch, *copies]:  # a copy of what was written to has forgotten it
        if change is None:
            assert len(layers(each)) == 2
        else:
            with pytest.raises(UsageError, match="the edges of this batch are not those that the loader made it with"):
                layers(each)


def test_store_and_data_give_the_same_batches(tmp_path):
    data, store = make_data(), make_store(tmp_path / "store")
    options = dict(num_neighbors=[3, 2], batch_size=50, shuffle=True, seed=1)
    for left, right in zip(
        NeighborLoader(data, input_nodes=data.train_mask.nonzero().view(-1), **options),
        NeighborLoader(Store.open(tmp_path / "store"), input_nodes="train", **options, num_workers=2),
        strict=True,
    ):
        for name in ("x", "y", "n_id", "input_id", "row_ptr", "num_sampled_nodes"):
            assert torch.equal(torch.as_tensor(left[name]), torch.as_tensor(right[name])), name
        assert torch.equal(left.edge_index, right.edge_index)
    assert store.num_nodes[NODE] == 400


def test_relations_whose_joined_names_are_equal():
    edge_types = [("a__b", "c", "d"), ("a", "b__c", "d"), ("d", "r", "a")]
    sizes = {"hidden": 4, "num_outputs": 2, "num_layers": 1, "dropout": 0.0, "input_dropout": 0.0, "heads": 1}
    widths = dict.fromkeys(("a__b", "a", "d"), 3)
    model = TypedGNN("rgcn", widths, lambda t: LearntRows(5, 8), edge_types, "d", **sizes)
    assert list(model.convs[0]) == ["a__b__c__d", "a__b__c__d__1", "d__r__a"]
