"""Metrics against scikit-learn, and what is read off labels."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from penstock.errors import InputError
from penstock.store import ArraySpec
from penstock.train.labels import as_labels, define_task, exact_sums, has_label
from penstock.train.task import KINDS, OF_NUMBERS, Classes, Labels, Links, Numbers, area_under_roc, micro_f1, normalize_rows, task_of


@given(st.integers(0, 2**32 - 1))
def test_metrics_equal_scikit_learn(seed):
    random = np.random.default_rng(seed)
    scores = random.integers(0, 6, 60) / 5.0  # many ties
    truth = random.integers(0, 2, 60).astype(bool)
    truth[:2] = True, False
    assert area_under_roc(scores, truth) == pytest.approx(metrics.roc_auc_score(truth, scores))
    predicted, actual = random.integers(0, 2, (2, 30, 4)).astype(bool)
    actual[0] = True
    assert micro_f1(predicted, actual) == pytest.approx(metrics.f1_score(actual, predicted, average="micro"))


def test_one_class_has_no_area():
    assert np.isnan(area_under_roc(np.arange(3.0), np.ones(3, bool)))


def test_rows_are_normalized_whatever_their_signs():
    words, signed, sums_to_nothing = [1.0, 1.0, 2.0], [1.0, -4.0, 0.0], [2.0, -2.0, 0.0]
    rows = normalize_rows(torch.tensor([words, signed, sums_to_nothing, [0.0, 0.0, 0.0]]))
    assert rows.tolist() == [[0.25, 0.25, 0.5], pytest.approx([0.2, -0.8, 0.0]), [0.5, -0.5, 0.0], [0.0, 0.0, 0.0]]


def read(labels, metric="auto", dtype=None):
    return as_labels(labels, ArraySpec(file="y.npy", dtype=dtype or str(labels.dtype), shape=labels.shape), "y", metric)


def test_classes_kept_as_floats():
    for labels in (np.array([1.0, np.nan, 0.0], np.float32), np.array([[1.0], [np.nan], [0.0]])):
        assert read(labels).tolist() == [1, -1, 0]
    for labels in (np.arange(3), np.zeros((3, 2))):
        assert read(labels) is labels
    for metric, bad in [*(("accuracy", bad) for bad in (0.5, np.inf, 1e10, -1e300)), ("auto", np.inf)]:
        with pytest.raises(InputError, match=r"y must be classes, whole numbers from 0, or a 0/1 matrix; node 1 has"):
            read(np.array([1.0, bad]), metric)


@pytest.mark.parametrize("metric", OF_NUMBERS)
def test_whole_numbers_that_are_no_classes(metric):
    labels = np.array([[3.0], [-1.0], [np.nan], [7.0]])
    task = define_task(read(labels, metric), np.arange(4), metric, "y")
    assert task == Numbers(1, metric, (3.0,), (pytest.approx(np.std([3, -1, 7])),))
    assert has_label(read(labels, metric), np.arange(4), task).tolist() == [True, True, False, True]
    counts = np.array([3, -1, 5, 7])  # as ingested, where one is missing
    task = define_task(counts, np.arange(3), metric, "y")
    assert task.mean == (4.0,)
    assert has_label(counts, np.arange(4), task).tolist() == [True, False, True, True]


def test_labels_of_half_the_width():
    values = torch.tensor([0.5, 1.0, float("nan"), -2.0]).bfloat16().view(torch.uint16).numpy()
    assert read(values, dtype="bfloat16").tolist() == [0.5, 1.0, pytest.approx(np.nan, nan_ok=True), -2.0]
    assert read(values[1:3], dtype="bfloat16").tolist() == [1, -1]


def test_kinds_of_labels():
    ids = np.arange(4)
    assert define_task(np.array([0, 2, 1, -1]), ids[:3], "auto", "y").metric == "accuracy"
    assert define_task(np.array([0, 1, 1, 0]), ids, "auto", "y").metric == "auc"
    assert define_task(np.array([0, 1, 1, 0]), ids, "accuracy", "y").metric == "accuracy"
    assert define_task(np.array([0, -1, 1, 2]), ids, "auto", "y").num_outputs == 3
    assert define_task(np.zeros((4, 3), np.uint8), ids, "auto", "y").num_outputs == 3
    assert define_task(np.array([[0, 1], [1, 0]], np.float32), ids[:2], "auto", "y").metric == "micro-f1"
    assert define_task(np.array([0.5, 1, 2, 3]), ids, "auto", "y").metric == "rmse"
    assert define_task(np.array([[0.5, 1], [2, np.nan], [3, 4], [5, 6]]), ids, "auto", "y").mean == (8.5 / 3, 11 / 3)


@pytest.mark.parametrize(
    ("labels", "metric", "message"),
    [
        (np.array([-1, -1, -1, -1]), "auto", "none of 4 train nodes has a label in y"),
        (np.zeros((4, 2, 1), int), "auto", "must be classes, numbers or a 0/1 matrix, got int64"),
        (np.array(["a", "b", "c", "d"]), "rmse", "must be classes, numbers or a 0/1 matrix, got <U1"),
        (np.full(4, np.nan), "mae", "none of 4 train nodes has a label in y"),
        (np.full(4, 2.5), "auto", "y: all 4 train nodes have the same, there is nothing to learn"),
        (np.array([0, 0, 0, 0]), "auto", "1 class"),
        (np.array([0, 1, 2, 0]), "auc", "auc takes two: choose another metric"),
        (np.zeros((4, 2), np.uint8), "auc", "multi-label"),
        (np.array([[0, 1], [0, -1], [1, 1], [0, 2]]), "auto", "2 of 4 train nodes have something else than 0 and 1 in y; first is node 1"),
        (np.array([[0, 1], [1, np.nan], [1, 1], [0, 0]]), "auto", "1 of 4 train nodes have something else than 0 and 1"),
    ],
)
def test_bad_labels(labels, metric, message):
    with pytest.raises(InputError, match=message):
        define_task(labels, np.arange(4), metric, "y")


def test_a_label_beyond_the_classes_is_refused():
    with pytest.raises(InputError, match=r"1 of 2 train nodes have a label that is none of 3 classes in y; first is node 2"):
        define_task(np.array([0, -1, 7]), np.arange(1, 3), "auto", "y", num_classes=3)


@pytest.mark.parametrize("is_matrix", [False, True])
def test_which_nodes_have_a_label(is_matrix, monkeypatch):
    monkeypatch.setattr("penstock.train.labels.BLOCK", 3)
    labels = np.array([0, -1, 2, 1, -1, 0, 3])
    if is_matrix:
        labels = np.array([[0, 1], [np.nan, 1], [1, 1], [0, 0], [1, -1], [0, 1], [1, 0]])
    ids = np.array([6, 4, 3, 1, 0, 1, 2])
    task = Labels(2, "micro-f1") if is_matrix else Classes(10, "accuracy")
    assert has_label(labels, ids, task).tolist() == [True, False, True, False, True, False, True]
    assert has_label(labels, ids[:0], task).size == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.sampled_from(OF_NUMBERS))
def test_numbers_are_learnt_in_units_of_their_spread(seed, num_columns, metric):
    random = np.random.default_rng(seed)
    labels, outputs = random.normal(1e9, 1e3, (50, num_columns)), random.normal(size=(50, num_columns)).astype(np.float32)
    given = labels[:, 0] if num_columns == 1 else labels
    task = define_task(given, np.arange(50), metric, "y")
    predicted = outputs * labels.std(0) + labels.mean(0)
    errors = ((predicted - labels) / labels.std(0)).astype(np.float32)
    expected = np.abs(errors).mean() if metric == "mae" else np.square(errors).mean()
    assert float(task.loss(torch.from_numpy(outputs), torch.from_numpy(given))) == pytest.approx(expected, rel=1e-4)
    scores = {"mae": metrics.mean_absolute_error, "rmse": metrics.root_mean_squared_error, "r2": metrics.r2_score}
    assert task.score(outputs, given) == pytest.approx(scores[metric](labels, predicted), rel=1e-6)
    assert task.decide(outputs).shape == given.shape
    assert task.read(outputs) == pytest.approx(predicted.astype(np.float32))
    assert task.is_larger_better == (metric == "r2")
    assert np.isnan(task.score(outputs[:0], given[:0]))


def test_equal_numbers_have_no_r2():
    task = Numbers(1, "r2", (0.0,), (1.0,))
    assert np.isnan(task.score(np.zeros((2, 1), np.float32), np.ones(2)))


TASKS = [Classes(3, "accuracy"), Labels(2, "micro-f1"), Numbers(2, "mae", (1.0, 2.0), (3.0, 4.0)), Links(8, "mrr")]


@pytest.mark.parametrize("task", TASKS)
def test_tasks_are_kept_as_plain_values(task):
    assert task_of(task.as_dict()) == task
    assert set(KINDS.values()) == {type(each) for each in TASKS}
    old = {"num_outputs": 3, "is_multi_label": False, "metric": "accuracy"}
    assert (task_of(old), task_of(old | {"is_multi_label": True})) == (Classes(3, "accuracy"), Labels(3, "accuracy"))


@given(st.lists(st.tuples(*[st.floats(-1e300, 1e300)] * 2), max_size=20), st.randoms())
def test_sums_are_exact(rows, random):
    """Whatever the order, and however they are divided."""
    random.shuffle(rows)
    place, unit = random.randint(0, len(rows)), Fraction(1, 2**1126)
    values = np.array(rows).reshape(-1, 2)
    sums = exact_sums(values[:place]) + exact_sums(values[place:])
    assert [each * unit for each in sums] == [sum(map(Fraction, column), Fraction()) for column in values.T]


def test_exact_sums_of_many():
    values = np.random.default_rng(0).standard_normal((1 << 20, 1)) * 1e3
    values[:3, 0] = 5e-324, -np.finfo(np.float64).max, np.finfo(np.float64).max
    (found,) = exact_sums(values)
    assert float(Fraction(found, 2**1126)) == math.fsum(values[:, 0])


@pytest.mark.parametrize("value", [0.1, 1e9 + 0.3, -1e-20])
def test_equal_numbers_stay_equal_however_many(value):
    """Their sum is exact, so that their mean is the number; however close others are, they have a spread."""
    with pytest.raises(InputError, match="all 300000 train nodes have the same"):
        define_task(np.full(300_000, value), np.arange(300_000), "rmse", "y")
    close = value + abs(value) * 1e-9 * np.arange(300_000)
    assert define_task(close, np.arange(300_000), "rmse", "y").spread[0] == pytest.approx(close.std())
    next_to_it = np.array([value, np.nextafter(value, np.inf)] * 4)
    assert define_task(next_to_it, np.arange(8), "rmse", "y").spread[0] > 0
