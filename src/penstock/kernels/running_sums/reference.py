"""Weights of edges as integers, summed up within each neighbour list: the definition.

In: weights, one per edge. Out: running sums, in which a binary search finds an edge with the probability of its weight. Invariants: the
integers of one list depend on nothing but that list; 0 stays 0 and is never drawn, a positive weight never becomes 0; a list adds up to
at most 2**62. An integer differs from the exact quotient by at most 1/2: by 2**(bits(degree) - 63) of the list's largest weight.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

SHORT = 16
"""Lists of up to so many edges have no guide: they are looked through whole."""

STEP_BITS = 3
"""A guide has an entry for every two to this power edges of a list."""

TOTAL_BITS = 62
"""A list adds up to at most two to this power: what `penstock.rng.below_sum` draws below."""


def as_integers(weights):
    """Return the integers of one list: weights over the largest, times the power of two that keeps the sum of so many in bounds.

    Division and product of doubles are exactly rounded: the same integers on every machine.
    """
    largest = max(weights, default=0.0)
    if largest == 0.0:
        return [0] * len(weights)
    scale = 2.0 ** (TOTAL_BITS - (len(weights) - 1).bit_length())
    return [0 if weight == 0.0 else max(1, math.floor(weight / largest * scale + 0.5)) for weight in weights]


def running_sums(indptr, weights):
    """Sum up the weights of every list.

    Args:
        indptr: int64[num_dst + 1].
        weights: float64[num_edges], in CSC order.
    Returns:
        int64[num_edges]: at each position the sum of its list up to and including it; or the position of the first weight that is
        negative, infinite or no number.
    """
    bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if bad.size:
        return int(bad[0])
    sums = np.empty(weights.size, dtype=np.int64)
    for start, end in pairwise(indptr):
        sums[start:end] = np.cumsum(np.array(as_integers(weights[start:end].tolist()), dtype=np.int64))
    return sums


def count_drawable(indptr, sums):
    """Return int64[num_dst]: how many edges of each list have a weight."""
    return np.array([np.count_nonzero(np.diff(sums[start:end], prepend=0)) for start, end in pairwise(indptr)], dtype=np.int64)


def band(number, total, num_bands):
    """Band of a number in [0, total]: never falling, which is all that counts."""
    return min(int(float(number) * (float(num_bands) / float(total))), num_bands - 1)


def guide(indptr, sums):
    """Note where the bands of the long lists begin, so that a search has some edges to look through and not the whole list.

    A number belongs to a band of the list's sum; the first position above it lies between the first position of its band and that of the
    next, for `band` does not fall. Bands are equally likely, and so have 2 ** STEP_BITS edges on average, however skewed the weights.

    Returns:
        uint32[num_edges // 8 + 1]: for a list from position p on with more than SHORT edges, at p // 8 + k the first slot of band k or a
        later one; 0 where there is none.
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
