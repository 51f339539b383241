"""Neighbour lists in the order of time. Same results as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store

AHEAD = 16
"""How many nodes ahead their offsets, and half as many ahead the ends of their lists, are prefetched."""

SHORT = 32
"""Lists up to this length are sorted by insertion."""


@kernel
def are_ordered(indptr, times):
    """Whether the edges of each list are in the order of time as they lie."""
    for node in range(indptr.size - 1):
        for at in range(load(indptr, node) + 1, load(indptr, node + 1)):
            if load(times, at) < load(times, at - 1):
                return False
    return True


@helper
def _insert(start, end, times, order):
    for at in range(start + 1, end):
        moment, position, to = load(times, at), load(order, at), at
        while to > start and load(times, to - 1) > moment:
            store(times, to, load(times, to - 1))
            store(order, to, load(order, to - 1))
            to -= 1
        store(times, to, moment)
        store(order, to, position)


@kernel
def order_by_time(indptr, times, order):
    """Sort each list: `times` int[num_edges] and `order` int[num_edges], which goes with it."""
    for node in range(indptr.size - 1):
        start, end = load(indptr, node), load(indptr, node + 1)
        if end - start <= SHORT:
            _insert(start, end, times, order)
            continue
        by_time = np.argsort(times[start:end], kind="mergesort")  # stable
        times[start:end] = times[start:end][by_time]
        order[start:end] = order[start:end][by_time]


@helper
def _count_until(times, start, end, moment):
    """How many of times[start:end], which ascend, are not later than `moment`. Those of long ago are asked for most: all."""
    if start == end or load(times, end - 1) <= moment:
        return end - start
    low, high = start, end - 1
    while low < high:
        middle = (low + high) >> 1
        if load(times, middle) <= moment:
            low = middle + 1
        else:
            high = middle
    return low - start


@kernel
def find_windows(indptr, times, nodes, until, last, fanout, replace, windows):
    """Find what may be taken of the lists of `nodes`; see `reference.find_windows`.

    Args:
        fanout, replace: how many will be taken of each, see `sample_neighbors`.
        windows: int64[>= 2 * n], the result.
    Returns:
        (edges that sampling them will take, longest window); (-1, i) where the list of nodes[i] lies outside the edges.
    """
    total, longest = 0, 0
    for i in range(nodes.size):
        if i + AHEAD < nodes.size:
            prefetch_read(indptr, load(nodes, i + AHEAD))
        if i + AHEAD // 2 < nodes.size:
            ahead = load(indptr, load(nodes, i + AHEAD // 2) + 1)
            prefetch_read(times, min(max(ahead, 1), times.size) - 1)
        node = load(nodes, i)
        start, end = load(indptr, node), load(indptr, node + 1)
        if not 0 <= start <= end <= times.size:
            return -1, i
        length = _count_until(times, start, end, load(until, i))
        skipped = max(0, length - last) if last >= 0 else 0
        length -= skipped
        store(windows, i, start + skipped)
        store(windows, nodes.size + i, length)
        longest = max(longest, length)
        if fanout < 0 or (not replace and length <= fanout):
            total += length
        elif length > 0:
            total += fanout
    return total, longest
