"""Weights of edges as integers, as running sums within each neighbour list: the definition.

In: weights, one per edge. Out: running sums, in which a binary search finds an edge with probability proportional to its weight.
Invariants: the integers of a list depend only on that list; weight 0 stays 0 and is never drawn; a positive weight never becomes 0; the sum
of a list is at most 2**62. An integer differs from the exact quotient by at most 1/2, that is, by 2**(bits(degree) - 63) of the list's
largest weight.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

SHORT = 16
"""Lists of up to SHORT edges have no guide: a search goes through the whole list."""

STEP_BITS = 3
"""A guide has one entry per 2**STEP_BITS edges of a list."""

TOTAL_BITS = 62
"""The sum of a list is at most 2**TOTAL_BITS, the limit of `penstock.rng.below_sum`."""


def as_integers(weights):
    """Return the integers of one list: weights divided by the largest, times the power of two that keeps their sum within the limit.

    Division and product of doubles are exactly rounded, so the integers are the same on every machine.
    """
    largest = max(weights, default=0.0)
    if largest == 0.0:
        return [0] * len(weights)
    scale = 2.0 ** (TOTAL_BITS - (len(weights) - 1).bit_length())
    return [0 if weight == 0.0 else max(1, math.floor(weight / largest * scale + 0.5)) for weight in weights]


def running_sums(indptr, weights):
    """Compute the running sums of every list.

    Args:
        indptr: int64[num_dst + 1].
        weights: float64[num_edges], in CSC order.
    Returns:
        int64[num_edges]: at each position, the sum of its list up to and including this edge; or, instead, the position of the first weight
        that is negative, infinite or NaN.
    """
    bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if bad.size:
        return int(bad[0])
    sums = np.empty(weights.size, dtype=np.int64)
    for start, end in pairwise(indptr):
        sums[start:end] = np.cumsum(np.array(as_integers(weights[start:end].tolist()), dtype=np.int64))
    return sums


def count_drawable(indptr, sums):
    """Return int64[num_dst]: how many edges of each list have a positive weight."""
    return np.array([np.count_nonzero(np.diff(sums[start:end], prepend=0)) for start, end in pairwise(indptr)], dtype=np.int64)


def band(number, total, num_bands):
    """The band of a number in [0, total]; nondecreasing in the number, and nothing else matters."""
    return min(int(float(number) * (float(num_bands) / float(total))), num_bands - 1)


def guide(indptr, sums):
    """Compute where the bands of long lists begin, so that a search covers some edges instead of the whole list.

    A drawn number belongs to a band of the list's sum. Because `band` is nondecreasing, the first position whose running sum exceeds the
    number lies between the first slot of its band and that of the next band. Bands are equally likely, and there are degree >> STEP_BITS
    of them; so a search covers 2 ** STEP_BITS edges on average, however skewed the weights are.

    Returns:
        uint32[num_edges // 8 + 1]: for a list of more than SHORT edges that begins at position p, element p // 8 + k is the first slot of
        band k or a later band, or the last slot if there is none; 0 elsewhere.
    """
    guide = np.zeros((len(sums) >> STEP_BITS) + 1, dtype=np.uint32)
    for start, end in pairwise(map(int, indptr)):
        if end - start <= SHORT:
            continue
        num_bands, total = (end - start) >> STEP_BITS, max(int(sums[end - 1]), 1)
        bands = [band(each, total, num_bands) for each in sums[start:end]]
        for k in range(num_bands):
            guide[(start >> STEP_BITS) + k] = next((slot for slot, found in enumerate(bands) if found >= k), end - start - 1)
    return guide
