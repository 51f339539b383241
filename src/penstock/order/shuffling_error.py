"""Measures how far batches are from the label distribution of all seeds, and how many sequences an order needs to be near enough.

In: an order and the labels of its seeds. Out: the shuffling error: total variation distance between the labels of a batch and those of all
seeds, averaged over batches. Invariant: a pure function of (order, labels, batch size); only orders draw random numbers.
Source: BGL (NSDI'23) 3.2.2, after Meng et al. 2019.

BGL requires an error of at most sqrt(b * M) / n (b seeds per batch, M workers, n seeds). Taken literally, no order can satisfy this: b
seeds drawn at random differ from the distribution from which they are drawn. With 40 classes, b = 1024 and n = 90,941 a random order has an
error of 0.065, while the bound is 0.00035. If, on the other hand, the error is taken over the random shifts, every seed is equally likely
at every place, and the error is 0 with a single sequence. So the bound is interpreted as what an order may add to the error of a random
order of the same seeds, measured in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from penstock.order.orders import Order, RandomOrder

MEASURED_BATCHES = 256
"""Number of batches over which an error is averaged, which makes it accurate to about 1%."""

MAX_EPOCHS = 64
NUM_BINS = 16
"""Number of bins of equal size that replace classes if labels are real numbers."""


def read_classes(labels: np.ndarray) -> np.ndarray | None:
    """Convert labels of seeds to one form.

    Args:
        labels: int[n], negative where there is no label; or float[n], NaN where there is no label; or 0/1 [n, num_labels].
    Returns:
        int64[n] from 0 on, -1 for none, or float64[n, num_labels]; None if nothing is labelled.
    """
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] > 1:
        rows = np.nan_to_num(labels.astype(np.float64))
        return rows if rows.any() else None
    labels = labels.reshape(-1)
    is_known = ~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0
    if not is_known.any():
        return None
    known = labels[is_known]
    if known.dtype.kind == "f" and (known != np.floor(known)).any():
        known = np.searchsorted(np.quantile(known, np.arange(1, NUM_BINS) / NUM_BINS), known)
    classes = np.full(labels.size, -1, dtype=np.int64)
    classes[is_known] = np.unique(known, return_inverse=True)[1]
    return classes


def shuffling_error(order: Order, classes: np.ndarray, batch_size: int) -> float:
    """Measure the shuffling error of an order over its first MEASURED_BATCHES full batches, from at most MAX_EPOCHS epochs.

    Args:
        order: of n seeds.
        classes: from `read_classes`.
        batch_size: seeds per batch; a set smaller than a batch is one batch.
    Cost: O(MEASURED_BATCHES * (batch_size + number of classes)).
    """
    batch_size = min(batch_size, order.num_seeds)
    per_epoch = order.num_batches(batch_size, True)
    num_batches = min(MEASURED_BATCHES, per_epoch * MAX_EPOCHS)
    width = int(classes.max()) + 1
    whole = _distribution(classes, width)
    total = 0.0
    for number in range(num_batches):
        batch = order.batch(number // per_epoch, number % per_epoch, batch_size)
        total += float(np.abs(_distribution(classes[batch], width) - whole).sum()) / 2
    return round(total / num_batches, 12)  # so that the choice below does not depend on the order of summation


def choose_num_sequences(make: Callable[[int], Order], classes: np.ndarray, *, seed: int, batch_size: int, num_workers: int) -> int:
    """Find the smallest number of sequences that adds at most sqrt(batch_size * num_workers) / num_seeds to a random order's error.

    Doubling, then bisection: at most 2 * log2(batch_size) measurements. The error decreases with the number, but not smoothly: it is lowest
    if the batch size is a multiple of the number. If no number is sufficient, the largest possible one is returned.

    Args:
        make: number of sequences -> order.
        classes: from `read_classes`.
        seed: of the random order. batch_size: b. num_workers: M.
    """
    num_seeds = classes.shape[0]
    most = min(batch_size, num_seeds)
    bound = shuffling_error(RandomOrder(num_seeds, seed), classes, batch_size) + math.sqrt(batch_size * num_workers) / num_seeds

    def is_near(number: int) -> bool:
        return shuffling_error(make(number), classes, batch_size) <= bound

    high, is_enough = 1, is_near(1)
    while not is_enough and high < most:
        high = min(2 * high, most)
        is_enough = is_near(high)
    low = high // 2  # too few, or 0
    while is_enough and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_near(middle) else (middle, high)
    return high


def _distribution(classes: np.ndarray, width: int) -> np.ndarray:
    """Share of each class among the labelled seeds; zeros if no seed is labelled."""
    counts = classes.sum(axis=0) if classes.ndim == 2 else np.bincount(classes[classes >= 0], minlength=width)
    return counts / max(counts.sum(), 1)
