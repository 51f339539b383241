"""Neighbour lists in the order of time: the definition.

In: a time for each edge. Out: the lists sorted by time, and a window of each requested list. Invariant: no edge of a window is later than
the window's moment, nor earlier than its reach; edges with equal times keep their order in the list.
"""

from __future__ import annotations

import itertools

import numpy as np


def order_by_time(indptr, times):
    """Sort the edges of each list by time; the sort is stable.

    Args:
        indptr: int64[num_dst + 1]. times: int[num_edges], in the order of `indices`.
    Returns:
        int64[num_edges]: the positions of the edges, list after list, in the order of time.
    """
    order = [start + np.argsort(times[start:end], kind="stable") for start, end in itertools.pairwise(indptr)]
    return np.concatenate([np.empty(0, np.int64), *order]).astype(np.int64)


def find_windows(indptr, times, nodes, until, *, reach, last):
    """Find the window of each list: its edges that are not later than a moment, and not too long before it.

    Args:
        indptr: int64[num_dst + 1]. times: int[num_edges], ascending within each list.
        nodes: int64[n], ids of destination nodes. until: int64[n], the moment of each node; an edge of exactly this time is in the window.
        reach: an edge that is earlier than its moment by more than this is not in the window; negative: it may be as early as it likes.
        last: keep only the `last` latest edges; negative: all.
    Returns:
        int64[2 * n]: where in `times` the window of each node begins, then how many edges each window has.
    """
    starts, lengths = [], []
    for node, moment in zip(nodes, until, strict=True):
        start, end = int(indptr[node]), int(indptr[node + 1])
        length = int(np.count_nonzero(times[start:end] <= moment))
        skipped = sum(time < int(moment) - reach for time in times[start:end].tolist()) if reach >= 0 else 0
        if last >= 0:
            skipped = max(skipped, length - last)
        starts.append(start + skipped)
        lengths.append(length - skipped)
    return np.array(starts + lengths, dtype=np.int64)
