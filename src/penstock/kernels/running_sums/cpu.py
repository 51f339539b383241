"""Weights of edges as integers, as running sums within each neighbour list, some lists at a time. Same result as `reference.py`."""

from __future__ import annotations

import math

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, store
from penstock.kernels.running_sums import reference
from penstock.kernels.running_sums.reference import SHORT, STEP_BITS, TOTAL_BITS

band = helper(reference.band)


@helper
def _scale(degree):
    """2.0 ** (TOTAL_BITS - bits of (degree - 1))."""
    bits, rest = TOTAL_BITS, degree - 1
    while rest > 0:
        bits -= 1
        rest >>= 1
    return float(np.int64(1) << np.int64(bits))


@kernel
def running_sums(indptr, first, last, base, weights, sums):
    """Write the running sums of the lists of nodes [first, last).

    Args:
        base: the position in the graph of weights[0] and sums[0].
        weights: float64[n], sums: int64[n], of these lists.
    Returns:
        (-1, -1); or (position, -1) of a weight that is negative, infinite or NaN; or (-1, node) if the node's list lies outside the arrays.
    """
    for node in range(first, last):
        start, end = load(indptr, node) - base, load(indptr, node + 1) - base
        if not 0 <= start <= end <= weights.size:
            return -1, node
        largest = 0.0
        for at in range(start, end):
            weight = load(weights, at)
            if not 0.0 <= weight < math.inf:
                return base + at, -1
            largest = max(largest, weight)
        scale, total = _scale(end - start), np.int64(0)
        for at in range(start, end):
            weight = load(weights, at)
            if weight > 0.0:
                total += max(np.int64(1), np.int64(math.floor(weight / largest * scale + 0.5)))
            store(sums, at, total)
    return -1, -1


@kernel
def count_drawable(indptr, sums, drawable):
    """Write to `drawable`, int[num_dst], how many edges of each list have a positive weight; 0 if the list lies outside the edges."""
    for node in range(indptr.size - 1):
        count, before = 0, np.int64(0)
        start, end = load(indptr, node), load(indptr, node + 1)
        if 0 <= start <= end <= sums.size:
            for at in range(start, end):
                here = load(sums, at)
                count += here > before
                before = here
        store(drawable, node, count)


@kernel
def guide(indptr, sums, guide):
    """Write where the bands of long lists begin to `guide`, which is 0 before; see `reference.guide`."""
    for node in range(indptr.size - 1):
        start, degree = load(indptr, node), load(indptr, node + 1) - load(indptr, node)
        if degree <= SHORT:
            continue
        num_bands, total, k, entry = degree >> STEP_BITS, max(load(sums, start + degree - 1), np.int64(1)), 0, start >> STEP_BITS
        for slot in range(degree):
            found = band(load(sums, start + slot), total, num_bands)
            while k <= found:
                store(guide, entry + k, np.uint32(slot))
                k += 1
        while k < num_bands:
            store(guide, entry + k, np.uint32(degree - 1))
            k += 1
