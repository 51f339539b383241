"""Properties of accesses that do not depend on a policy: their distribution, similarity of epochs, skew of rows and lists.

In: visit counts. Out: plain data for `study.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.study.trace import ListReads

NUM_POINTS = 60
"""Points of a curve: this many evenly spaced, and this many dense at its start."""

TOP = 0.1
"""Share of the nodes whose visits are compared between epochs."""

COVERED = (0.5, 0.9, 0.98)
"""Shares of the accesses; the last is DUCATI's."""


def describe_visits(visits: np.ndarray, num_epochs: int) -> dict[str, Any]:
    """Return the distribution of accesses (PaGraph Fig. 5): for each count, the share of visited nodes with at most this many visits.

    Args:
        visits: int64[num_nodes], over `num_epochs` epochs.
    """
    seen = np.sort(visits[visits > 0])
    times, first = np.unique(seen, return_index=True)
    at_most = np.append(first[1:], seen.size) / max(seen.size, 1)
    chosen = _thin(times.size)
    return {
        "visited_share": seen.size / max(visits.size, 1),
        "visited_more_than_once_share": float(np.count_nonzero(seen > 1) / max(seen.size, 1)),
        "most_visits": int(seen[-1]) if seen.size else 0,
        "num_epochs": num_epochs,
        "cdf": {"visits": times[chosen].tolist(), "share": _rounded(at_most[chosen])},
        "skew": skew(visits, np.ones(visits.size, dtype=np.int64)),
    }


def describe_lists(lists: ListReads, num_epochs: int) -> dict[str, Any]:
    """Return how often lists are read, and which share of their bytes serves which share of the reads (DUCATI)."""
    total = int(lists.list_bytes.sum())
    item_bytes = total / max(int((lists.list_bytes > 0).sum()), 1)
    return {
        "lists_read_per_epoch": float(lists.reads.sum() / num_epochs),
        "entries_read_per_epoch": float(lists.entries.sum() / num_epochs),
        "read_share": float(np.count_nonzero(lists.reads) / max(lists.reads.size, 1)),
        "total_bytes": total,
        "mean_list_bytes": item_bytes,
        "skew": skew(lists.entries, lists.list_bytes),
    }


def skew(accesses: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
    """Return which share of the size serves which share of the accesses, taking items by accesses per size.

    Args:
        accesses, sizes: int64[num_items].
    Returns:
        curve: "size_share" -> "access_share"; "needed": for each share of COVERED the share of the size that serves it.
    """
    used = np.flatnonzero(accesses)
    used = used[np.argsort(-accesses[used] / np.maximum(sizes[used], 1), kind="stable")]
    served = np.append(0, np.cumsum(accesses[used])) / max(int(accesses.sum()), 1)
    taken = np.append(0, np.cumsum(sizes[used])) / max(int(sizes.sum()), 1)
    needed = {f"{share:g}": float(taken[min(int(np.searchsorted(served, share)), taken.size - 1)]) for share in COVERED}
    chosen = _thin(taken.size)
    return {"needed": needed, "curve": {"size_share": _rounded(taken[chosen]), "access_share": _rounded(served[chosen])}}


def similarity(epochs: Sequence[np.ndarray]) -> list[float]:
    """Return the similarity of the hot nodes of consecutive epochs, in [0, 1] (GNNLab's Table IV, whose text gives no formula).

    With f(v) the visits of v in an epoch and T the most visited tenth of all nodes in it (ties by id, only visited ones):
    sum of min(f1, f2) over T1 & T2, divided by the mean of the sum of f1 over T1 and the sum of f2 over T2.
    """
    result = []
    for one, other in pairwise(epochs):
        tops = [_top(visits) for visits in (one, other)]
        common = np.intersect1d(*tops, assume_unique=True)
        weight = (one[tops[0]].sum() + other[tops[1]].sum()) / 2
        result.append(float(np.minimum(one[common], other[common]).sum() / max(weight, 1)))
    return result


def _top(visits: np.ndarray) -> np.ndarray:
    best = np.argsort(-visits, kind="stable")[: max(int(TOP * visits.size), 1)]
    return best[visits[best] > 0]


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rank correlation, with ties at their mean rank; 0 if one of the inputs is constant."""
    ranks = [_ranks(values) for values in (one, other)]
    deviations = [values - values.mean() for values in ranks]
    scale = float(np.sqrt((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float((deviations[0] * deviations[1]).sum() / scale) if scale else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[place]


def _thin(count: int) -> np.ndarray:
    """Return int64[<= 2 * NUM_POINTS]: indices in [0, count), including both ends, dense at the start and evenly spaced."""
    if count <= NUM_POINTS:
        return np.arange(count)
    points = np.concatenate([np.geomspace(1, count, NUM_POINTS) - 1, np.linspace(0, count - 1, NUM_POINTS)])
    return np.unique(points.astype(np.int64))


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
