"""SIEVE without a linked list. Same hits and content as `reference.py`.

The hand would walk along links, one read at random after another. Here the rows that it has yet to see are a ring, those that it has
passed are a list behind it, and when the ring is empty the two change places: the hand reads memory in order, so that what it needs
next can be prefetched. Marks are where CLOCK has them, so both need the nodes only.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, MARK, SLOT, keep_resident, place_ahead

BEGIN, LENGTH, PASSED, USED, SWAPPED = range(5)
"""Places in `cursor`."""


@kernel
def access(ids, entries, nodes, cursor, hit_slots, inserted, into):
    """Ask for a batch; returns how many are inserted.

    Args:
        nodes: int32[2 * capacity], 0 < capacity < MARK: the ring and the rows passed, or the other way round.
        cursor: int64[5]: where the ring begins, its length, the number of rows passed, slots in use, if the ring is the second half.
        ids, entries, hit_slots, inserted, into: as in `cache_clock`.
    """
    capacity, count, fresh, crowded = nodes.size >> 1, 0, 0, False
    begin, length, num_passed, used, swapped = cursor[BEGIN], cursor[LENGTH], cursor[PASSED], cursor[USED], cursor[SWAPPED]
    ring, passed = swapped * capacity, capacity - swapped * capacity
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_write(entries, load(ids, i + AHEAD))
        node = load(ids, i)
        entry = np.int64(load(entries, node))
        if entry >= 0:
            store(hit_slots, i, np.int32(entry & SLOT))
            store(entries, node, np.int32(entry | MARK))
            continue
        store(hit_slots, i, np.int32(-1))
        slot, is_marked = used, used == capacity
        used = min(used + 1, capacity)
        while is_marked:
            if length == 0:
                ring, passed = passed, ring
                begin, length, num_passed, swapped = 0, num_passed, 0, 1 - swapped
            prefetch_write(entries, np.int64(load(nodes, ring + place_ahead(begin, capacity))))
            row = np.int64(load(nodes, ring + begin))
            begin = begin + 1 if begin + 1 < capacity else 0
            length -= 1
            slot = np.int64(load(entries, row))
            is_marked = slot >= MARK
            store(entries, row, np.int32(slot & SLOT if is_marked else -1))
            if is_marked:
                store(nodes, passed + num_passed, np.int32(row))
                num_passed += 1
        if length < fresh:  # rows of this batch are the newest, and none of them is marked
            fresh, crowded = length, True
        end = begin + length
        store(nodes, ring + (end if end < capacity else end - capacity), np.int32(node))
        length += 1
        fresh += 1
        store(entries, node, np.int32(slot))
        store(inserted, count, np.int64(i))
        store(into, count, np.int32(slot))
        count += 1
    cursor[BEGIN], cursor[LENGTH], cursor[PASSED], cursor[USED], cursor[SWAPPED] = begin, length, num_passed, used, swapped
    return keep_resident(ids, entries, count, inserted, into) if crowded else count
