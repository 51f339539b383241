"""`penstock infer`: the rows of a finished run, for all nodes."""

import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import penstock
from penstock.cli import run as command
from penstock.errors import StateError
from penstock.inference import shelves
from penstock.train import TrainConfig, infer_run, tables, train
from tests.train.stores import make_bare_store, make_data, make_store, make_typed_store

SETTINGS = {"num_neighbors": (4, 3), "batch_size": 64, "hidden": 8, "epochs": 3, "num_workers": 0, "lr": 0.02}
STORES = {"plain": make_store, "bare": make_bare_store, "typed": make_typed_store}


@pytest.fixture(scope="module", params=["plain", "bare", "typed"])
def trained(request, tmp_path_factory):
    """(folder of the run, its store, the classes that training itself predicts)."""
    folder = tmp_path_factory.mktemp(request.param)
    store = STORES[request.param](folder / "store")
    config = TrainConfig(store=str(store.path), model="gcn" if request.param == "plain" else "auto", **SETTINGS)
    train(config, folder / "run", predictions=folder / "classes.npy")
    return folder / "run", store, np.load(folder / "classes.npy")


@pytest.mark.parametrize("options", [{}, {"host_memory": "3GiB"}, {"host_memory": "3GiB", "spool": "64MiB"}], ids=str)
def test_outputs(options, trained, tmp_path):
    folder, store, classes = trained
    is_bare = "x" not in store.node_fields(store.node_types[0])
    if is_bare and options:
        with pytest.raises(penstock.errors.UsageError, match="are in memory"):  # rows that are learnt
            infer_run(folder, tmp_path / "rows.npy", **options)
        return
    made = infer_run(folder, tmp_path / "rows.npy", batch_size=100, **options)
    rows = np.load(tmp_path / "rows.npy")
    assert made["shape"] == list(rows.shape)
    assert rows.dtype == np.float32
    assert np.array_equal(rows.argmax(1), classes)


def test_hidden_rows_are_what_the_last_layer_reads(trained, tmp_path):
    folder, store, _ = trained
    infer_run(folder, tmp_path / "hidden.npy", rows="hidden")
    hidden = np.load(tmp_path / "hidden.npy")
    assert hidden.shape == (max(store.num_nodes["paper" if "paper" in store.num_nodes else "node"], 1), 8)
    infer_run(folder, tmp_path / "outputs.npy")
    assert np.load(tmp_path / "outputs.npy").shape[1] != 8


@pytest.fixture
def named(tmp_path):
    """(folder of a run, its store), of nodes with ids of the user's that are not in order."""
    data, ids = make_data(), np.array([f"n{7 * i % 400}" for i in range(400)])
    part = np.array(["train", ""] * 200)
    pq.write_table(pa.table({"id": ids, "x": list(data.x.numpy()), "y": data.y.numpy(), "part": part}), tmp_path / "nodes.parquet")
    src, dst = ids[data.edge_index.numpy()]
    pq.write_table(pa.table({"src": src, "dst": dst}), tmp_path / "edges.parquet")
    tables = {"nodes": tmp_path / "nodes.parquet", "node_fields": {"x": "x", "y": "y"}, "split": "part"}
    store = penstock.ingest(tmp_path / "edges.parquet", tmp_path / "store", **tables)
    train(TrainConfig(store=str(store.path), **SETTINGS), tmp_path / "run")
    return tmp_path / "run", store


@pytest.mark.parametrize("rows", ["outputs", "hidden"])
def test_a_table_under_the_users_ids(rows, named, tmp_path, monkeypatch):
    """Written in pieces; and what is made of it by ingestion."""
    folder, store = named
    infer_run(folder, tmp_path / "rows.npy", rows=rows)
    monkeypatch.setattr(tables, "_BYTES", 1000)
    assert infer_run(folder, tmp_path / "rows.parquet", rows=rows)["shape"] == [400, 8 if rows == "hidden" else 4]
    table, made = pq.read_table(tmp_path / "rows.parquet"), np.load(tmp_path / "rows.npy")
    assert pq.ParquetFile(tmp_path / "rows.parquet").num_row_groups == math.ceil(400 / (1000 // made[:1].nbytes))
    assert table.column_names == ["id", rows]
    assert table["id"].to_pylist() == store.original_ids(np.arange(400))
    assert np.array_equal(np.stack(table[rows].to_numpy()), made)
    nodes = {"nodes": tmp_path / "rows.parquet", "node_fields": {"x": rows}}
    again = penstock.ingest(tmp_path / "edges.parquet", tmp_path / "again", **nodes)
    assert np.array_equal(again.node_field("x"), made)


def test_predictions_are_those_of_training(trained, tmp_path, capfd):
    folder, _, classes = trained
    infer_run(folder, tmp_path / "classes.npy", rows="predictions")
    made = np.load(tmp_path / "classes.npy")
    assert (made.dtype, made.tolist()) == (classes.dtype, classes.tolist())
    assert command(["infer", str(folder), "--rows", "predictions", "--out", str(tmp_path / "classes.csv")]) == 0
    assert capfd.readouterr()[0].startswith(f"{tmp_path / 'classes.csv'}: a row for each ")
    assert (tmp_path / "classes.csv").read_text().splitlines() == ["id,class", *(f"{i},{one}" for i, one in enumerate(classes))]


@pytest.mark.parametrize("kind", ["array", "npy", "csv", "parquet"])
def test_some_nodes_by_the_users_ids(kind, named, tmp_path, monkeypatch):
    """In the order in which they are given."""
    folder, store = named
    nodes = np.random.default_rng(3).permutation(400)[:30]
    ids, given = store.original_ids(nodes), tmp_path / f"some.{kind}"
    if kind == "npy":
        np.save(given, nodes)
    elif kind == "csv":
        given.write_text("note,id\n" + "".join(f"x,{one}\n" for one in ids))
    elif kind == "parquet":
        pq.write_table(pa.table({"id": ids}), given, row_group_size=7)
    monkeypatch.setattr(tables, "_BYTES", 100)
    infer_run(folder, tmp_path / "all.npy")
    made = infer_run(folder, tmp_path / "rows.npy", nodes=nodes if kind == "array" else given)
    assert (made["shape"], made["num_nodes"]) == ([30, 4], 400)
    whole = np.load(tmp_path / "all.npy")
    np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), whole[nodes], atol=1e-6)
    infer_run(folder, tmp_path / "rows.parquet", nodes=given if kind != "array" else nodes, rows="predictions")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table["id"].to_pylist() == ids
    assert table["class"].to_pylist() == whole[nodes].argmax(1).tolist()


def test_nodes_of_a_part(trained, tmp_path, capfd):
    """In a file of its own, so that rows of all nodes stay."""
    folder, store, classes = trained
    nodes, target = store.split("test"), "paper" if "paper" in store.num_nodes else "node"
    command_line = ["infer", str(folder), "--nodes", "test", "--rows", "predictions"]
    assert command(command_line) == 0
    what = f"int64 [{nodes.size:,}], a row for {nodes.size:,} of {store.num_nodes[target]:,} nodes of type '{target}', in "
    assert capfd.readouterr()[0].startswith(f"{folder / 'predictions-test.npy'}: {what}")
    assert np.array_equal(np.load(folder / "predictions-test.npy"), classes[nodes])


def test_a_part_and_a_file_of_its_name(trained, tmp_path, monkeypatch):
    """Folders called `test` are common, and say nothing of nodes."""
    folder, store, classes = trained
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test").mkdir()
    (tmp_path / "train").write_bytes(b"")
    with open(tmp_path / "val", "wb") as file:
        np.save(file, np.arange(3))
    for part in ("train", "val", "test"):
        infer_run(folder, "classes.npy", rows="predictions", nodes=part)
        assert np.array_equal(np.load("classes.npy"), classes[store.split(part)])
    infer_run(folder, "classes.npy", rows="predictions", nodes="./val")
    assert np.array_equal(np.load("classes.npy"), classes[:3])
    np.save("new.npy", np.arange(2))
    assert infer_run(folder, rows="predictions", nodes=tmp_path / "new.npy")["out"] == str(folder / "predictions-new.npy")
    assert infer_run(folder, rows="predictions", nodes=np.arange(2))["out"] == str(folder / "predictions-some.npy")


def test_hidden_and_outputs_are_not_mixed_up(trained, tmp_path, monkeypatch, capfd):
    folder = trained[0]
    append = shelves.FileShelf.append

    def fail(self, *args, **options):
        append(self, *args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(shelves.FileShelf, "append", fail)
    for times in range(2):  # nothing to speak of, then some rows
        assert command(["infer", str(folder), "--out", str(tmp_path / "rows.npy"), "--batch-size", "50"]) == 130
        assert ("rows.npy.unfinished: the same command goes on" in capfd.readouterr()[1]) == bool(times)
    monkeypatch.undo()
    with pytest.raises(penstock.errors.StateError, match="layers"):
        infer_run(folder, tmp_path / "rows.npy", rows="hidden", batch_size=50)
    infer_run(folder, tmp_path / "rows.npy", batch_size=50)
    whole = np.load(tmp_path / "rows.npy")
    infer_run(folder, tmp_path / "again.npy", batch_size=50)
    assert np.array_equal(whole, np.load(tmp_path / "again.npy"))


def test_a_command(trained, tmp_path, capfd):
    folder, store, _ = trained
    moved = tmp_path / "elsewhere"
    moved.symlink_to(store.path)
    out = tmp_path / "rows.npy"
    assert command(["infer", str(folder), "--out", str(out), "--store", str(moved), "--num-workers", "0"]) == 0
    printed, error = capfd.readouterr()
    assert printed.startswith(f"{out}: float32 [")
    assert "over all neighbours" in error
    assert command(["infer", str(folder), "--json"]) == 0
    made = json.loads(capfd.readouterr()[0])
    assert made["out"] == str(folder / "outputs.npy")
    assert made["shape"] == list(np.load(out).shape)
    assert np.array_equal(np.load(out), np.load(folder / "outputs.npy"))


def test_the_best_weights_are_taken(tmp_path):
    store = make_store(tmp_path / "store")
    result = train(TrainConfig(store=str(store.path), **SETTINGS), tmp_path / "run")
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    state["model"] = {name: torch.zeros_like(weights) for name, weights in state["model"].items()}  # of epochs after the best
    torch.save(state, tmp_path / "run" / "checkpoint.pt")
    made = infer_run(tmp_path / "run", tmp_path / "rows.npy")
    assert made["epoch"] == result.best_epoch + 1
    rows, y, test = np.load(tmp_path / "rows.npy"), np.array(store.node_field("y")), np.array(store.split("test"))
    assert float((rows[test].argmax(1) == y[test]).mean()) == pytest.approx(result.test)


def ingest_day(folder, ids, shops, *, is_labelled=True, width=3):
    """A store of people by name, and of shops, which have no table and learn rows; features and where they buy follow from names."""
    folder.mkdir()
    numbers = np.array([int(one[1:]) for one in ids])
    words = np.array(["even", "odd"])[numbers % 2]
    features = np.stack([numbers % 2, *[numbers % 3] * (width - 1)], axis=1).astype(np.float32)
    pq.write_table(
        pa.table({"id": ids, "x": list(features), "y": words, "part": np.where(numbers % 5 == 0, "val", "train")}),
        folder / "people.parquet",
    )
    where = [shops[number * turn % len(shops)] for number in numbers for turn in (1, 3)]
    pq.write_table(pa.table({"src": where, "dst": np.repeat(ids, 2)}), folder / "buys.parquet")
    people = {"files": folder / "people.parquet", "id": "id", "fields": {"x": "x"}}
    people |= {"fields": {"x": "x", "y": "y"}, "split": "part"} if is_labelled else {}
    described = {"nodes": {"person": people}, "edges": {"shop__sells__person": {"files": folder / "buys.parquet"}}}
    return penstock.ingest(described, folder / "store")


def test_another_day(tmp_path):
    """The rows of those who were there, over the graph as it is now: in another order, and among shops that come before all others."""
    ids, shops = [f"p{i}" for i in range(60)], [f"s{i}" for i in range(5)]
    first = ingest_day(tmp_path / "first", ids, shops)
    train(TrainConfig(store=str(first.path), **SETTINGS), tmp_path / "run")
    infer_run(tmp_path / "run", tmp_path / "first.npy")
    before, said = np.load(tmp_path / "first.npy"), []
    for is_labelled in (True, False):
        second = ingest_day(tmp_path / f"second-{is_labelled}", [*ids[::-1], "p70"], [*shops, "a0"], is_labelled=is_labelled)
        with pytest.raises(StateError, match="or say inductive=True to apply the model to another graph"):
            infer_run(tmp_path / "run", tmp_path / "rows.npy", store=second.path)
        heard = SimpleNamespace(note=said.append, begin=lambda *_: None, advance=lambda _: None, end=lambda: None)
        infer_run(tmp_path / "run", tmp_path / f"{is_labelled}.parquet", store=second.path, inductive=True, progress=heard)
        table = pq.read_table(tmp_path / f"{is_labelled}.parquet")
        rows = dict(zip(table["id"].to_pylist(), np.stack(table["outputs"].to_numpy()), strict=True))
        alike = [i for i in range(60) if (i * 1) % 6 == i % 5 and (i * 3) % 6 == (i * 3) % 5]  # who buys where they did
        assert len(alike) == 4
        for i in alike:
            assert np.allclose(rows[f"p{i}"], before[i], atol=1e-6)
        assert "p70" in rows
        infer_run(tmp_path / "run", tmp_path / "classes.csv", rows="predictions", nodes=[60, 3], store=second.path, inductive=True)
        words = [("even", "odd")[rows[one].argmax()] for one in ("p70", "p56")]
        assert (tmp_path / "classes.csv").read_text() == f"id,class\np70,{words[0]}\np56,{words[1]}\n", "the words of the training"
    assert said.count("1 of 6 nodes of 'shop' are new: each gets the mean of the rows that were learnt") == 2


def test_runs_that_do_not_know_their_task(tmp_path):
    """As versions of before left them: of another store, whose words may be others, they say numbers. Of the own one, its words."""
    ids, shops = [f"p{i}" for i in range(60)], [f"s{i}" for i in range(5)]
    first, second = (ingest_day(tmp_path / day, ids[start:], shops) for day, start in (("first", 0), ("second", 1)))
    train(TrainConfig(store=str(first.path), **SETTINGS), tmp_path / "run")
    file, other = tmp_path / "run" / "checkpoint.pt", {"store": second.path, "inductive": True}
    state = torch.load(file, weights_only=True)
    without = {name: value for name, value in state.items() if name not in ("task", "target")}
    unnamed = state | {"task": {name: value for name, value in state["task"].items() if name != "class_names"}}
    for left in (without, unnamed):
        torch.save(left, file)
        for options, words in (({}, {"even", "odd"}), (other, {"0", "1"})):
            infer_run(tmp_path / "run", tmp_path / "classes.csv", rows="predictions", **options)
            assert {line.split(",")[1] for line in (tmp_path / "classes.csv").read_text().splitlines()[1:]} <= words
    torch.save(state | {"task": {"kind": "riddles"}}, file)
    with pytest.raises(penstock.errors.CorruptStoreError, match=r"cannot read the checkpoint .*: 'riddles'"):
        infer_run(tmp_path / "run", **other)


@pytest.mark.parametrize(("of_first", "of_second"), [("number", "int"), ("int", "number"), ("int", "int")])
def test_ids_that_are_numbers_of_nodes(tmp_path, of_first, of_second):
    """Where a store has no other ids, the number of a node is its id."""
    ids, found = np.arange(9), []
    pq.write_table(pa.table({"src": ids, "dst": (ids + 1) % 9}), tmp_path / "edges.parquet")
    for day, kind in enumerate([of_first, of_second]):
        rows = ids if kind == "number" else np.random.default_rng(day).permutation(ids)
        table = pa.table({"y": rows % 2, "part": ["train"] * 9, **({} if kind == "number" else {"id": rows})})
        pq.write_table(table, tmp_path / "nodes.parquet")
        options = {"nodes": tmp_path / "nodes.parquet", "node_fields": {"y": "y"}, "split": "part"}
        store = penstock.ingest(tmp_path / "edges.parquet", tmp_path / str(day), **options)
        if not day:
            train(TrainConfig(store=str(store.path), **SETTINGS), tmp_path / "run")
        infer_run(tmp_path / "run", tmp_path / "rows.npy", store=store.path, inductive=True)
        found.append(np.load(tmp_path / "rows.npy")[np.argsort(rows)])
    np.testing.assert_allclose(*found, atol=1e-6)


def test_another_store_that_does_not_fit(tmp_path):
    ids, shops = [f"p{i}" for i in range(60)], [f"s{i}" for i in range(5)]
    first = ingest_day(tmp_path / "first", ids, shops)
    train(TrainConfig(store=str(first.path), **SETTINGS), tmp_path / "run")
    wider = ingest_day(tmp_path / "wider", ids, shops, width=4)
    with pytest.raises(StateError, match=r"has other types, .*: inputs.person.weight is \[8, 3\] there, \[8, 4\] here"):
        infer_run(tmp_path / "run", store=wider.path, inductive=True)
    with pytest.raises(penstock.errors.UsageError, match="target='person' is not a node type of"):
        infer_run(tmp_path / "run", store=make_store(tmp_path / "plain").path, inductive=True)
    second = ingest_day(tmp_path / "second", [*ids, "p70"], shops)
    shutil.rmtree(first.path)
    with pytest.raises(StateError, match="nodes of 'shop' have learnt rows"):
        infer_run(tmp_path / "run", store=second.path, inductive=True)
    with pytest.raises(penstock.errors.MissingFileError, match=r"the store that .* was trained on, is not there"):
        infer_run(tmp_path / "run")
