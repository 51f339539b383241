"""Neighbour lists in the order of time: the definition.

In: a time for each edge. Out: the lists by time, and of each list that is asked for the edges a sample may take. Invariant: no edge of a
window is later than the moment it was asked for; equal times keep the order that they have in the list.
"""

from __future__ import annotations

import itertools

import numpy as np


def order_by_time(indptr, times):
    """Put the edges of each list in the order of time.

    Args:
        indptr: int64[num_dst + 1]. times: int[num_edges], at the positions of the edges.
    Returns:
        int64[num_edges]: the positions, list after list, in the order of time.
    """
    order = [start + np.argsort(times[start:end], kind="stable") for start, end in itertools.pairwise(indptr)]
    return np.concatenate([np.empty(0, np.int64), *order]).astype(np.int64)


def find_windows(indptr, times, nodes, until, *, last):
    """Find what may be taken of some lists.

    Args:
        indptr: int64[num_dst + 1]. times: int[num_edges], in the order of time within each list.
        nodes: int64[n], ids of destination nodes. until: int64[n], the moment of each: edges of that very moment may be taken.
        last: at most so many, the latest; negative: all.
    Returns:
        int64[2 * n]: where in `times` the window of each node begins, and then how many edges it has.
    """
    starts, lengths = [], []
    for node, moment in zip(nodes, until, strict=True):
        start, end = int(indptr[node]), int(indptr[node + 1])
        length = int(np.count_nonzero(times[start:end] <= moment))
        skipped = max(0, length - last) if last >= 0 else 0
        starts.append(start + skipped)
        lengths.append(length - skipped)
    return np.array(starts + lengths, dtype=np.int64)
