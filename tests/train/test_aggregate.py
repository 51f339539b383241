"""A store whose features are aggregated trains the models that it did, with a hop less."""

import errno
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

import penstock
from penstock.cli import run
from penstock.errors import CorruptStoreError, NotSupportedError
from penstock.feed import NeighborLoader
from penstock.store import Quiet, Store, check, ingest
from penstock.study import LayoutSettings, lay_out
from penstock.train import TrainConfig, aggregate, infer_run, of_aggregated, train
from penstock.train.aggregate import MODEL_OF
from penstock.train.data import read_training_data
from tests.train.stores import make_data


def graph(dtype=torch.float32, num_nodes=300):
    """Communities with a direction, nodes without neighbours, and edges that come twice."""
    data = make_data(num_nodes)
    is_kept = (data.edge_index[1] < num_nodes - 20) & (torch.arange(data.num_edges) % 3 > 0)
    data.edge_index = data.edge_index[:, is_kept]
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :50]], dim=1)
    data.x = data.x.to(dtype)
    return data


def made(tmp_path, by, data=None, **options):
    data = graph() if data is None else data
    store = ingest(data, tmp_path / "plain", feature_dtype=str(data.x.dtype).split(".")[1] if data.x.is_floating_point() else None)
    aggregate(store, tmp_path / by, by=by, **options)
    return store, Store.open(tmp_path / by)


CONVS = {
    "mean": lambda: SAGEConv(4, 6),
    "sum": lambda: GINConv(torch.nn.Linear(4, 6), eps=0.3, train_eps=True),
    "gcn": lambda: GCNConv(4, 6),
}


@pytest.mark.parametrize("by", CONVS)
def test_a_layer_gives_what_it_gives_over_all_neighbours(tmp_path, by):
    data, conv = graph(), CONVS[by]()
    _, store = made(tmp_path, by, data, batch_size=37, num_workers=2)
    expected = conv(data.x, data.edge_index)
    torch.testing.assert_close(of_aggregated(conv, torch.from_numpy(np.array(store.node_field("x")))), expected)
    for batch in NeighborLoader(store, [2], "train", batch_size=16, seed=0):
        torch.testing.assert_close(of_aggregated(conv, batch.x), expected[batch.n_id])


@pytest.mark.parametrize("options", [{"normalize": True}, {"root_weight": False}, {"bias": False}], ids=str)
def test_settings_of_a_layer(tmp_path, options):
    data, conv = graph(), SAGEConv(4, 6, **options)
    _, store = made(tmp_path, "mean", data)
    torch.testing.assert_close(of_aggregated(conv, torch.from_numpy(np.array(store.node_field("x")))), conv(data.x, data.edge_index))


@pytest.mark.parametrize(
    "conv",
    [
        SAGEConv(2, 4, aggr="max"), SAGEConv(2, 4, project=True), SAGEConv(2, 4, flow="target_to_source"), torch.nn.Linear(2, 4),
        GINConv(torch.nn.Linear(2, 4), aggr="mean"), GCNConv(4, 4, normalize=False), GCNConv(4, 4, add_self_loops=False),
        GCNConv(4, 4, improved=True), GCNConv(4, 4, aggr="mean"),
    ],
    ids=str,
)  # fmt: skip
def test_layers_that_begin_by_something_else(conv):
    with pytest.raises(NotSupportedError, match="does not begin by"):
        of_aggregated(conv, torch.randn(3, 4))


@pytest.mark.parametrize("by", CONVS)
def test_a_model_is_the_same_model(tmp_path, by):
    """Weights of one fit the other, and over all neighbours both give the same."""
    plain, store = made(tmp_path, by)
    options = {"model": MODEL_OF[by], "hidden": 8, "dropout": 0.0}
    models, batches = [], []
    for each, fanouts in ((plain, (-1, -1, -1)), (store, (-1, -1))):
        config = TrainConfig(store=str(each.path), num_neighbors=fanouts, **options)
        data = read_training_data(each, config)
        torch.manual_seed(0)
        models.append(data.make_model(config).eval())
        batches.append(next(iter(NeighborLoader(each, list(fanouts), "val", batch_size=50))))
    models[1].load_state_dict(models[0].state_dict())
    degree = torch.from_numpy(plain.csc().degrees(np.arange(300)).astype(np.float32))
    logits = [
        model(batch.x, penstock.layers(batch), degree[batch.n_id] if model.needs_degree else None)
        for model, batch in zip(models, batches, strict=True)
    ]  # fmt: skip
    torch.testing.assert_close(*logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize("by", CONVS)
def test_dtypes(tmp_path, by, dtype):
    data = graph(dtype)
    _, store = made(tmp_path, by, data)
    spec = store.node_fields()["x"]
    is_kept = dtype == torch.float64 or (by == "mean" and dtype in (torch.float16, torch.bfloat16))
    assert spec.dtype == (str(dtype).split(".")[1] if is_kept else "float32")
    batch = next(iter(NeighborLoader(store, [1], None, batch_size=300)))
    assert batch.x.dtype == (dtype if is_kept else torch.float32)
    conv = CONVS[by]().to(torch.float64)
    expected = conv(data.x.double(), data.edge_index)
    tolerance = 0.05 if is_kept and spec.dtype.endswith("float16") else 1e-5
    torch.testing.assert_close(of_aggregated(conv, batch.x.double()), expected, rtol=tolerance, atol=tolerance)


def test_biases_and_self_loops_of_gcn(tmp_path):
    """The graph's loops count beside the layer's own."""
    data, conv = graph(), GCNConv(4, 6)
    data.edge_index = torch.cat([data.edge_index, torch.arange(40).expand(2, -1)], dim=1)
    torch.nn.init.normal_(conv.bias)
    _, store = made(tmp_path, "gcn", data)
    sources, targets = data.edge_index
    adjacency = torch.eye(300).index_put((targets, sources), torch.ones(sources.numel()), accumulate=True)
    roots = adjacency.sum(1, keepdim=True).rsqrt()
    expected = conv.lin(roots * (adjacency @ (roots * data.x))) + conv.bias
    torch.testing.assert_close(of_aggregated(conv, torch.from_numpy(np.array(store.node_field("x")))), expected)


def test_float64_is_summed_so(tmp_path):
    data = graph(torch.float64)
    _, store = made(tmp_path, "sum", data)
    conv = GINConv(torch.nn.Identity())
    expected = conv(data.x, data.edge_index)
    torch.testing.assert_close(of_aggregated(conv, torch.from_numpy(np.array(store.node_field("x")))), expected, rtol=1e-14, atol=1e-14)


def test_features_that_are_dropped(tmp_path):
    """`input_dropout` is of the first layer, whose input they are, and of training alone."""
    _, store = made(tmp_path, "mean")
    config = TrainConfig(store=str(store.path), num_neighbors=(2,), hidden=8, dropout=0.0, input_dropout=0.9)
    model, x = read_training_data(store, config).make_model(config), torch.randn(50, 8)
    assert not torch.equal(model.train().first(x), model.first(x))
    assert torch.equal(model.eval().first(x), model.first(x))


def test_all_else_is_the_old_store(tmp_path):
    plain, store = made(tmp_path, "mean")
    assert check(store.path, deep=True)
    assert store.digest != plain.digest
    assert store.manifest.provenance["aggregated"] == {"by": "mean", "store": "plain", "digest": plain.digest}
    ours, theirs = ({spec.file: spec for spec in each.manifest.arrays()} for each in (plain, store))
    assert ours.keys() == theirs.keys()
    for file in ours:
        is_same = os.path.samefile(plain.path / file, store.path / file)
        assert is_same == (file != "nodes/node/x.npy")
        assert not is_same or ours[file] == theirs[file]


def test_packed_copies_stay_behind(tmp_path):
    plain, store = made(tmp_path, "mean")
    lay_out(plain.path, LayoutSettings(by="random", num_neighbors=(2,)))
    aggregate(plain.path, tmp_path / "of-packed")
    assert Store.open(tmp_path / "of-packed").manifest.nodes["node"].packed is None
    assert check(tmp_path / "of-packed", deep=True)
    assert Store.open(tmp_path / "of-packed").digest == store.digest


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def test_file_systems_without_second_names(tmp_path, monkeypatch, code):
    def refuse(*_, **__):
        raise OSError(code, "no second name")

    monkeypatch.setattr(os, "link", refuse)
    _, store = made(tmp_path, "mean")
    assert check(store.path, deep=True)


def test_the_way_of_it_is_of_the_digest(tmp_path):
    _, store = made(tmp_path, "mean")
    digest, nodes = store.digest, store.manifest.nodes
    plain = {**nodes["node"].fields, "x": replace(nodes["node"].fields["x"], properties={})}
    store.manifest = replace(store.manifest, nodes={"node": replace(nodes["node"], fields=plain)})
    assert store.digest != digest


def test_a_store_that_is_there_is_replaced(tmp_path):
    plain, store = made(tmp_path, "mean")
    aggregate(plain, store.path, by="gcn", overwrite=True)
    assert check(store.path, deep=True)
    assert Store.open(store.path).manifest.provenance["aggregated"]["by"] == "gcn"


def test_what_is_said_of_it(tmp_path, capsys):
    _, store = made(tmp_path, "mean")
    assert run(["info", str(store.path)]) == 0
    assert "x float32[8] (aggregated by mean)" in capsys.readouterr().out


def test_a_store_that_is_written_to_meanwhile(tmp_path):
    store = ingest(graph(), tmp_path / "plain")
    file = store.path / "nodes/node/x.npy"
    file.chmod(0o644)

    class Meddling(Quiet):
        def advance(self, amount):
            os.utime(file)

    with pytest.raises(CorruptStoreError, match="was written to while it was in use"):
        aggregate(store, tmp_path / "mean", progress=Meddling())
    assert not (tmp_path / "mean").exists()


def test_a_store_that_is_gone(tmp_path):
    store = ingest(graph(), tmp_path / "plain")
    shutil.rmtree(store.path)
    with pytest.raises(CorruptStoreError, match="is missing"):
        aggregate(store, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_a_budget_of_memory(tmp_path):
    _, store = made(tmp_path, "mean")
    aggregate(tmp_path / "plain", tmp_path / "bounded", host_memory="2GiB", spool="64MiB")
    bounded = Store.open(tmp_path / "bounded")
    assert bounded.digest == store.digest


@pytest.mark.parametrize("by", CONVS)
@pytest.mark.parametrize("evaluation", ["full", "sampled"])
def test_training(tmp_path, by, evaluation):
    _, store = made(tmp_path, by, make_data())
    config = TrainConfig(
        store=str(store.path), num_neighbors=(5,), epochs=25, batch_size=64, hidden=16, lr=0.02, evaluation=evaluation, num_workers=0
    )
    result = train(config, tmp_path / "run", predictions=tmp_path / "classes.npy")
    assert result.test > 0.4  # of four classes
    assert result.description["model"].startswith(MODEL_OF[by])
    assert result.description["aggregated"] == by
    rows = np.load(infer_run(tmp_path / "run")["out"])
    assert (rows.argmax(1) == np.load(tmp_path / "classes.npy")).mean() >= (1.0 if evaluation == "full" else 0.9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_training_on_other_dtypes(tmp_path, dtype):
    data = make_data()
    data.x = data.x.to(dtype)
    _, store = made(tmp_path, "mean", data)
    config = TrainConfig(store=str(store.path), num_neighbors=(5,), epochs=1, hidden=8, num_workers=0)
    assert train(config, tmp_path / "run").test is not None
    assert np.isfinite(np.load(infer_run(tmp_path / "run", rows="hidden")["out"])).all()
