"""Marks of rows that were hit, as a bit of their directory entries, and how CLOCK and SIEVE process a group of ids at once.

If ids are processed one by one, the processor predicts per id whether it hits and whether the hand spares a row, and is often wrong. In a
group, all hits are marked first, without a branch; then the hand finds a row for each miss; then the misses enter. Meanwhile the hits of
the group carry FRESH. Where the hand meets a FRESH row, one-by-one processing might give another result (the hit might come after the
miss). So the group ends before that miss, later marks are undone, and the miss is processed alone.

Entries are int32: negative, or a slot below FRESH, plus MARK if the row was hit since the hand passed it.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels.cache_lookup.cpu import AHEAD

MARK, FRESH = 1 << 30, 1 << 29
SLOT = FRESH - 1

GROUP = 64
"""Ids processed at once."""


@helper
def mark_hits(ids, entries, first, end, hit_slots, missed, count):
    """Mark the hits of ids[first:end], save all their former entries in `hit_slots`, and append the positions of misses to `missed`.

    Returns the number of misses, the `count` earlier ones included.
    """
    last = ids.size - 1
    for i in range(first, end):
        prefetch_far(entries, load(ids, min(i + AHEAD, last)))
        node = load(ids, i)
        entry = np.int64(load(entries, node))
        store(hit_slots, i, np.int32(entry))
        store(entries, node, np.int32(entry | MARK | FRESH))
        store(missed, count, np.int64(i))
        count -= entry >> 63
    return count


@helper
def unmark(ids, entries, first, end, hit_slots):
    """Undo `mark_hits` for ids[first:end]."""
    for i in range(first, end):
        store(entries, load(ids, i), load(hit_slots, i))


@helper
def settle(ids, entries, first, end, hit_slots):
    """Remove FRESH from the hits of ids[first:end]; write their slots to `hit_slots`, -1 for misses."""
    for i in range(first, end):
        entry = np.int64(load(hit_slots, i))
        store(entries, load(ids, i), np.int32(entry | MARK))
        store(hit_slots, i, np.int32(entry & SLOT | entry >> 63))
