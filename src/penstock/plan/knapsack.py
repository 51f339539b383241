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
from penstock.errors import UsageError


def plan_split(
    list_visits: np.ndarray,
    list_bytes: np.ndarray,
    row_visits: np.ndarray,
    row_bytes: int | np.ndarray,
    *,
    seconds_per_list_hit: float | np.ndarray,
    seconds_per_row_hit: float | np.ndarray,
    budget_bytes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose what to keep.

    Args:
        list_visits: [n], how often each node's list is read in a while.
        list_bytes: int[n], its size; a list without bytes is not kept.
        row_visits: [m], how often each row is read in the same while.
        row_bytes: bytes of a row, of all or [m].
        seconds_per_list_hit, seconds_per_row_hit: time saved where one visit is served from the cache, of all or one by one.
        budget_bytes: of both together.
    Returns:
        (nodes whose lists are kept, rows that are kept), best first.
    Cost: O((n + m) log(n + m)); 16 bytes per entry.
    """
    if min(np.min(each, initial=0) for each in (seconds_per_list_hit, seconds_per_row_hit, budget_bytes, row_bytes)) < 0:
        raise UsageError("the knapsack needs slopes, bytes and a budget that are not negative")
    densities, whole_bytes = [], [np.asarray(list_bytes, np.int64), np.broadcast_to(np.asarray(row_bytes, np.int64), np.shape(row_visits))]
    for visits, slopes, sizes in zip((list_visits, row_visits), (seconds_per_list_hit, seconds_per_row_hit), whole_bytes, strict=True):
        densities.append(np.asarray(visits, np.float64) * slopes / np.maximum(sizes, 1))
    lists, rows = take_best(densities, lambda number, ids: whole_bytes[number][ids], budget_bytes)
    return lists, rows


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
            pieces.append(ids.astype(np.int32 if values[number].size <= np.iinfo(np.int32).max else np.int64))
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
