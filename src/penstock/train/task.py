"""What is learnt: labels, loss and metric of classification (single-label, multi-label or binary) and regression of nodes or edges, and of
links.

In: a label array and a choice of metric. Out: functions over what a model returns for nodes or edges: logits, or numbers in units of their
spread; or over the scores of links.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.errors import InputError, UsageError, argument
from penstock.store import ArraySpec

OF_NUMBERS = ("rmse", "mae", "r2")
"""Metrics of regression."""
OF_LINKS = ("mrr", "hits@10", "auc")
"""Metrics of links; the first is the usual one."""
METRICS = ("auto", "accuracy", "auc", "micro-f1", *OF_NUMBERS, "mrr", "hits@10")

BLOCK = 1 << 16
"""Nodes or edges whose labels are looked at together."""


@dataclass(frozen=True, slots=True)
class Task(ABC):
    """What a model learns of nodes. `score` is of all rows at once, or of what `digest` kept of them.

    Attributes:
        num_outputs: width of a row that the model returns.
        metric: one of METRICS, but for "auto".
    """

    num_outputs: int
    metric: str
    dtype: ClassVar[type]
    """Of the labels that `loss` takes."""

    @property
    def is_larger_better(self) -> bool:
        """Whether a larger score is a better one."""
        return True

    @abstractmethod
    def is_labelled(self, labels: np.ndarray) -> np.ndarray:
        """bool[n]: which rows of labels are such, of n nodes."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean loss over rows float[n, num_outputs] of the model."""

    @abstractmethod
    def decide(self, outputs: np.ndarray) -> np.ndarray:
        """What is predicted by each row: a class, the labels, or numbers."""

    def read(self, outputs: np.ndarray) -> np.ndarray:
        """float32[n, num_outputs]: rows as users read them."""
        return outputs

    def digest(self, outputs: np.ndarray) -> np.ndarray:
        """What `score_digest` needs of each row, and no more."""
        return self.decide(outputs)

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """The metric over all rows; nan for none."""
        return self.score_digest(self.digest(outputs), labels)

    def score_digest(self, digest: np.ndarray, labels: np.ndarray) -> float:
        """The metric, from what `digest` kept of the rows; nan where there is none."""
        return self._score(digest, labels) if len(labels) else float("nan")

    @abstractmethod
    def _score(self, digest: np.ndarray, labels: np.ndarray) -> float:
        """The same, for a row at least."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for a checkpoint."""
        return {"kind": next(kind for kind, each in KINDS.items() if each is type(self)), **asdict(self)}


@dataclass(frozen=True, slots=True)
class Classes(Task):
    """A class of each node, int in [0, num_outputs). Metrics: accuracy, auc."""

    dtype = np.int64

    def is_labelled(self, labels: np.ndarray) -> np.ndarray:
        """Those from 0 on."""
        return (labels >= 0) & (labels < self.num_outputs)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy."""
        return F.cross_entropy(outputs, labels)

    def decide(self, outputs: np.ndarray) -> np.ndarray:
        """int64[n]."""
        return outputs.argmax(axis=1)

    def digest(self, outputs: np.ndarray) -> np.ndarray:
        """Classes in the narrowest integers, or a margin for auc."""
        if self.metric == "auc":
            return outputs[:, 1].astype(np.float64) - outputs[:, 0]
        return self.decide(outputs).astype(np.min_scalar_type(self.num_outputs))

    def _score(self, digest: np.ndarray, labels: np.ndarray) -> float:
        if self.metric == "auc":
            return area_under_roc(digest, labels == 1)
        return float((digest == labels).mean())  # micro-F1 of single labels is the accuracy


@dataclass(frozen=True, slots=True)
class Labels(Task):
    """Which of several labels each node has, 0/1 [n, num_outputs]. Metric: micro-f1."""

    dtype = np.uint8

    def is_labelled(self, labels: np.ndarray) -> np.ndarray:
        """Rows of 0 and 1."""
        return ((labels == 0) | (labels == 1)).all(axis=1)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Binary cross entropy."""
        return F.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype))

    def decide(self, outputs: np.ndarray) -> np.ndarray:
        """0/1 uint8[n, num_outputs]."""
        return (outputs > 0).astype(np.uint8)

    def _score(self, digest: np.ndarray, labels: np.ndarray) -> float:
        return micro_f1(digest > 0, labels > 0)


@dataclass(frozen=True, slots=True)
class Numbers(Task):
    """A number of each node, or several, [n] or [n, num_outputs]. Metrics: rmse, mae, r2, each as a mean over columns.

    A model learns them in units of their spread, since the size of a step of Adam does not depend on their unit.

    Attributes:
        mean, spread: of the train labels, per column; the spread is the standard deviation, or 1 where all are equal.
    """

    mean: tuple[float, ...]
    spread: tuple[float, ...]
    dtype = np.float64

    @property
    def is_larger_better(self) -> bool:
        """Only of r2."""
        return self.metric == "r2"

    def is_labelled(self, labels: np.ndarray) -> np.ndarray:
        """Rows of finite floats; of integers those from 0 on, since -1 is stored where there is none."""
        return _are_known(labels.reshape(-1, self.num_outputs))

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Of squares; for mae of absolute values."""
        mean, spread = _there(self.mean, labels.device), _there(self.spread, labels.device)
        wanted = ((labels.reshape(outputs.shape) - mean) / spread).to(outputs.dtype)
        return F.l1_loss(outputs, wanted) if self.metric == "mae" else F.mse_loss(outputs, wanted)

    def read(self, outputs: np.ndarray) -> np.ndarray:
        """In the unit of the labels."""
        return self._in_their_unit(outputs).astype(np.float32)

    def decide(self, outputs: np.ndarray) -> np.ndarray:
        """float32[n], or [n, num_outputs] of several."""
        return self.read(outputs)[:, 0] if self.num_outputs == 1 else self.read(outputs)

    def digest(self, outputs: np.ndarray) -> np.ndarray:
        """float64[n, num_outputs], in the unit of the labels."""
        return self._in_their_unit(outputs)

    def _in_their_unit(self, outputs: np.ndarray) -> np.ndarray:
        return outputs.astype(np.float64) * self.spread + self.mean

    def _score(self, digest: np.ndarray, labels: np.ndarray) -> float:
        wanted = labels.astype(np.float64).reshape(digest.shape)
        if self.metric == "mae":
            return float(np.abs(digest - wanted).mean())
        error = np.square(digest - wanted).mean(axis=0)
        if self.metric == "rmse":
            return float(np.sqrt(error).mean())
        has_spread = np.ptp(wanted, axis=0) > 0
        return float(np.mean(1 - error[has_spread] / wanted.var(axis=0)[has_spread])) if has_spread.any() else float("nan")


@dataclass(frozen=True, slots=True)
class Links(Task):
    """Which of several pairs is a link: an output is the score of a link and those of its negatives, float[n, 1 + k], and its label 0, the
    place of the link. Metrics, of the rank of the link, ties in the middle: mrr, the mean of 1 / rank; hits@10, how often it is at most 10;
    and auc, over all pairs. `num_outputs` is the width of the rows of nodes, whose products are the scores.
    """

    dtype = np.int64

    def is_labelled(self, labels: np.ndarray) -> np.ndarray:
        """All are."""
        return np.ones(len(labels), np.bool_)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Binary cross entropy, of which links and negatives have half each."""
        return (F.softplus(-outputs[:, 0]).mean() + F.softplus(outputs[:, 1:]).mean()) / 2

    def decide(self, outputs: np.ndarray) -> np.ndarray:
        """int64[n]: the place of the best pair."""
        return outputs.argmax(axis=1)

    def digest(self, outputs: np.ndarray) -> np.ndarray:
        """float32[n]: the rank of each link, which is behind whatever it cannot be compared with (nan); for auc the scores."""
        if self.metric == "auc":
            return outputs.astype(np.float32, copy=False)
        own, others = outputs[:, :1], outputs[:, 1:]
        return (1 + others.shape[1] - (others < own).sum(axis=1) - (others == own).sum(axis=1) / 2).astype(np.float32)

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """auc of a batch in training; nan for ranks, which there are among fewer."""
        return Task.score(self, outputs, labels) if self.metric == "auc" else float("nan")

    def _score(self, digest: np.ndarray, labels: np.ndarray) -> float:
        if self.metric == "auc":
            return area_under_roc(digest.reshape(-1), np.broadcast_to(np.arange(digest.shape[1]) == 0, digest.shape).reshape(-1))
        return float((1 / digest).mean() if self.metric == "mrr" else (digest <= 10).mean())


def _are_known(rows: np.ndarray) -> np.ndarray:
    return np.all(np.isfinite(rows) if rows.dtype.kind == "f" else rows >= 0, axis=1)


@lru_cache(maxsize=8)
def _there(values: tuple[float, ...], device: torch.device) -> Tensor:
    """float64[n] on a device; copied there once, since the host waits for that."""
    return torch.tensor(values, dtype=torch.float64, device=device)


KINDS: dict[str, type[Task]] = {"classes": Classes, "labels": Labels, "numbers": Numbers, "links": Links}
"""What can be learnt. A new task of nodes is a class here, and a branch of `define_task`."""


def task_of(values: dict[str, Any]) -> Task:
    """Read what `as_dict` wrote; ValueError, TypeError or KeyError for anything else."""
    if "kind" not in values:  # of runs of before
        return (Labels if values["is_multi_label"] else Classes)(values["num_outputs"], values["metric"])
    values = dict(values)
    return KINDS[values.pop("kind")](**values)


def as_labels(values: np.ndarray, spec: ArraySpec, name: str, metric: str, of: str | None = None) -> np.ndarray:
    """Labels as a task reads them: a matrix of one column as a vector; and classes that are kept as floats, as pandas writes whole numbers
    where some are missing, as int64, NaN as -1.

    Args:
        values, spec: as stored.
        name: of the labels, for messages.
        metric: one of METRICS. With "auto" floats that are not whole are numbers.
        of: who has them, for messages; None: the node of each number.
    Raises:
        InputError: such floats, and the metric is one of classes.
    """
    labels = values[:, 0] if values.shape[1:] == (1,) else values
    if spec.dtype == "bfloat16":
        labels = (labels.astype(np.uint32) << 16).view(np.float32)
    if labels.ndim != 1 or labels.dtype.kind != "f" or metric in (*OF_NUMBERS, "mrr", "hits@10"):
        return labels
    found = np.where(np.isnan(labels), -1, labels)
    bad = np.flatnonzero(~(np.abs(found) < np.float32(1 << 31)) | (found != np.floor(found)))
    if metric == "auto" and np.isfinite(found[bad]).any():
        return labels
    if bad.size:
        raise InputError(f"{name} must be classes, whole numbers from 0, or a 0/1 matrix; {of or f'node {bad[0]}'} has {found[bad[0]]:g}")
    return found.astype(np.int64)


def is_fractional(values: np.ndarray, spec: ArraySpec) -> bool:
    """Whether a field of one column, as stored, has floats that are not whole; looks at few of them at a time."""
    is_float = spec.dtype == "bfloat16" or spec.storage_dtype.kind == "f"
    if not is_float or spec.shape[1:] not in ((), (1,)):
        return False
    blocks = (as_labels(values[first : first + BLOCK], spec, "", "rmse") for first in range(0, len(values), BLOCK))
    return any((rows[np.isfinite(rows)] % 1).any() for rows in blocks)


def define_task(labels: Any, train_ids: np.ndarray | None, metric: str, name: str, num_classes: int | None = None) -> Task:
    """Read the task off the labels.

    Args:
        labels: of `as_labels`: int[num_nodes], below 0 for none; 0/1 [num_nodes, num_labels], anything else in a row for none; or numbers,
            [num_nodes] or [num_nodes, k], NaN, infinite or a negative integer for none.
        train_ids: nodes of which one has a label at least; of 0/1 rows all. None: the labels are those of edges, and of all of them.
        metric: one of METRICS.
        name: of the labels, for messages.
        num_classes: where it is known; None looks at all labels.
    """
    if metric in OF_LINKS and metric != "auc":
        raise InputError(
            f"{name}: {argument('metric', metric)} is of links, and these are labels: choose another, or hold links out "
            "(`penstock hold-out`)"
        )
    if labels.ndim not in (1, 2) or labels.shape[1:] == (0,) or labels.dtype.kind not in "biuf":
        raise InputError(f"{name} must be classes, numbers or a 0/1 matrix, got {labels.dtype} {list(labels.shape)}")
    if metric in OF_NUMBERS or (metric == "auto" and _are_numbers(labels, train_ids)):
        return _numbers(labels, train_ids, "rmse" if metric == "auto" else metric, name)
    return _labels(labels, train_ids, metric, name) if labels.ndim == 2 else _classes(labels, train_ids, metric, name, num_classes)


def _pieces(labels: Any, ids: np.ndarray | None) -> Iterator[np.ndarray]:
    """The labels of nodes, or of all edges, some at a time."""
    for first in range(0, len(labels) if ids is None else ids.size, BLOCK):
        piece = slice(first, first + BLOCK)
        yield np.asarray(labels[piece if ids is None else ids[piece]])


def _are_numbers(labels: Any, train_ids: np.ndarray | None) -> bool:
    """Whether labels are floats, and, if of several columns, not whole ones on train nodes."""
    if labels.dtype.kind != "f" or labels.ndim == 1:
        return labels.dtype.kind == "f"
    return any((rows[np.isfinite(rows)] % 1).any() for rows in _pieces(labels, train_ids))


def _numbers(labels: Any, train_ids: np.ndarray | None, metric: str, name: str) -> Numbers:
    def known() -> Iterator[np.ndarray]:
        for rows in _pieces(labels, train_ids):
            rows = rows.reshape(len(rows), -1)
            yield rows[_are_known(rows)].astype(np.float64)

    count = sum(map(len, known()))
    if not count:
        raise _nothing(train_ids, name)
    mean = np.sum([rows.sum(axis=0) for rows in known()], axis=0) / count
    spread = np.sqrt(np.sum([np.square(rows - mean).sum(axis=0) for rows in known()], axis=0) / count)
    if not spread.any():
        raise InputError(f"{name}: all {count} train {_what(train_ids)} have the same, there is nothing to learn")
    return Numbers(mean.size, metric, tuple(mean.tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist()))


def _what(train_ids: np.ndarray | None) -> str:
    return "edges" if train_ids is None else "nodes"


def _labels(labels: Any, train_ids: np.ndarray | None, metric: str, name: str) -> Labels:
    task = Labels(labels.shape[1], "micro-f1")
    if metric not in ("auto", task.metric):
        raise InputError(f"{name} is multi-label: {argument('metric', metric)} does not suit it, {task.metric} does")
    wrong = np.empty(0, np.int64) if train_ids is None else train_ids[~has_label(labels, train_ids, task)]
    if train_ids is not None and wrong.size:
        raise InputError(
            f"{wrong.size} of {train_ids.size} train nodes have something else than 0 and 1 in {name}; first is node {wrong[0]}: leave "
            f"those without labels out of the split, or learn numbers by {argument('metric', 'rmse')}"
        )
    return task


def _classes(labels: Any, train_ids: np.ndarray | None, metric: str, name: str, num_classes: int | None) -> Classes:
    num_classes = int(labels.max()) + 1 if num_classes is None else num_classes
    task = Classes(num_classes, ("auc" if num_classes == 2 else "accuracy") if metric == "auto" else metric)
    if train_ids is not None:
        _check_classes(labels, train_ids, task, name)
    elif num_classes < 1:
        raise _nothing(train_ids, name)
    if num_classes < 2:
        raise InputError(f"{name}: {num_classes} class in all, there is nothing to learn")
    if metric == "auc" and num_classes != 2:
        raise InputError(f"{name}: {num_classes} classes, and auc takes two: choose another {argument('metric')}")
    return task


def _check_classes(labels: Any, train_ids: np.ndarray, task: Classes, name: str) -> None:
    """Raise where train nodes have other labels than classes, or none at all."""
    num_classes = task.num_outputs
    without = train_ids[~has_label(labels, train_ids, task)]
    wrong = without[np.asarray(labels[without]) >= num_classes]
    if wrong.size:
        raise InputError(
            f"{wrong.size} of {train_ids.size} train nodes have a label that is none of {num_classes} classes in {name}; first is node "
            f"{wrong[0]}: is the store whole?"
        )
    if without.size == train_ids.size:
        raise _nothing(train_ids, name)


def _nothing(train_ids: np.ndarray | None, name: str) -> InputError:
    if train_ids is None:
        return InputError(f"no edge has a label in {name}")
    return InputError(f"none of {train_ids.size} train nodes has a label in {name}: choose another split, or ingest their labels")


def link_task(metric: str, width: int) -> Links:
    """What is learnt of links, with rows of a width; UsageError for a metric of nodes."""
    if metric not in ("auto", *OF_LINKS):
        raise UsageError(f"{argument('metric', metric)} is of nodes, and links are learnt: choose one of {', '.join(OF_LINKS)}")
    return Links(width, OF_LINKS[0] if metric == "auto" else metric)


def has_label(labels: np.ndarray, ids: np.ndarray, task: Task) -> np.ndarray:
    """bool[n]: which of int64[n] nodes have a label of the task."""
    found = np.empty(ids.size, np.bool_)
    for start in range(0, ids.size, BLOCK):
        found[start : start + BLOCK] = task.is_labelled(np.asarray(labels[ids[start : start + BLOCK]]))
    return found


def area_under_roc(scores: np.ndarray, is_positive: np.ndarray) -> float:
    """Area under the ROC curve: how often a positive is above a negative, ties at half; nan where there are none of either. Memory: a copy
    of the scores, and 16 bytes a positive. Source: Mann and Whitney 1947."""
    positives, negatives = scores[is_positive], np.sort(scores[~is_positive])
    if not positives.size or not negatives.size:
        return float("nan")
    above = sum(int(np.searchsorted(negatives, positives, side).sum()) for side in ("left", "right"))
    return above / 2 / (positives.size * negatives.size)


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
