"""Neighbour lists in the order of time, and their windows. Same results as `reference.py`, byte for byte."""

from __future__ import annotations

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store
from penstock.kernels._search import first_at_least
from penstock.kernels.sample_neighbors.cpu import num_taken

AHEAD = 16
"""How many nodes ahead the offsets of a node's list are prefetched; the end of the list, half as many nodes ahead."""

EARLIEST = -(1 << 63)
"""Of int64."""

RUN = 32
"""Length of the runs that are sorted by insertion before they are merged."""


@kernel
def look_for_disorder(indptr, times):
    """Return (whether any list is not yet in the order of time, length of the longest list)."""
    is_disordered, longest = False, 0
    for node in range(indptr.size - 1):
        start, end = load(indptr, node), load(indptr, node + 1)
        longest = max(longest, end - start)
        for at in range(start + 1, end):
            is_disordered |= load(times, at) < load(times, at - 1)
    return is_disordered, longest


@helper
def _sort_run(start, end, times, order):
    """Sort edges [start, end) by insertion."""
    for at in range(start + 1, end):
        moment, position, to = load(times, at), load(order, at), at
        while to > start and load(times, to - 1) > moment:
            store(times, to, load(times, to - 1))
            store(order, to, load(order, to - 1))
            to -= 1
        store(times, to, moment)
        store(order, to, position)


@helper
def _merge_runs(start, middle, end, times, order, spare_times, spare_order):
    """Merge two adjacent runs, stably: copy the second run aside, then fill the places from the end."""
    for at in range(middle, end):
        store(spare_times, at - middle, load(times, at))
        store(spare_order, at - middle, load(order, at))
    left, right, to = middle - 1, end - middle - 1, end - 1
    while right >= 0:
        if left >= start and load(times, left) > load(spare_times, right):
            store(times, to, load(times, left))
            store(order, to, load(order, left))
            left -= 1
        else:
            store(times, to, load(spare_times, right))
            store(order, to, load(spare_order, right))
            right -= 1
        to -= 1


@kernel
def order_by_time(indptr, times, order, spare_times, spare_order):
    """Sort each list by time, in place.

    Args:
        times: int[num_edges], the keys. order: int[num_edges], moved along with them.
        spare_times, spare_order: scratch of the same dtypes, as long as the longest list.
    """
    for node in range(indptr.size - 1):
        start, end = load(indptr, node), load(indptr, node + 1)
        for first in range(start, end, RUN):
            _sort_run(first, min(first + RUN, end), times, order)
        width = RUN
        while width < end - start:
            for first in range(start, end - width, 2 * width):
                _merge_runs(first, first + width, min(first + 2 * width, end), times, order, spare_times, spare_order)
            width *= 2


@helper
def _count_until(times, start, end, moment):
    """How many of ascending times[start:end] are not later than `moment`. All are, in most calls; so this case comes first."""
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
def find_windows(indptr, times, nodes, until, reach, last, fanout, replace, windows):
    """Find the windows of `nodes`; see `reference.find_windows`.

    Args:
        fanout, replace: how the windows will be sampled, see `sample_neighbors`.
        windows: int64[>= 2 * n], the result.
    Returns:
        (number of edges that the windows will sample, length of the longest window), or (-1, i) if the list of nodes[i] lies outside the
        edges.
    """
    total, longest = 0, 0
    for i in range(nodes.size):
        if i + AHEAD < nodes.size:
            prefetch_read(indptr, load(nodes, i + AHEAD))
        if i + AHEAD // 2 < nodes.size:
            prefetch_read(times, load(indptr, load(nodes, i + AHEAD // 2) + 1) - 1)
        node = load(nodes, i)
        start, end = load(indptr, node), load(indptr, node + 1)
        if not 0 <= start <= end <= times.size:
            return -1, i
        moment = load(until, i)
        length, skipped = _count_until(times, start, end, moment), 0
        if reach >= 0 and moment >= EARLIEST + reach:  # else it reaches back beyond int64
            skipped = first_at_least(times, start, start + length, moment - reach) - start
        if last >= 0:
            skipped = max(skipped, length - last)
        length -= skipped
        store(windows, i, start + skipped)
        store(windows, nodes.size + i, length)
        longest = max(longest, length)
        total += num_taken(length, fanout, replace)
    return total, longest
