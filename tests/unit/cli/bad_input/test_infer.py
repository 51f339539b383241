"""What `penstock.infer` refuses: models, layers, files, and what another inference left in them."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN, GIN, GraphSAGE, TAGConv

import penstock
from penstock.errors import (
    CorruptStoreError,
    InputError,
    MissingFieldError,
    MissingFileError,
    NodeIdError,
    NotSupportedError,
    StateError,
    StoreBusyError,
    UsageError,
)
from penstock.train import TrainConfig, infer_pairs, infer_run, train
from tests.refusals import refused, said
from tests.train.stores import make_bare_store, make_data

SIZES = {"in_channels": 4, "hidden_channels": 8, "num_layers": 3}


def infer(error, model=None, data=None, **options):
    return refused(error, penstock.infer, GraphSAGE(**SIZES) if model is None else model, data or make_data(), **options)


class Stopped(Exception):
    pass


def stop(done, total):
    if done >= 450:
        raise Stopped


def begin(folder):
    """Leave what was computed in a layer and a bit; no thread is left that reads files which a test then cuts."""
    model = GraphSAGE(**SIZES)
    with pytest.raises(Stopped):
        penstock.infer(model, make_data(), out=folder / "rows.npy", batch_size=50, num_workers=0, progress=stop)
    return {"model": model, "out": folder / "rows.npy", "batch_size": 50}


def test_models():
    assert "got str" in infer(UsageError, "sage")
    assert "Linear is not one of PyG's standard models" in infer(UsageError, nn.Linear(4, 2))
    assert "jk='cat'" in infer(NotSupportedError, GraphSAGE(**SIZES, jk="cat"))

    class Mine(GraphSAGE):
        def forward(self, x, edge_index):
            return x

    assert "Mine is not one of" in infer(UsageError, Mine(**SIZES))
    other = GraphSAGE(**SIZES)
    other.convs[1] = TAGConv(8, 8)
    assert "TAGConv is not known" in infer(UsageError, other)
    assert "aggr='max'" in infer(NotSupportedError, GCN(**SIZES, aggr="max"))
    assert "aggr='lstm'" in infer(NotSupportedError, GraphSAGE(**SIZES, aggr="lstm", aggr_kwargs={"in_channels": 4, "out_channels": 4}))
    assert "GraphSAGE takes 5 features of a node, and these nodes have 4 features" in infer(UsageError, GraphSAGE(5, 8, 2))
    assert "without a shape" in infer(UsageError, GraphSAGE(-1, 8, 2))
    assert "looks at all nodes" in infer(NotSupportedError, GraphSAGE(**SIZES, act="softmax", act_kwargs={"dim": 0}))
    used = GCN(**SIZES, cached=True)
    used(make_data().x, make_data().edge_index)
    assert "has kept the edges" in infer(NotSupportedError, used)
    for norm in ("graph_norm", "layer_norm", "instance_norm"):
        assert "looks at all nodes at once" in infer(NotSupportedError, GIN(**SIZES, norm=norm))
    untracked = GraphSAGE(**SIZES, norm="batch_norm", norm_kwargs={"track_running_stats": False})
    assert "looks at all nodes at once" in infer(NotSupportedError, untracked)
    assert "from target to source" in infer(NotSupportedError, GraphSAGE(**SIZES, flow="target_to_source"))
    assert "no features x" in infer(MissingFieldError, data=Data(edge_index=make_data().edge_index, num_nodes=400))
    typed = HeteroData()
    typed["a"].x = torch.randn(3, 4)
    typed["a", "to", "a"].edge_index = torch.tensor([[0], [1]])
    assert "this one has 1 node types" in infer(UsageError, data=typed, input_nodes="a")


def test_layers():
    for layers in ([], ["sage"], 3):
        assert "must be functions of a batch" in infer(UsageError, layers=layers)
    assert "got float32 [1, 4]" in infer(UsageError, layers=[lambda batch: batch.x[:1]])
    assert "divides by degrees" in infer(NotSupportedError, GCN(**SIZES), layers=[lambda batch: batch.x])
    assert "outside" in infer(NodeIdError, input_nodes=torch.tensor([3, 400]))
    assert "got list" in infer(UsageError, layers=[lambda batch: [1]])
    assert "nothing for nodes of 'node'" in infer(UsageError, layers=[lambda batch: None])
    assert "nodes twice" in infer(UsageError, input_nodes=torch.tensor([3, 4, 3]))
    assert "is empty" in infer(UsageError, input_nodes=torch.tensor([], dtype=torch.long))
    assert "batch_size" in infer(UsageError, batch_size=0)


def test_rows_that_change(tmp_path):
    for options in ({}, {"out": tmp_path / "rows.npy"}):
        widths = iter([3, 4])
        layers = [lambda batch, widths=widths: torch.zeros(batch.num_nodes, next(widths))]
        assert "float32 rows [4] where it gave float32 rows [3]" in infer(UsageError, layers=layers, batch_size=300, **options)


def test_files(tmp_path):
    assert "ends in .npy" in infer(UsageError, out=tmp_path / "rows.csv")
    assert "does not exist" in infer(UsageError, out=tmp_path / "nowhere" / "rows.npy")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "mine.npy").write_text("mine")
    assert "no .npy file in spite of its name" in infer(UsageError, out=tmp_path / "mine.npy")
    assert (tmp_path / "mine.npy").read_text() == "mine"
    assert "is a folder: name a file in it" in infer(UsageError, out=tmp_path / "folder.npy")
    store = penstock.ingest(make_data(), tmp_path / "store")
    assert "is in the store" in infer(UsageError, data=store, out=store.path / "nodes" / "rows.npy")
    assert "reads rows from files" in infer(UsageError, data=store, plan="ginex")
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_pair_of_stores():
    from torch_geometric.testing import MyFeatureStore, MyGraphStore

    features, graph, data = MyFeatureStore(), MyGraphStore(), make_data()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    graph.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(400, 400))
    assert "ingest the graph into a store" in infer(NotSupportedError, data=(features, graph))


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"model": GraphSAGE(**SIZES)}, "weights"),
        ({"model": GraphSAGE(**SIZES, act="elu")}, "model"),
        ({"model": GCN(**SIZES)}, "model"),
        ({"data": make_data(num_nodes=300)}, "graph"),
        ({"input_nodes": torch.arange(5)}, "nodes"),
        ({"batch_size": 60}, "batch_size"),
    ],
    ids=["weights", "act", "model", "graph", "nodes", "batch_size"],
)
def test_what_another_inference_left(other, what, tmp_path):
    options = begin(tmp_path)
    assert f"{what} " in infer(StateError, **{**options, **other}).replace(",", " ").replace("differ)", " ")
    assert (tmp_path / "rows.npy.unfinished" / "state.json").exists()


@pytest.mark.parametrize(
    "files",
    [None, [], {"x": {}}, {"0-7": {}}, {"0-0": {"rows": 5}}, {"dtype": None}, {"dtype": "<z9"}, {"shape": 5}, {"rows": "some"}],
    ids=str,
)
def test_a_state_that_cannot_be_read(files, tmp_path):
    options, path = begin(tmp_path), tmp_path / "rows.npy.unfinished" / "state.json"
    state = json.loads(path.read_text())
    if isinstance(files, dict) and not any("-" in name or name == "x" for name in files):
        files = {name: {**each, **files} for name, each in state["files"].items()}
    path.write_text("{" if files is None else json.dumps(state | {"files": files}))
    assert "begin anew" in infer(CorruptStoreError, **options)


def test_a_link_in_the_place_of_its_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rows.npy.unfinished").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in infer(UsageError, out=tmp_path / "rows.npy")


@pytest.mark.parametrize("damage", ["cut", "gone", "other"])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_layer_that_was_altered(damage, layer, tmp_path):
    """The one that is read, or the one that is written."""
    options = begin(tmp_path)
    path = tmp_path / "rows.npy.unfinished" / f"layer-{layer}-0.npy"
    if damage == "cut":
        os.truncate(path, 5000)
    elif damage == "gone":
        path.unlink()
    else:
        np.save(path, np.zeros((400, 15), np.float32))
    assert f"layer-{layer}-0.npy" in infer(CorruptStoreError, **options)


def test_two_at_once(tmp_path):
    options = {"model": GraphSAGE(**SIZES), "out": tmp_path / "rows.npy"}

    def progress(done, total):
        infer(StoreBusyError, **options)
        raise Stopped

    with pytest.raises(Stopped):
        penstock.infer(data=make_data(), progress=progress, **options)


def test_runs(tmp_path):
    data, out = make_data(), tmp_path / "rows.npy"
    store = penstock.ingest(data, tmp_path / "store")
    config = TrainConfig(store=str(store.path), num_neighbors=(3,), epochs=1, num_workers=0)
    train(config, tmp_path / "run")
    assert "holds no run" in refused(MissingFileError, infer_run, tmp_path, out)
    assert "holds no run" in refused(MissingFileError, infer_run, tmp_path / "nowhere")
    assert "needs two" in refused(UsageError, infer_run, tmp_path / "run", out, rows="hidden")
    assert "has outputs for 'node' only" in refused(UsageError, infer_run, tmp_path / "run", out, node_type="paper")
    assert "must be one of outputs, hidden, predictions" in refused(UsageError, infer_run, tmp_path / "run", out, rows="all")
    other = penstock.ingest(make_data(num_nodes=300), tmp_path / "other")
    assert "was trained on a store of digest" in refused(StateError, infer_run, tmp_path / "run", out, store=other.path)
    wider = penstock.ingest(make_data(num_classes=5), tmp_path / "wider")
    assert "does not fit" in refused(StateError, infer_run, tmp_path / "run", out, store=wider.path, inductive=True)
    bare = make_bare_store(tmp_path / "bare")
    train(replace(config, store=str(bare.path)), tmp_path / "learnt")
    (tmp_path / "edges.csv").write_text("src,dst\na,b\n")
    named = penstock.ingest(tmp_path / "edges.csv", tmp_path / "named")
    assert "found by ids" in refused(StateError, infer_run, tmp_path / "learnt", out, store=named.path, inductive=True)
    shutil.rmtree(bare.path)
    assert "is not there: say where" in refused(MissingFileError, infer_run, tmp_path / "learnt", out)
    sparser = penstock.ingest(Data(edge_index=data.edge_index[:, 2:], num_nodes=400), tmp_path / "sparser")
    assert "learnt rows" in refused(StateError, infer_run, tmp_path / "learnt", out, store=sparser.path, inductive=True)
    penstock.partition.partition_store(store.path, tmp_path / "parts", 2)
    assert "is a partition" in refused(NotSupportedError, infer_run, tmp_path / "run", out, store=tmp_path / "parts")
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"nothing")
    assert "cannot read the checkpoint" in refused(CorruptStoreError, infer_run, tmp_path / "run", out)
    assert not out.exists()


def test_pairs(tmp_path, capfd):
    store = penstock.ingest(make_data(), tmp_path / "store")
    penstock.hold_out(store, tmp_path / "links", val=0)
    config = TrainConfig(store=str(store.path), num_neighbors=(3,), epochs=1, num_workers=0)
    train(config, tmp_path / "nodes")
    run, out = tmp_path / "run", tmp_path / "pairs.npy"
    train(replace(config, store=str(tmp_path / "links")), run)
    assert "predicts nothing of nodes, it learnt edges: ask for pairs" in refused(UsageError, infer_run, run, out, rows="predictions")
    assert "learnt nothing of pairs" in refused(UsageError, infer_pairs, tmp_path / "nodes", "test", out)
    assert "is no part of the links" in refused(UsageError, infer_pairs, run, "val", out)
    assert "must be val, test, or whole numbers [2, n]" in refused(InputError, infer_pairs, run, np.zeros((2, 2, 2), np.int64), out)
    assert "first is link 1 with 400" in refused(NodeIdError, infer_pairs, run, np.array([[0, 0], [1, 400]]), out)
    assert "ends in .npy" in refused(UsageError, infer_pairs, run, "test", tmp_path / "pairs.bin")
    (tmp_path / "pairs.bin").write_text("1,2")
    (tmp_path / "pairs.csv").write_text("src,dst\n1,2\n")
    for options, what in (
        (["--pairs", "nowhere.npy"], ".csv or .parquet; nowhere.npy is not there"),
        (["--pairs", tmp_path / "pairs.bin"], "pairs.bin is none"),
        (["--pairs", tmp_path / "pairs.csv", "--out", tmp_path / "pairs.csv"], "pairs.csv has the pairs, and would be replaced"),
        (["--pairs", "test", "--rows", "hidden"], "--pairs goes without --rows"),
        (["--pairs", "test", "--nodes", "test"], "--pairs goes without --nodes"),
        (["--pairs", "test", "--node-type", "node"], "--pairs goes without --node-type"),
        (["--pairs", "test", "--host-memory", "1GiB"], "--pairs goes without --host-memory"),
    ):
        assert what in said(capfd, "infer", run, "--out", out, *options)
    assert not out.exists()
    assert (tmp_path / "pairs.csv").read_text() == "src,dst\n1,2\n"


def test_some_nodes(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n" + "".join(f"n{i},n{(7 * i + 1) % 60}\n" for i in range(60)))
    (tmp_path / "nodes.csv").write_text("id,y,part\n" + "".join(f"n{i},{i % 2},{'train' if i < 40 else ''}\n" for i in range(60)))
    tables = {"nodes": tmp_path / "nodes.csv", "node_fields": {"y": "y"}, "split": "part"}
    store = penstock.ingest(tmp_path / "edges.csv", tmp_path / "store", **tables)
    train(TrainConfig(store=str(store.path), num_neighbors=(3,), epochs=1, num_workers=0), tmp_path / "run")
    run, out = tmp_path / "run", tmp_path / "rows.npy"
    for nodes in (np.zeros((2, 2), np.int64), np.zeros(2), []):
        assert "nodes must be the name of a part, or whole numbers [n]" in refused(InputError, infer_run, run, out, nodes=nodes)
    assert "1 of 3 ids lie outside [0, 60)" in refused(NodeIdError, infer_run, run, out, nodes=[3, 60, 4])
    assert "2 of 5 nodes are given again, first number 2" in refused(NodeIdError, infer_run, run, out, nodes=[3, 4, 3, 5, 3])
    assert "a .csv is for rows='predictions'" in refused(UsageError, infer_run, run, tmp_path / "rows.csv", nodes=[3])
    (tmp_path / "nodes.bin").write_text("1,2")
    (tmp_path / "none.csv").write_text("id\n")
    (tmp_path / "other.csv").write_text("id\nn3\nn77\n")
    np.save(out, np.arange(3))
    for nodes, what in (
        ("nowhere.npy", "--nodes takes the name of a part, or a file of nodes, .npy, .csv or .parquet; nowhere.npy is not there"),
        ("nodes.bin", "nodes.bin is none"),
        ("none.csv", "none.csv has no nodes"),
        ("edges.csv", "edges.csv needs a column id"),
        ("other.csv", "line 3: 'id' is 'n77', which no node of type 'node' has as its id"),
        ("tset", "no part 'tset'"),
        ("rows.npy", "rows.npy has the nodes, and would be replaced"),
    ):
        given = tmp_path / nodes if (tmp_path / nodes).exists() else nodes
        assert what in said(capfd, "infer", run, "--out", out, "--nodes", given)
    assert np.load(out).tolist() == [0, 1, 2]
    data = make_data()
    data.val_mask = torch.zeros(400, dtype=torch.bool)
    empty = penstock.ingest(data, tmp_path / "empty").path
    train(TrainConfig(store=str(empty), num_neighbors=(3,), epochs=1, num_workers=0), tmp_path / "other")
    assert "'val' is a part of" in said(capfd, "infer", tmp_path / "other", "--nodes", "val")


def test_edges_of_nobody():
    """Fine: a graph that has no edges, and nodes that no edge enters."""
    data = Data(x=torch.randn(9, 4), edge_index=torch.empty(2, 0, dtype=torch.long))
    assert penstock.infer(GraphSAGE(**SIZES), data).shape == (9, 8)
