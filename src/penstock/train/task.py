"""What is learnt: labels, loss and metric of node classification, single-label, multi-label or binary.

In: a label array and a choice of metric. Out: functions over logits. Metrics lie in [0, 1], larger is better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.errors import InputError, argument

_BLOCK = 1 << 16
"""Nodes whose labels are looked at together."""


@dataclass(frozen=True, slots=True)
class Task:
    """Node classification.

    Attributes:
        num_outputs: classes, or labels of a multi-label task.
        is_multi_label: labels are a 0/1 matrix.
        metric: accuracy, auc or micro-f1.
    """

    num_outputs: int
    is_multi_label: bool
    metric: str

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean loss over the rows."""
        if self.is_multi_label:
            return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return F.cross_entropy(logits, labels)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """The class of each row, int64[n]; for multi-label, which labels, 0/1 uint8[n, num_labels]."""
        return (logits > 0).astype(np.uint8) if self.is_multi_label else logits.argmax(axis=1)

    def digest(self, logits: np.ndarray) -> np.ndarray:
        """What `score` needs of each row, and no more: classes in the narrowest integers, decided labels, or a margin for auc."""
        if self.is_multi_label:
            return self.decide(logits)
        if self.metric == "auc":
            return logits[:, 1].astype(np.float64) - logits[:, 0]
        return self.decide(logits).astype(np.min_scalar_type(self.num_outputs))

    def score(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """The metric over all rows; nan for none."""
        return self.score_digest(self.digest(logits), labels)

    def score_digest(self, digest: np.ndarray, labels: np.ndarray) -> float:
        """The metric, from what `digest` kept of the rows."""
        if len(labels) == 0:
            return float("nan")
        if self.is_multi_label:
            return micro_f1(digest > 0, labels > 0)
        if self.metric == "auc":
            return area_under_roc(digest, labels == 1)
        return float((digest == labels).mean())  # micro-F1 of single labels is the accuracy


def has_label(labels: np.ndarray, ids: np.ndarray, num_classes: int) -> np.ndarray:
    """bool[n]: which of int64[n] nodes have one, a class in [0, num_classes) or a row of 0 and 1."""
    found = np.empty(ids.size, np.bool_)
    for start in range(0, ids.size, _BLOCK):
        some = np.asarray(labels[ids[start : start + _BLOCK]])
        found[start : start + _BLOCK] = (some >= 0) & (some < num_classes) if some.ndim == 1 else ((some == 0) | (some == 1)).all(axis=1)
    return found


def as_classes(labels: np.ndarray, name: str) -> np.ndarray:
    """Labels as they are; but whole numbers kept as float[num_nodes], as pandas writes classes where some are missing, as int64, NaN as -1.

    Raises:
        InputError: floats that are not whole.
    """
    if labels.ndim != 1 or labels.dtype.kind != "f":
        return labels
    found = np.where(np.isnan(labels), -1, labels)
    bad = np.flatnonzero(~(np.abs(found) < 1 << 31) | (found != np.floor(found)))
    if bad.size:
        raise InputError(f"{name} must be classes, whole numbers from 0, or a 0/1 matrix; node {bad[0]} has {found[bad[0]]:g}")
    return found.astype(np.int64)


def define_task(labels: np.ndarray, train_ids: np.ndarray, metric: str, name: str, num_classes: int | None = None) -> Task:
    """Read the task off the labels.

    Args:
        labels: int[num_nodes], below 0 for none; or 0/1 [num_nodes, num_labels], anything else in a row for none.
        train_ids: nodes of which one has a label at least; of 0/1 rows all.
        metric: "auto" or a metric.
        name: of the labels, for messages.
        num_classes: where it is known; None looks at all labels.
    """
    if labels.ndim == 2:
        if metric not in ("auto", "micro-f1"):
            raise InputError(f"{name} is multi-label: {argument('metric', metric)} does not suit it, micro-f1 does")
    elif labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError(f"{name} must be integer classes or a 0/1 matrix, got {labels.dtype} {list(labels.shape)}")
    if num_classes is None or labels.ndim == 2:
        num_classes = 2 if labels.ndim == 2 else int(labels.max()) + 1
    without = train_ids[~has_label(labels, train_ids, num_classes)]
    wrong = without if labels.ndim == 2 else without[np.asarray(labels[without]) >= num_classes]
    if wrong.size:
        what, do = (f"a label that is none of {num_classes} classes", "is the store whole?")
        if labels.ndim == 2:
            what, do = "something else than 0 and 1", "leave those without labels out of the split"
        raise InputError(f"{wrong.size} of {train_ids.size} train nodes have {what} in {name}; first is node {wrong[0]}: {do}")
    if labels.ndim == 2:
        return Task(labels.shape[1], True, "micro-f1")
    if without.size == train_ids.size:
        raise InputError(f"none of {train_ids.size} train nodes has a label in {name}: choose another split, or ingest their labels")
    if num_classes < 2:
        raise InputError(f"{name}: {num_classes} class in all, there is nothing to learn")
    if metric == "auc" and num_classes != 2:
        raise InputError(f"{name}: {num_classes} classes, and auc takes two: choose another {argument('metric')}")
    return Task(num_classes, False, ("auc" if num_classes == 2 else "accuracy") if metric == "auto" else metric)


def area_under_roc(scores: np.ndarray, is_positive: np.ndarray) -> float:
    """Area under the ROC curve by ranks, ties at half; nan where one class is missing. Source: Mann and Whitney 1947."""
    num_positive = int(is_positive.sum())
    num_negative = is_positive.size - num_positive
    if not num_positive or not num_negative:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[is_positive].sum() - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative))


def micro_f1(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Micro-averaged F1 of 0/1 matrices."""
    hits = int((predicted & actual).sum())
    total = int(predicted.sum()) + int(actual.sum())
    return 2 * hits / total if total else float("nan")


def normalize_rows(x: Tensor) -> Tensor:
    """Divide each row by the sum of its absolute values, which is that of a bag of words; rows of zeros stay."""
    return x / x.abs().sum(dim=1, keepdim=True).clamp(min=1e-12)


def as_float(x: Tensor) -> Tensor:
    """Features as float32, whatever they are stored as."""
    return x if x.dtype == torch.float32 else x.float()
