"""One budget for two caches: which neighbour lists and which feature rows are worth their bytes.

In: how often each list and each row is asked for, its bytes, and what a hit saves (measured). Out: what to keep. Invariant: the kept
entries fit the budget, and no entry that is left out and would still fit beats a kept one in value per byte.
Source: DUCATI (SIGMOD'23), the allocator: value = visits x slope, filled by value density. Entries are tiny against the budget, so that the
greedy choice is within one entry of the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from penstock.cache.ranking import rank
from penstock.records import index_dtype


def take_best(
    values: Sequence[np.ndarray], sizes_of: Callable[[int, np.ndarray], np.ndarray], budget: int, *, worthless: float = 0.0, least: int = 1
) -> list[np.ndarray]:
    """Fill a budget from several kinds of entries, the best first, passing over what does not fit any more.

    Args:
        values: [n] per kind, what entries are worth; one ranking goes over all, equal ones by kind and id.
        sizes_of: (number of the kind, ids) -> their sizes; an entry without size is not taken.
        budget: of all together.
        worthless: entries of this value or less are not taken.
        least: the smallest size that there is.
    Returns:
        per kind the ids taken, best first; int32 where they fit.
    Cost: what `rank` takes, and what is taken.
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
    """Return int64[k]: indices taken in order, passing over what does not fit any more. `sizes` are positive."""
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
