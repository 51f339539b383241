"""The class of every node in a file: the best weights, over full neighbourhoods, under the ids of the user."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.errors import StoreError, UsageError
from penstock.store import Store, ingest
from penstock.train import TrainConfig, train
from penstock.train.task import micro_f1
from tests.train.stores import make_data, make_store, make_typed_store, multi_labels

QUICK = dict(num_neighbors=(4, 3), batch_size=32, hidden=16, epochs=4, num_workers=0, lr=0.01)


def predict(store, folder, name="predictions.npy", **options):
    result = train(TrainConfig(store=str(store.path), **QUICK), folder / "run", predictions=folder / name, **options)
    if name.endswith(".parquet"):
        return result, pq.read_table(folder / name)
    return result, np.load(folder / name) if name.endswith(".npy") else list(csv.reader((folder / name).read_text().splitlines()))


@pytest.mark.parametrize("make", [make_store, make_typed_store])
def test_predictions_are_those_that_were_scored(make, tmp_path):
    store = make(tmp_path / "store")
    result, classes = predict(store, tmp_path)
    target = result.description["target"]
    labels, test, val = store.node_field("y", target), store.split("test"), store.split("val")
    assert (classes.shape, classes.dtype) == (labels.shape, np.int64)
    assert result.test == np.mean(classes[test] == labels[test])
    assert result.val == np.mean(classes[val] == labels[val])
    again, rows = predict(store, tmp_path, "predictions.csv", resume=True)
    assert again.weights_digest == result.weights_digest, "nothing is trained again"
    assert rows == [["id", "class"], *([str(i), str(c)] for i, c in enumerate(classes))]


def test_predictions_of_several_labels(tmp_path):
    store = ingest(make_data(labels=multi_labels()), tmp_path / "store")
    result, labels = predict(store, tmp_path)
    test = store.split("test")
    assert result.test == micro_f1(labels[test] > 0, store.node_field("y")[test] > 0)
    _, rows = predict(store, tmp_path, "predictions.csv", resume=True)
    assert rows[0] == ["id", "label_0", "label_1", "label_2"]
    assert np.array_equal(np.array(rows[1:], dtype=int)[:, 1:], labels)
    _, table = predict(store, tmp_path, "predictions.parquet", resume=True)
    assert table.column_names == rows[0]
    assert np.array_equal(np.array([table[name].to_numpy() for name in rows[0][1:]]).T, labels)


def test_predictions_without_val_and_test_and_under_ids_of_the_user(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst\n" + "".join(f"n{i},n{(7 * i + 1) % 60}\n" for i in range(60)))
    lines = [f"n{59 - i},{i % 2},{('cat', 'big dog')[i % 2]},{'train' if i < 40 else ''}" for i in range(60)]
    (tmp_path / "nodes.csv").write_text("id,a,y,part\n" + "\n".join(lines) + "\n")
    tables = dict(nodes=tmp_path / "nodes.csv", node_fields={"x": "a", "y": "y"}, split="part")
    store = ingest(tmp_path / "edges.csv", tmp_path / "store", **tables)
    _, classes = predict(store, tmp_path)
    _, rows = predict(store, tmp_path, "predictions.csv", resume=True)
    assert [row[0] for row in rows[1:]] == [f"n{59 - i}" for i in range(60)] == Store.open(store.path).original_ids(np.arange(60))
    assert [row[1] for row in rows[1:]] == [("big dog", "cat")[c] for c in classes]
    _, table = predict(store, tmp_path, "predictions.parquet", resume=True)
    assert [list(row.values()) for row in table.to_pylist()] == rows[1:]


@pytest.mark.parametrize(("name", "message"), [("p.txt", "ends in .npy, .csv or .parquet"), ("no/p.npy", "does not exist")])
def test_what_cannot_be_written_is_refused_before_training(name, message, tmp_path):
    store = make_store(tmp_path / "store")
    with pytest.raises(UsageError, match=message):
        predict(store, tmp_path, name)
    assert not (tmp_path / "run").exists()


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store")

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(StoreError, match=r"cannot write .*predictions\.npy: No space left on device"):
        predict(store, tmp_path)
    assert not [path for path in tmp_path.iterdir() if "predictions" in path.name]


def test_a_metric_that_cannot_be_said_is_none(tmp_path):
    data = make_data(num_classes=2)
    data.val_mask &= data.y == 1
    result, _ = predict(ingest(data, tmp_path / "store"), tmp_path)
    assert (result.metric, result.val, result.best_epoch) == ("auc", None, QUICK["epochs"] - 1)
    assert result.test > 0.5
