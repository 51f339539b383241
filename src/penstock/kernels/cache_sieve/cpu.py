"""SIEVE without a linked list. Same hits and content as `reference.py`.

In a linked list, the hand makes one dependent random read after another. Here a ring holds the rows that the hand has not reached, and an
array the rows that it has passed; when the ring gets empty, the two swap. So the hand reads memory in order and can prefetch. Marks are in
the directory, as in CLOCK, so ring and array hold nodes only.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._marks import FRESH, GROUP, SLOT, mark_hits, settle, unmark
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels.cache_lookup.cpu import FAR_AHEAD, around, keep_resident, place_ahead

BEGIN, LENGTH, PASSED, USED, SWAPPED = range(5)
"""Indices in `cursor`."""


@kernel
def access(ids, entries, nodes, cursor, hit_slots, inserted, into):
    """Request a batch. Returns how many ids are inserted.

    Args:
        nodes: int32[2 * capacity], 0 < capacity < FRESH: the ring in one half, the rows passed in the other.
        cursor: int64[5]: begin and length of the ring; number of rows passed; number of slots in use; 1 if the ring is the second half,
            else 0.
        ids, entries, hit_slots, inserted, into: as in `cache_clock`.
    """
    capacity, count, fresh, crowded = nodes.size >> 1, 0, 0, False
    begin, length, num_passed, used, swapped = cursor[BEGIN], cursor[LENGTH], cursor[PASSED], cursor[USED], cursor[SWAPPED]
    ring, passed = swapped * capacity, capacity - swapped * capacity
    first, width = 0, GROUP
    while first < ids.size:
        end, begun = min(first + width, ids.size), count
        width = GROUP
        missed = mark_hits(ids, entries, first, end, hit_slots, inserted, begun)
        while count < missed and used < capacity:
            store(into, count, np.int32(used))
            count, used = count + 1, used + 1
        while count < missed:
            prefetch_far(nodes, ring + min(begin + FAR_AHEAD, capacity - 1))
            prefetch_far(nodes, passed + min(num_passed + FAR_AHEAD, capacity - 1))
            prefetch_far(entries, np.int64(load(nodes, ring + place_ahead(begin, capacity))))
            row = np.int64(load(nodes, ring + begin))
            entry = np.int64(load(entries, row))
            if length == 0 or entry & FRESH:  # a row of this group is next
                unmark(ids, entries, load(inserted, count), end, hit_slots)
                end, width = load(inserted, count), 1
                break
            begin = around(begin + 1, capacity)
            length -= 1
            slot, is_marked = entry & SLOT, entry >> 30
            store(entries, row, np.int32(slot | is_marked - 1))
            store(into, count, np.int32(slot))
            store(nodes, passed + num_passed, np.int32(row))
            num_passed += is_marked
            if length == 0 and count == begun:  # before a new row enters: the hand was at the newest, and goes back to the oldest
                fresh, crowded = 0, crowded or fresh > 0
                ring, passed = passed, ring
                begin, length, num_passed, swapped = 0, num_passed, 0, 1 - swapped
            count += 1 - is_marked
        settle(ids, entries, first, end, hit_slots)
        if length < fresh:  # rows of this batch are the newest, and none of them is marked
            fresh, crowded = length, True
        for k in range(begun, count):
            node = load(ids, load(inserted, k))
            store(nodes, ring + around(begin + length, capacity), np.int32(node))
            store(entries, node, load(into, k))
            length += 1
        fresh += count - begun
        first = end
    cursor[BEGIN], cursor[LENGTH], cursor[PASSED], cursor[USED], cursor[SWAPPED] = begin, length, num_passed, used, swapped
    return keep_resident(ids, entries, count, inserted, into) if crowded else count
