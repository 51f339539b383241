"""One budget for two caches: which neighbour lists and which feature rows are worth their bytes.

In: how often each list and each row is asked for, its bytes, and what a hit saves (measured). Out: what to keep. Invariant: the kept
entries fit the budget, and no entry that is left out and would still fit beats a kept one in value per byte.
Source: DUCATI (SIGMOD'23), the allocator: value = visits x slope, filled by value density. Entries are tiny against the budget, so that the
greedy choice is within one entry of the best.
"""

from __future__ import annotations

import numpy as np

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
        (int64 nodes whose lists are kept, int64 rows that are kept), best first.
    Cost: O((n + m) log(n + m)); 24 bytes per entry.
    """
    if min(np.min(each, initial=0) for each in (seconds_per_list_hit, seconds_per_row_hit, budget_bytes, row_bytes)) < 0:
        raise UsageError("the knapsack needs slopes, bytes and a budget that are not negative")
    with np.errstate(divide="ignore", invalid="ignore"):
        list_density = np.asarray(list_visits, np.float64) * seconds_per_list_hit / np.asarray(list_bytes, np.float64)
        row_density = np.asarray(row_visits, np.float64) * seconds_per_row_hit / row_bytes
    num_lists = list_density.size
    density = np.concatenate([list_density, row_density])
    sizes = np.concatenate([np.asarray(list_bytes, np.int64), np.broadcast_to(np.asarray(row_bytes, np.int64), row_density.shape)])
    ranking = np.argsort(-density, kind="stable")
    ranking = ranking[(density[ranking] > 0) & (sizes[ranking] > 0)]
    kept = ranking[fill_by_rank(sizes[ranking], budget_bytes)]
    return kept[kept < num_lists], kept[kept >= num_lists] - num_lists


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
