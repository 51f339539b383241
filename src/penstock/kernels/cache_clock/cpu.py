"""CLOCK: a ring of slots and a hand. Same hits and content as `reference.py`. The hand moves downwards, as FIFO fills its slots.

The mark of a row is a bit of its directory entry, which a hit reads and an eviction writes anyway. With a separate bitmap, each hit made
one more random read, and an expensive one, because the directory's pages evict the bitmap's from the TLB.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._marks import FRESH, GROUP, mark_hits, settle, unmark
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels.cache_lookup.cpu import FAR_AHEAD, keep_resident, place_ahead

HAND, USED = range(2)
"""Indices in `cursor`."""


@kernel
def access(ids, entries, owners, cursor, hit_slots, inserted, into):
    """Request a batch. Returns how many ids are inserted.

    Args:
        ids: int64[n], distinct.
        entries: int32[num_nodes], the directory (`penstock.kernels._marks`).
        owners: int32[capacity], the node in each slot in use. 0 < capacity < FRESH.
        cursor: int64[2]: the slot that the hand is at; number of slots in use.
        hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, count, spared, first, width = owners.size, 0, 0, 0, GROUP
    hand, used = cursor[HAND], cursor[USED]
    while first < ids.size:
        end, begun = min(first + width, ids.size), count
        width = GROUP
        missed = mark_hits(ids, entries, first, end, hit_slots, inserted, begun)
        while count < missed and used < capacity:
            store(into, count, np.int32(hand))
            hand = hand - 1 if hand > 0 else capacity - 1
            count, used = count + 1, used + 1
        while count < missed:
            prefetch_far(owners, max(hand - FAR_AHEAD, 0))
            prefetch_far(entries, np.int64(load(owners, place_ahead(hand, capacity, -1))))
            owner = np.int64(load(owners, hand))
            entry = np.int64(load(entries, owner))
            if entry & FRESH:
                unmark(ids, entries, load(inserted, count), end, hit_slots)
                end, width = load(inserted, count), 1
                break
            is_marked = entry >> 30
            store(entries, owner, np.int32(hand | is_marked - 1))
            store(into, count, np.int32(hand))
            hand = hand - 1 if hand > 0 else capacity - 1
            count, spared = count + 1 - is_marked, spared + is_marked
        settle(ids, entries, first, end, hit_slots)
        for k in range(begun, count):
            node, slot = load(ids, load(inserted, k)), load(into, k)
            store(owners, np.int64(slot), np.int32(node))
            store(entries, node, slot)
        first = end
    cursor[HAND], cursor[USED] = hand, used
    return keep_resident(ids, entries, count, inserted, into) if count + spared > capacity else count
