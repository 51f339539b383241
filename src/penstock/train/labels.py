"""Labels, of nodes or of edges, and the task that they make.

In: a field as it is stored, and a choice of metric. Out: labels as a task reads them, and the task; or what is wrong with them. Few labels
are looked at at a time. Invariant: a task follows from the labels and not from their order, nor from who has which: sums are exact.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from penstock.errors import InputError, argument
from penstock.store import ArraySpec
from penstock.train.task import OF_LINKS, OF_NUMBERS, Classes, Labels, Numbers, Task, are_known

BLOCK = 1 << 16
"""Nodes or edges whose labels are looked at together."""

_MANTISSA, _HALF, _LEAST = 53, 26, 1126
"""Bits of a float64, and of the lower half of them; all are multiples of 2 ** -_LEAST."""


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


def is_fractional(rows: np.ndarray) -> bool:
    """Whether some of them are floats that are not whole."""
    return rows.dtype.kind == "f" and bool((rows[np.isfinite(rows)] % 1).any())


def define_task(
    labels: Any,
    train_ids: np.ndarray | None,
    metric: str,
    name: str,
    num_classes: int | None = None,
    class_names: Sequence[str] = (),
) -> Task:
    """Read the task off the labels.

    Args:
        labels: of `as_labels`: int[num_nodes], below 0 for none; 0/1 [num_nodes, num_labels], anything else in a row for none; or numbers,
            [num_nodes] or [num_nodes, k], NaN, infinite or a negative integer for none.
        train_ids: nodes of which one has a label at least; of 0/1 rows all. None: the labels are those of edges (`EdgeLabels`), and of all
            of them.
        metric: one of METRICS.
        name: of the labels, for messages.
        num_classes: where it is known; None looks at all labels.
        class_names: words that they are called by, or none.
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
    if labels.ndim == 2:
        return _labels(labels, train_ids, metric, name)
    return replace(_classes(labels, train_ids, metric, name, num_classes), class_names=tuple(class_names))


def _fold(labels: Any, ids: np.ndarray | None, of: Callable[[np.ndarray], Any], join: Callable[[Any, Any], Any], start: Any) -> Any:
    """What `of` makes of the labels of nodes, or of all edges, some at a time, joined."""
    if ids is None:
        return labels.fold(of, join, start)
    return reduce(join, (of(np.asarray(labels[ids[first : first + BLOCK]])) for first in range(0, ids.size, BLOCK)), start)


def _are_numbers(labels: Any, train_ids: np.ndarray | None) -> bool:
    """Whether labels are floats, and, if of several columns, not whole ones on train nodes."""
    if labels.dtype.kind != "f" or labels.ndim == 1:
        return labels.dtype.kind == "f"
    return _fold(labels, train_ids, is_fractional, operator.or_, False)


def _numbers(labels: Any, train_ids: np.ndarray | None, metric: str, name: str) -> Numbers:
    def known(rows: np.ndarray) -> np.ndarray:
        rows = rows.reshape(len(rows), -1)
        return rows[are_known(rows)].astype(np.float64)

    def sums_of(rows: np.ndarray) -> np.ndarray:
        if not np.isfinite(rows).all():
            raise InputError(f"{name} has numbers too large to be squared: store them in another unit")
        return exact_sums(rows)

    def mean_of(values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        sums = _fold(labels, train_ids, lambda rows: sums_of(values(known(rows))), operator.add, 0)
        return np.array([float(Fraction(each, count << _LEAST)) for each in sums])

    count = _fold(labels, train_ids, lambda rows: len(known(rows)), operator.add, 0)
    if not count:
        raise _nothing(train_ids, name)
    mean = mean_of(lambda rows: rows)
    with np.errstate(over="ignore"):  # said by `sums_of`
        spread = np.sqrt(mean_of(lambda rows: np.square(rows - mean)))
    if not spread.any():
        raise InputError(f"{name}: all {count} train {_what(train_ids)} have the same, there is nothing to learn")
    return Numbers(mean.size, metric, tuple(mean.tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist()))


def exact_sums(rows: np.ndarray) -> np.ndarray:
    """object[k]: whole numbers, the sums of the columns of float64[n, k] in units of 2 ** -1126, exactly; finite, n < 2 ** 25. Source: one
    word per exponent, as in Neal, Fast exact summation using small and large superaccumulators, 2015."""
    mantissas, exponents = np.frexp(rows)
    whole, least = np.ldexp(mantissas, _MANTISSA).astype(np.int64), int(exponents.min(initial=0))
    sums = np.zeros(rows.shape[1], object)
    for column, (of_column, exponent) in enumerate(zip(whole.T, exponents.T, strict=True)):
        halves = (np.bincount(exponent - least, half) for half in (of_column >> _HALF, of_column & ((1 << _HALF) - 1)))
        for power, (high, low) in enumerate(zip(*halves, strict=True)):
            sums[column] += ((int(high) << _HALF) + int(low)) << (power + least - _MANTISSA + _LEAST)
    return sums


def _what(train_ids: np.ndarray | None) -> str:
    return "edges" if train_ids is None else "nodes"


def _labels(labels: Any, train_ids: np.ndarray | None, metric: str, name: str) -> Labels:
    task = Labels(labels.shape[1], "micro-f1")
    if metric not in ("auto", task.metric):
        raise InputError(f"{name} is multi-label: {argument('metric', metric)} does not suit it, {task.metric} does")
    if train_ids is None:
        return task
    wrong = train_ids[~has_label(labels, train_ids, task)]
    if wrong.size:
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


def has_label(labels: np.ndarray, ids: np.ndarray, task: Task) -> np.ndarray:
    """bool[n]: which of int64[n] nodes have a label of the task."""
    found = np.empty(ids.size, np.bool_)
    for start in range(0, ids.size, BLOCK):
        found[start : start + BLOCK] = task.is_labelled(np.asarray(labels[ids[start : start + BLOCK]]))
    return found
