"""Fills one budget from several kinds of entries: which neighbour lists and which feature rows are worth their bytes.

In: the value of each list and row (visits times the measured seconds that a hit saves) per byte, and its size. Out: the entries to keep.
Invariant: the kept entries fit the budget; the best come first, and an entry is passed over only if it does not fit any more.
Source: DUCATI (SIGMOD'23), the allocator: value = visits x slope, filled by value density. Entries are tiny compared with the budget, so
the greedy choice is within one entry of the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from penstock.cache.ranking import rank
from penstock.records import index_dtype


def take_best(
    values: Sequence[np.ndarray], sizes_of: Callable[[int, np.ndarray], np.ndarray], budget: int, *, worthless: float = 0.0, least: int = 1
) -> list[np.ndarray]:
    """Fill a budget from several kinds of entries, the best first. Entries that do not fit any more are passed over.

    Args:
        values: number[n] per kind: value of each entry. One ranking covers all kinds; equal values rank by kind, then id.
        sizes_of: (number of the kind, ids) -> int64 sizes; an entry of size 0 is not taken.
        budget: for all kinds together, in the unit of the sizes.
        worthless: entries with at most this value are not taken.
        least: the smallest size of an entry.
    Returns:
        The taken ids of each kind, best first; int32, or int64 from 2**31 entries on.
    Cost: that of `rank`, and memory for the taken ids.
    """
    firsts = np.cumsum([0, *(each.size for each in values)])
    taken: list[list[np.ndarray]] = [[] for _ in values]
    for block in rank(values):
        if budget < least:
            break
        sizes, owners, is_worth = (
            np.empty(block.size, np.int64),
            np.searchsorted(firsts, block, side="right") - 1,
            np.ones(block.size, bool),
        )
        for number in range(len(values)):
            at = np.flatnonzero(owners == number)
            ids = block[at] - firsts[number]
            sizes[at], is_worth[at] = sizes_of(number, ids), values[number][ids] > worthless
        candidates = np.flatnonzero((sizes > 0) & is_worth)
        chosen = candidates[fill_by_rank(sizes[candidates], budget)]
        budget -= int(sizes[chosen].sum())
        for number, pieces in enumerate(taken):
            ids = block[chosen[owners[chosen] == number]] - firsts[number]
            pieces.append(ids.astype(index_dtype(values[number].size)))
        if not is_worth.all():
            break
    return [np.concatenate(pieces) if pieces else np.empty(0, np.int32) for pieces in taken]


def fill_by_rank(sizes: np.ndarray, budget: int) -> np.ndarray:
    """Return int64[k]: indices of entries taken in order; entries that do not fit any more are passed over. `sizes` are positive."""
    taken, first = [], 0
    while first < sizes.size and budget > 0:
        ends = np.cumsum(sizes[first:])
        count = int(np.searchsorted(ends, budget, side="right"))
        taken.append(np.arange(first, first + count))
        budget -= int(ends[count - 1]) if count else 0
        smaller = np.flatnonzero(sizes[first + count :] <= budget)
        if smaller.size == 0:
            break
        first += count + int(smaller[0])
    return np.concatenate([np.empty(0, np.int64), *taken]).astype(np.int64)
