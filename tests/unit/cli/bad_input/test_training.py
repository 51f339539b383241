"""Options, plans and folders of `penstock train`; what it cannot train on, and what is unusual and fine."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock import cli
from penstock.cli import train
from penstock.feed import NeighborLoader, assemble
from penstock.store import Store, budget, hold_out, ingest
from tests.refusals import TRAIN, call, said
from tests.train.stores import make_bare_store, make_data, make_typed_store


def test_unknown_options_and_commands(store, capfd):
    assert "No such option" in said(capfd, "train", store, "--colour", "blue")
    assert "No such command" in said(capfd, "dance")
    assert "--epochs" in said(capfd, "train", store, "--epochs", "many")
    assert "takes whole numbers" in said(capfd, "train", store, "--num-neighbors", "ten,five")
    assert "does not fit" in said(capfd, "train", store, "--num-neighbors", "5,5,5", "--layers", "2")


@pytest.mark.parametrize("is_typed", [False, True])
def test_many_nodes_without_features(is_typed, tmp_path, capfd, monkeypatch):
    path = (make_typed_store if is_typed else make_bare_store)(tmp_path / "store").path
    assert call(capfd, "train", path, *TRAIN, "--out", tmp_path / "few")[0] == 0
    monkeypatch.setattr("penstock.train.data.MAX_EMBEDDING_BYTES", 1000)
    assert "a smaller --hidden than" in said(capfd, "train", path, *TRAIN, "--out", tmp_path / "too-many")


def test_links_that_are_not_learnt(store, tmp_path, capfd):
    hold_out(store, tmp_path / "links")
    make_typed_store(tmp_path / "typed")
    hold_out(tmp_path / "typed", tmp_path / "half", edge_type=("author", "writes", "paper"), reverse="none")
    hold_out(tmp_path / "half", tmp_path / "both", edge_type=("paper", "by", "author"), reverse="none")

    def train_said(place, *options):
        return said(capfd, "train", place, *TRAIN, "--out", tmp_path / "run", *options)

    assert "which are author,writes,paper or paper,by,author" in train_said(tmp_path / "both", "--target", "venue,prints,paper")
    assert "which are none" in train_said(store, "--target", "node,to,node")
    assert "choose one by" in train_said(tmp_path / "both")
    assert "is of nodes, and links are learnt" in train_said(tmp_path / "links", "--metric", "accuracy")
    assert "is of links" in train_said(store, "--metric", "mrr")
    assert "with --pairs what is said of pairs" in train_said(tmp_path / "links", "--predictions", tmp_path / "classes.npy")
    assert "which have one split: leave it out" in train_said(tmp_path / "links", "--split", "0")
    assert "--num-negatives must be at least 1" in train_said(tmp_path / "links", "--num-negatives", "0")
    assert not (tmp_path / "run").exists()


def test_labels_of_edges_that_are_not_learnt(store, tmp_path, capfd):
    data = make_data()
    numbers = torch.arange(data.num_edges)
    data.kind, data.some, data.far = numbers % 3, torch.where(numbers % 9 > 0, numbers % 2, -1), numbers + 10**6
    data.unknown = torch.full((data.num_edges,), float("nan"))
    data.huge = torch.linspace(0, 1e200, data.num_edges, dtype=torch.float64)
    data.counts, data.empty, data.half = torch.stack([numbers, numbers], dim=1), torch.zeros(data.num_edges, 0), numbers / 2
    ingest(data, tmp_path / "whole", allow_nan=True)
    hold_out(tmp_path / "whole", tmp_path / "links")
    hold_out(tmp_path / "whole", tmp_path / "given", val=0, test=np.array([[0, 1], [2, 3], [4, 5]]))

    def train_said(place, *options):
        return said(capfd, "train", place, *TRAIN, "--out", tmp_path / "run", *options)

    assert "have no field 'what' to learn (--edge-label); they have " in train_said(tmp_path / "links", "--edge-label", "what")
    assert "links 'test' were given, without 'kind'" in train_said(tmp_path / "given", "--edge-label", "kind")
    assert "has no label: leave such edges out" in train_said(tmp_path / "links", "--edge-label", "some")
    assert "choose a field of classes, or --metric rmse" in train_said(tmp_path / "links", "--edge-label", "far")
    assert "no edge has a label in" in train_said(tmp_path / "links", "--edge-label", "unknown", "--metric", "rmse")
    assert "no edge has a label in" in train_said(tmp_path / "links", "--edge-label", "unknown")
    assert "has something else than 0 and 1: leave such edges out" in train_said(tmp_path / "links", "--edge-label", "counts")
    assert "integers below 0 are none: store floats" in train_said(tmp_path / "links", "--edge-label", "some", "--metric", "rmse")
    assert "must be classes, numbers or a 0/1 matrix, got float32" in train_said(tmp_path / "links", "--edge-label", "empty")
    assert "too large to be squared" in train_said(tmp_path / "links", "--edge-label", "huge", "--metric", "rmse")
    assert "is of links, and these are labels" in train_said(tmp_path / "links", "--edge-label", "half", "--metric", "mrr")
    assert "--target node is a node type: name" in train_said(tmp_path / "links", "--edge-label", "kind", "--target", "node")
    assert "of which some were held out: make such a store" in train_said(store, "--edge-label", "kind")
    assert "is of links, and these are labels" in train_said(tmp_path / "links", "--edge-label", "kind", "--metric", "mrr")
    assert not (tmp_path / "run").exists()


def test_arguments_that_are_empty(store, tmp_path, capfd):
    assert "is empty (--out): give it" in said(capfd, "train", store, "--out", "")
    assert "is empty (--out): give it" in said(capfd, "train", store, "--out=")
    assert "is empty: give it" in said(capfd, "ingest", "", "store")
    assert not list(tmp_path.iterdir())


def test_a_split_without_nodes_to_score(tmp_path, capfd):
    data = make_data()
    for part, line in (
        ("test", "no test nodes with a label (val "),
        ("val", "no test nodes with a label (1 epoch, no val nodes with a label)"),
    ):
        data[f"{part}_mask"][:] = False
        ingest(data, tmp_path / "store", overwrite=True)
        assert cli.run(["train", "store", *TRAIN, "--hidden", "8"]) == 0
        assert capfd.readouterr().out.startswith(line)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--torch-threads", -1], "--torch-threads must be at least 0, got -1"),
        (["--model", "gat", "--hidden", 10, "--heads", 4], "--hidden 10 must be a multiple of --heads 4"),
        (["--weight-decay", "nan"], "--weight-decay must be 0 or more, got nan"),
        (["--checkpoint-every-s", -5], "must be 0 or more, got -5"),
        (["--lr", "inf"], "--lr must be positive, got inf"),
        (["--seed", 1 << 70], "--seed must lie in [0, 2**64)"),
        (["--batches-per-epoch", 0], "--batches-per-epoch must be at least 1, got 0"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_numbers_that_cannot_be(options, what, store, tmp_path, capfd):
    assert what in said(capfd, "train", store, "--out", tmp_path / "run", *options)
    assert not (tmp_path / "run").exists()


def test_graph_without_edges_trains(tmp_path, capfd):
    data = make_data()
    data.edge_index = torch.zeros(2, 0, dtype=torch.int64)
    ingest(data, tmp_path / "store")
    for model in ("sage", "gcn", "gat", "gin"):
        code, error = call(capfd, "train", tmp_path / "store", "--out", tmp_path / model, "--model", model, *TRAIN)
        assert code == 0, error


def test_nodes_without_neighbours_and_isolated_seeds_train(tmp_path, capfd):
    data = make_data()
    data.edge_index = data.edge_index[:, (data.edge_index < 300).all(dim=0)]  # the last hundred nodes stand alone
    ingest(data, tmp_path / "store")
    code, error = call(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)
    assert code == 0, error
    alone = NeighborLoader(Store.open(tmp_path / "store"), [3], input_nodes=torch.tensor([399]), batch_size=4)
    assert next(iter(alone)).edge_index.shape == (2, 0)


@pytest.mark.parametrize("missing", ["y", "train_mask"])
def test_missing_labels_and_splits(missing, tmp_path, capfd):
    data = make_data()
    delattr(data, missing)
    data.num_nodes = 400
    ingest(data, tmp_path / "store")
    said(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)
    for part in ("train", "val", "test"):
        data.pop(f"{part}_mask", None)
    data.y = torch.zeros(400, dtype=torch.long)
    bare = ingest(data, tmp_path / "bare").path
    for command in (("train", bare, "--out", tmp_path / "run", *TRAIN), ("plan", bare)):
        assert "has no split into train, val and test" in said(capfd, *command)
    data = make_data()
    for part in ("train", "val", "test"):
        data[f"{part}_mask"] = torch.stack([data[f"{part}_mask"], data[f"{part}_mask"]], dim=1)
    several = ingest(data, tmp_path / "several").path
    assert "choose one by --split: '0', '1'" in said(capfd, "train", several, "--out", tmp_path / "run", *TRAIN)
    assert call(capfd, "train", several, "--out", tmp_path / "run", *TRAIN, "--split", "1")[0] == 0


@pytest.mark.parametrize("is_matrix", [False, True])
def test_labels_that_are_none(is_matrix, tmp_path, capfd):
    data = make_data()
    data.y = torch.stack([data.y % 2, data.y], dim=1) if is_matrix else torch.full_like(data.y, -1)
    ingest(data, tmp_path / "store")
    message = said(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)
    assert ("something else than 0 and 1" if is_matrix else "has a label") in message


def test_labels_that_are_not_whole(tmp_path, capfd):
    data = make_data()
    data.y = data.y + 0.5
    ingest(data, tmp_path / "store")
    assert "node 0 has 0.5" in said(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", "--metric", "accuracy", *TRAIN)


def test_labels_that_are_all_equal(tmp_path, capfd):
    data = make_data()
    data.y = torch.full((400,), 0.5)
    ingest(data, tmp_path / "store")
    message = said(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)
    assert "train nodes have the same, there is nothing to learn" in message


def test_features_without_a_column(tmp_path, capfd):
    data = make_data()
    data.x = data.x[:, :0]
    ingest(data, tmp_path / "store")
    assert "got shape [400, 0]" in said(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)


def test_normalizing_no_features(tmp_path, capfd):
    path = make_bare_store(tmp_path / "store").path
    said(capfd, "train", path, "--out", tmp_path / "run", *TRAIN, "--normalize", "rows")


@pytest.mark.parametrize("num_workers", ["1000", "-1"])
def test_too_many_threads(num_workers, store, tmp_path, capfd):
    said(capfd, "train", store, "--out", tmp_path / "run", "--num-workers", num_workers)


def test_no_threads_is_fine(store, tmp_path, capfd):
    assert call(capfd, "train", store, "--out", tmp_path / "run", *TRAIN)[0] == 0


def test_a_run_that_is_there(store, tmp_path, capfd):
    assert call(capfd, "train", store, "--out", tmp_path / "run", *TRAIN)[0] == 0
    before = (tmp_path / "run" / "checkpoint.pt").read_bytes()
    said(capfd, "train", store, "--out", tmp_path / "run", *TRAIN)
    said(capfd, "train", store, "--out", tmp_path / "run", *TRAIN, "--resume", "--hidden", "7")
    assert (tmp_path / "run" / "checkpoint.pt").read_bytes() == before


def test_resume_needs_no_settings_again(store, tmp_path, capfd):
    run = tmp_path / "run"
    assert call(capfd, "train", store, "--out", run, *TRAIN, "--hidden", 7, "--layers", 3, "--checkpoint-every-s", 9)[0] == 0
    assert call(capfd, "train", store, "--out", run, "--resume", "--epochs", 2)[0] == 0
    report = json.loads((run / "report.json").read_text())
    assert report["epochs"] == 2
    told = json.loads((run / "config.json").read_text())
    assert (told["hidden"], len(told["num_neighbors"]), told["checkpoint_every_s"]) == (7, 3, 9.0)
    assert "--num-neighbors" in said(capfd, "train", store, "--out", run, "--resume", "--layers", 2)
    assert "--num-neighbors" in said(capfd, "train", store, "--out", run, "--resume", "--num-neighbors", "4,4")
    assert call(capfd, "train", store, "--out", tmp_path / "new", "--resume", "--epochs", 1)[0] == 0, "nothing there: from the beginning"
    (run / "config.json").write_text("{")
    assert "config.json" in said(capfd, "train", store, "--out", run, "--resume")


def test_a_run_in_the_folder_of_a_store(store, tmp_path, monkeypatch, capfd):
    before = sorted(store.rglob("*"))
    assert "is a store" in said(capfd, "train", store, *TRAIN, "--out", store)
    assert f"is in the store {store}:" in said(capfd, "train", store, *TRAIN, "--out", store / "edges")
    (tmp_path / "link").symlink_to(store)
    assert f"is in the store {store}:" in said(capfd, "train", store, *TRAIN, "--out", tmp_path / "link" / "new" / "run")
    monkeypatch.chdir(store)
    assert f"runs/store-1 is in the store {store}:" in said(capfd, "train", ".", *TRAIN)
    assert sorted(store.rglob("*")) == before


def test_a_run_beneath_a_manifest_of_something_else(store, tmp_path, capfd):
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    assert call(capfd, "train", store, *TRAIN, "--out", tmp_path / "run")[0] == 0


def test_two_processes_at_one_place(store, tmp_path, capfd):
    from penstock.train.folder import lock_folder

    with lock_folder(tmp_path / "run"):
        said(capfd, "train", store, "--out", tmp_path / "run", *TRAIN)
    left, right = Store.open(store), Store.open(store)  # opening is for any number of readers
    assert left.num_nodes == right.num_nodes


def test_a_file_of_predictions_that_cannot_be(store, tmp_path, capfd):
    said(capfd, "train", store, *TRAIN, "--predictions", "classes.txt")
    said(capfd, "train", store, *TRAIN, "--predictions", "nowhere/classes.csv")
    assert not list(tmp_path.iterdir())
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in said(capfd, "train", store, *TRAIN, "--predictions", "folder.csv")
    assert "is in the store" in said(capfd, "train", store, *TRAIN, "--predictions", store / "nodes" / "node" / "y.npy")


def test_predictions_through_a_link(store, tmp_path, capfd):
    (tmp_path / "link.csv").symlink_to("blob")
    assert call(capfd, "train", store, *TRAIN, "--predictions", "link.csv")[0] == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "blob").read_text().startswith("id,class\n0,")
    (tmp_path / "link.npy").symlink_to("other-blob")
    assert call(capfd, "train", store, *TRAIN, "--predictions", "link.npy")[0] == 0
    assert (tmp_path / "other-blob").read_bytes().startswith(b"\x93NUMPY")
    assert "File name too long" in said(capfd, "train", store, *TRAIN, "--out", "x" * 300)


def test_a_path_that_is_no_text(store, tmp_path, capfd):
    shutil.copytree(store, tmp_path / os.fsdecode(b"g\xff"))
    assert call(capfd, "train", tmp_path / os.fsdecode(b"g\xff"), *TRAIN, "--out", "run")[0] == 0
    assert (tmp_path / "run" / "report.html").stat().st_size


def test_resume_passes_over_folders_in_which_nothing_began(store, tmp_path, capfd):
    assert call(capfd, "train", store, *TRAIN)[0] == 0
    (tmp_path / "runs" / "store-2").mkdir()
    assert call(capfd, "train", store, "--resume", "--epochs", "2")[0] == 0
    assert json.loads((tmp_path / "runs" / "store-1" / "report.json").read_text())["epochs"] == 2


def test_a_second_run_gets_a_folder_of_its_own(store, tmp_path, capfd):
    for arguments, epochs in ((), [1]), ((), [1, 1]), (("--resume", "--epochs", "2", "--predictions", "classes.csv"), [1, 2]):
        assert call(capfd, "train", store, *TRAIN, *arguments)[0] == 0
        reports = [json.loads((tmp_path / "runs" / f"store-{i + 1}" / "report.json").read_text()) for i in range(len(epochs))]
        assert [report["epochs"] for report in reports] == epochs
    assert (tmp_path / "classes.csv").read_text().startswith("id,class\n0,")


def test_two_runs_that_begin_at_once_get_folders_of_their_own(store, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(train, "default_folder", lambda *arguments: Path("runs/store-1"))
    with train.claimed(Path("runs/store-1")):
        assert call(capfd, "train", store, *TRAIN)[0] == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["store-2"]


def test_more_than_a_container_has(store, capfd, monkeypatch):
    def train(*options):
        return said(capfd, "train", store, *TRAIN, *options)

    monkeypatch.setattr(budget, "free_in_container", lambda: 1000)
    assert "--features memory takes 6 KiB" in train("--features", "memory")
    assert "--topology memory takes" in train("--topology", "memory")
    assert "--cache 50% takes" in train("--policy", "degree", "--cache", "50%")
    assert "--host-memory 2GiB takes" in train("--host-memory", "2GiB")
    assert "a process that tries a plan takes 320.0 MiB, and the container" in said(capfd, "plan", store)
    for module in ("penstock.train.run", "penstock.feed.fit.room"):
        monkeypatch.setattr(f"{module}.free_in_container", lambda: 1000)
    monkeypatch.setattr("penstock.feed.fit.room.anonymous_bytes", lambda: 0)
    assert "has 1000 B left: give it more memory, or take smaller batches or fanouts" in train("--features", "given")
    monkeypatch.setattr("penstock.train.learner.Learner.num_bytes_to_come", 1001)
    assert (
        "in place of features takes 64.0 MiB, and the container around this process has 1000 B left: give it more memory, features, or"
        in train()
    )
    monkeypatch.undo()
    left = iter([1 << 40])
    monkeypatch.setattr(budget, "free_in_container", lambda: next(left, 0))
    monkeypatch.setattr(assemble, "format_bytes", lambda count: f"{count} bytes")
    monkeypatch.setattr("penstock.feed.fit.memory.MARGIN", 0.01)
    assert "has counted on" in train("--host-memory", "2GiB")


@pytest.mark.parametrize("command", ["train", "infer", "aggregate", "layout", "plan", "study cache"])
def test_no_room_for_torch(command, store, tmp_path, capfd, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")  # as before it is loaded
    monkeypatch.setattr(budget, "free_in_container", lambda: (320 << 20) - 1)
    destination = [tmp_path / "aggregated"] if command == "aggregate" else []
    assert "torch with PyG takes 320.0 MiB, and the container" in said(capfd, *command.split(), store, *destination)


def test_plans(store, capfd, monkeypatch):
    def train(*options):
        return said(capfd, "train", store, *TRAIN, *options)

    assert "no recipe 'cake': choose one of pyg" in train("--recipe", "cake")
    assert "--neighbor-layout must be one of direct, prefix" in train("--neighbor-layout", "tree")
    assert "got 'fifo'" in train("--neighbor-policy", "fifo")
    assert "--neighbor-cache 5 rows" in train("--neighbor-policy", "ratio", "--neighbor-cache", "5 rows")
    assert "more than all lists" in train("--neighbor-policy", "ratio", "--neighbor-cache", "101%")
    assert "choose one of random" in train("--neighbor-cache", "10%")
    assert "--cache 10% keeps nothing without --policy" in train("--cache", "10%")
    assert "--policy fifo keeps nothing without --cache" in train("--policy", "fifo")
    assert "it needs --policy" in train("--neighbor-cache", "shared", "--neighbor-policy", "ratio")
    assert "leave --device-policy fifo out" in train("--recipe", "ducati", "--device-policy", "fifo")
    assert "--cache 9 rows counts" in train("--recipe", "ducati", "--cache", "9 rows")
    assert "for lists of 400 nodes" in train("--neighbor-policy", "ratio", "--neighbor-cache", "1KiB")
    assert "does not even hold the tables of rows and lists" in train("--recipe", "ducati", "--cache", "1KiB")
    assert "'fast' of --slow-topology" in train("--slow-topology", "fast")
    assert "is the simulated device of --slow, which is not given" in train("--slow-topology", "same")
    assert "a block" in train("--slow-topology", "1GB/s,4 rows,4KiB blocks")
    assert "iB process" in train("--host-memory", "64MiB")
    assert "--host-memory decides --window" in train("--host-memory", "4GiB", "--window", "3")
    train("--host-memory", "4GiB", "--non-stop")
    assert "--evaluation must be one of" in train("--evaluation", "never")
    assert "--hold must be one of" in train("--hold", "all")
    assert "give --features disk, and neither --slow nor" in train("--spool", "1GiB", "--policy", "degree")
    spooled = ("--features", "disk", "--policy", "degree", "--cache", "10%", "--spool")
    assert "holds no rows" in train(*spooled, "1KiB")
    assert "must know what --policy will miss" in train(*spooled, "1GiB", "--policy", "fifo")
    assert "must know what --policy will miss" in train("--spool", "1GiB", "--host-memory", "4GiB", "--recipe", "ginex")
    assert "holds no rows" in train("--spool", "1KiB", "--host-memory", "4GiB")
    assert "give --spool too" in train("--spool-folder", "nowhere")
    assert "(--spool-folder)" in train(*spooled, "1GiB", "--spool-folder", "nowhere")
    monkeypatch.setattr("penstock.feed.setup.choices.MAX_NODES", 399)
    monkeypatch.setattr("penstock.cache.choose.degree_hotness", None)  # nothing is ranked before
    assert "--policy degree keeps rows of at most 399 nodes" in train("--policy", "degree", "--cache", "10%")
    assert "--host-memory 4GiB keeps rows of at most 399 nodes" in train("--host-memory", "4GiB")
