"""Marks of rows that were hit, a bit of their directory entries, and how CLOCK and SIEVE ask for a group of ids at once.

Id by id, whether an id hits and whether the hand spares a row are guesses of the processor, often wrong. In a group all hits are marked
first, without a branch, then the hand finds a row for each miss, then those come in. The hits of a group wear FRESH meanwhile: where the
hand meets one, id by id might have gone otherwise (the hit might have come later than the miss). So the group ends before that miss, what
was marked behind it is taken back, and the miss is asked for alone.

Entries are int32: negative, or a slot below FRESH, with MARK where the row was hit since the hand passed.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels.cache_lookup.cpu import AHEAD

MARK, FRESH = 1 << 30, 1 << 29
SLOT = FRESH - 1

GROUP = 64
"""Ids asked for at once."""


@helper
def mark_hits(ids, entries, first, end, hit_slots, missed, count):
    """Mark the hits of ids[first:end], keep their former entries in `hit_slots`, and append the misses' positions.

    Returns how many misses there are, those `count` that were there before included.
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
    """Take back what `mark_hits` did to the entries of ids[first:end]."""
    for i in range(first, end):
        store(entries, load(ids, i), load(hit_slots, i))


@helper
def settle(ids, entries, first, end, hit_slots):
    """The hits of ids[first:end] are fresh no more; `hit_slots` receives slots."""
    for i in range(first, end):
        entry = np.int64(load(hit_slots, i))
        store(entries, load(ids, i), np.int32(entry | MARK))
        store(hit_slots, i, np.int32(entry & SLOT | entry >> 63))
