"""Metrics against scikit-learn, and what is read off labels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from penstock.errors import InputError
from penstock.train.task import area_under_roc, as_classes, define_task, has_label, micro_f1, normalize_rows


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


def test_classes_kept_as_floats():
    assert as_classes(np.array([1.0, np.nan, 0.0], np.float32), "y").tolist() == [1, -1, 0]
    for labels in (np.arange(3), np.zeros((3, 2))):
        assert as_classes(labels, "y") is labels
    for bad in (0.5, np.inf, 1e10, -1e300):
        with pytest.raises(InputError, match=r"y must be classes, whole numbers from 0, or a 0/1 matrix; node 1 has"):
            as_classes(np.array([1.0, bad]), "y")


def test_kinds_of_labels():
    ids = np.arange(4)
    assert define_task(np.array([0, 2, 1, -1]), ids[:3], "auto", "y").metric == "accuracy"
    assert define_task(np.array([0, 1, 1, 0]), ids, "auto", "y").metric == "auc"
    assert define_task(np.array([0, 1, 1, 0]), ids, "accuracy", "y").metric == "accuracy"
    assert define_task(np.array([0, -1, 1, 2]), ids, "auto", "y").num_outputs == 3
    assert define_task(np.zeros((4, 3), np.uint8), ids, "auto", "y").num_outputs == 3


@pytest.mark.parametrize(
    ("labels", "metric", "message"),
    [
        (np.array([-1, -1, -1, -1]), "auto", "none of 4 train nodes has a label in y"),
        (np.zeros((4, 2, 1), int), "auto", "must be integer classes"),
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
    monkeypatch.setattr("penstock.train.task._BLOCK", 3)
    labels = np.array([0, -1, 2, 1, -1, 0, 3])
    if is_matrix:
        labels = np.array([[0, 1], [np.nan, 1], [1, 1], [0, 0], [1, -1], [0, 1], [1, 0]])
    ids = np.array([6, 4, 3, 1, 0, 1, 2])
    assert has_label(labels, ids, 10).tolist() == [True, False, True, False, True, False, True]
    assert has_label(labels, ids[:0], 10).size == 0
