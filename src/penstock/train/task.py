"""What is learnt: labels, loss and metric of classification (single-label, multi-label or binary) and regression of nodes or edges, and of
links.

In: a label array and a choice of metric. Out: functions over what a model returns for nodes or edges: logits, or numbers in units of their
spread; or over the scores of links.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.errors import UsageError, argument

OF_NUMBERS = ("rmse", "mae", "r2")
"""Metrics of regression."""
OF_LINKS = ("mrr", "hits@10", "auc")
"""Metrics of links; the first is the usual one."""
METRICS = ("auto", "accuracy", "auc", "micro-f1", *OF_NUMBERS, "mrr", "hits@10")


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
    """A class of each node, int in [0, num_outputs). Metrics: accuracy, auc.

    Attributes:
        class_names: words that the classes are called by, or none.
    """

    class_names: tuple[str, ...] = ()
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
        return are_known(labels.reshape(-1, self.num_outputs))

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


def are_known(rows: np.ndarray) -> np.ndarray:
    """bool[n]: which rows of numbers [n, k] are such: finite floats, integers from 0 on."""
    return np.all(np.isfinite(rows) if rows.dtype.kind == "f" else rows >= 0, axis=1)


@lru_cache(maxsize=8)
def _there(values: tuple[float, ...], device: torch.device) -> Tensor:
    """float64[n] on a device; copied there once, since the host waits for that."""
    return torch.tensor(values, dtype=torch.float64, device=device)


KINDS: dict[str, type[Task]] = {"classes": Classes, "labels": Labels, "numbers": Numbers, "links": Links}
"""What can be learnt. A new task of nodes is a class here, and a branch of `define_task` (labels.py)."""


def task_of(values: dict[str, Any]) -> Task:
    """Read what `as_dict` wrote; ValueError, TypeError or KeyError for anything else."""
    if "kind" not in values:  # of runs of before
        return (Labels if values["is_multi_label"] else Classes)(values["num_outputs"], values["metric"])
    values = dict(values)
    return KINDS[values.pop("kind")](**values)


def link_task(metric: str, width: int) -> Links:
    """What is learnt of links, with rows of a width; UsageError for a metric of nodes."""
    if metric not in ("auto", *OF_LINKS):
        raise UsageError(f"{argument('metric', metric)} is of nodes, and links are learnt: choose one of {', '.join(OF_LINKS)}")
    return Links(width, OF_LINKS[0] if metric == "auto" else metric)


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
