"""Numbers as labels: learnt, scored, predicted and applied to other graphs, in their own unit."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock.records import NODE
from penstock.report.live import summary_of
from penstock.report.page import render
from penstock.store import ingest
from penstock.train import TrainConfig, infer_run, train
from penstock.train.config import MODELS, TYPED_MODELS
from penstock.train.parts import PartsStore
from penstock.train.ranks import Ranks
from tests.train.stores import make_data, make_typed_data

QUICK = dict(num_neighbors=(4, 3), batch_size=32, hidden=16, epochs=20, num_workers=0, lr=0.03, dropout=0.0)


def make_numbers(data, seed=0):
    """Prices that depend on a node's class and features, with noise; a tenth of the nodes have none."""
    random = np.random.default_rng(seed)
    values = 40_000 * (data.y == 0).numpy() + 20_000 * data.x[:, 0].numpy()
    prices = 250_000 + values + random.normal(0, 2_000, len(data.x))
    prices[::10] = np.nan
    data.y = torch.from_numpy(prices)
    return data


def make_store(path, is_typed, seed=0):
    data = make_typed_data() if is_typed else make_data()
    make_numbers(data["paper"] if is_typed else data, seed)
    return ingest(data, path)


def rmse(predicted, labels):
    known = np.isfinite(labels)
    return np.sqrt(np.square(predicted[known].astype(np.float64) - labels[known]).mean())


@pytest.mark.parametrize("model", MODELS)
def test_prices(model, tmp_path):
    is_typed = model in TYPED_MODELS
    store = make_store(tmp_path / "store", is_typed)
    result = train(TrainConfig(store=str(store.path), model=model, **QUICK), tmp_path / "run", predictions=tmp_path / "numbers.npy")
    labels, target = store.node_field("y", result.description["target"]), result.description["target"]
    assert result.metric == "rmse"
    assert result.val < 0.9 * np.nanstd(labels)
    assert result.val == min(record.val for record in result.history) == result.history[result.best_epoch].val
    numbers, test = np.load(tmp_path / "numbers.npy"), store.split("test", None, target)
    assert (numbers.shape, numbers.dtype) == (labels.shape, np.float32)
    assert result.test == pytest.approx(rmse(numbers[test], labels[test]), rel=1e-6)
    infer_run(tmp_path / "run", tmp_path / "rows.npy")
    assert np.load(tmp_path / "rows.npy")[:, 0] == pytest.approx(numbers, rel=1e-6)
    assert "%" not in summary_of(result.history[-1], "rmse")
    assert "rmse, %" not in render(result)


@pytest.mark.parametrize("metric", ["mae", "r2"])
def test_a_run_that_goes_on(metric, tmp_path):
    store = make_store(tmp_path / "store", False)
    config = dict(store=str(store.path), metric=metric, **QUICK)
    whole = train(TrainConfig(**config), tmp_path / "whole")
    train(TrainConfig(**{**config, "epochs": 9}), tmp_path / "parts")
    assert train(TrainConfig(**config), tmp_path / "parts", resume=True).weights_digest == whole.weights_digest
    scores = [record.val for record in whole.history]
    assert whole.val == (min if metric == "mae" else max)(scores)


@pytest.mark.parametrize("order", ["proximity", "community"])
def test_several_numbers(order, tmp_path):
    data = make_numbers(make_data())
    data.y = torch.stack([data.y, -1e-3 * data.y], dim=1)
    store = ingest(data, tmp_path / "store")
    config = TrainConfig(store=str(store.path), metric="r2", order=order, **QUICK)
    result = train(config, tmp_path / "run", predictions=tmp_path / "numbers.csv")
    assert result.test > 0.5
    with open(tmp_path / "numbers.csv", newline="") as file:
        names, *rows = csv.reader(file)
    assert names == ["id", "number_0", "number_1"]
    first, second = np.array(rows, float)[:, 1:].T
    assert np.corrcoef(first, second)[0, 1] < -0.9


def test_counts_are_classes_or_numbers(tmp_path):
    data = make_data()
    data.y = data.y * 10 + 3
    store = ingest(data, tmp_path / "store")
    assert train(TrainConfig(store=str(store.path), **QUICK), tmp_path / "classes").metric == "accuracy"
    result = train(TrainConfig(store=str(store.path), metric="mae", **QUICK), tmp_path / "run", predictions=tmp_path / "numbers.csv")
    assert result.val < 9
    assert (tmp_path / "numbers.csv").read_text().startswith("id,number\n")


def test_numbers_of_a_partition(tmp_path):
    """Are read by the metric, as those of a store are."""
    data = make_data(labels=torch.arange(400).double() - 3)
    data.y[5] = np.nan
    store = ingest(data, tmp_path / "store")
    part = SimpleNamespace(
        number=0, map=lambda spec: store.node_field("y"), split=store.split,
        manifest=SimpleNamespace(digest="", cut_from="", nodes={NODE: SimpleNamespace(fields=store.node_fields())}),
    )  # fmt: skip
    book = SimpleNamespace(owners=np.zeros_like, local=lambda ids, number: ids)
    parts = PartsStore("", SimpleNamespace(part=part, num_nodes={NODE: 400}, books={NODE: book}), Ranks(), None)
    for metric, ids, expected in (("mae", [3, 4, 6], [0.0, 1.0, 3.0]), ("auto", [3, 5, 6], [0, -1, 3])):
        parts.read_labels(TrainConfig(store="", metric=metric), NODE, None)
        found = parts.node_field("y", NODE)[np.array(ids)]
        assert (found.dtype.kind, found.tolist()) == ("f" if metric == "mae" else "i", expected)


def test_another_graph_without_labels(tmp_path):
    """Its numbers are in the unit of the labels that were learnt."""
    store = make_store(tmp_path / "store", False)
    train(TrainConfig(store=str(store.path), **QUICK), tmp_path / "run")
    infer_run(tmp_path / "run", tmp_path / "here.npy")
    data = make_data()
    del data.y
    other = ingest(data, tmp_path / "other")
    infer_run(tmp_path / "run", tmp_path / "there.npy", store=other.path, inductive=True)
    assert np.array_equal(np.load(tmp_path / "there.npy"), np.load(tmp_path / "here.npy"))
