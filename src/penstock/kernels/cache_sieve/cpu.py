"""SIEVE without a linked list. Same hits and content as `reference.py`.

The hand would walk along links, one read at random after another. Here the rows that it has yet to see are a ring, those that it has
passed are a list behind it, and when the ring is empty the two change places: the hand reads memory in order, so that what it needs
next can be prefetched.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, LOW, clear_mark, has_mark, keep_resident, place_ahead, prefetch_mark, release, set_mark

BEGIN, LENGTH, PASSED, USED, SWAPPED = range(5)
"""Places in `cursor`."""


@kernel
def access(ids, slots, marks, entries, cursor, hit_slots, inserted, into):
    """Ask for a batch; returns how many are inserted.

    Args:
        marks: uint8[(capacity + 7) // 8], a bit per slot, set where a row was hit since the hand passed.
        entries: int64[2 * capacity], capacity > 0, of node << 32 | slot: the ring and the rows passed, or the other way round.
        cursor: int64[5]: where the ring begins, its length, the number of rows passed, slots in use, if the ring is the second half.
        ids, slots, hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, count, fresh, crowded = entries.size >> 1, 0, 0, False
    begin, length, num_passed, used, swapped = cursor[BEGIN], cursor[LENGTH], cursor[PASSED], cursor[USED], cursor[SWAPPED]
    ring, passed = swapped * capacity, capacity - swapped * capacity
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_write(slots, load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            prefetch_mark(marks, load(slots, load(ids, i + AHEAD)))
        node = load(ids, i)
        slot = np.int64(load(slots, node))
        if slot >= 0:
            store(hit_slots, i, np.int32(slot))
            set_mark(marks, slot)
            continue
        store(hit_slots, i, np.int32(-1))
        if used < capacity:
            slot = used
            used += 1
        else:
            is_marked = True
            while is_marked:
                if length == 0:
                    ring, passed = passed, ring
                    begin, length, num_passed, swapped = 0, num_passed, 0, 1 - swapped
                near = place_ahead(begin, capacity)
                ahead = load(entries, ring + near)
                prefetch_write(slots, ahead >> 32 if not has_mark(marks, ahead & LOW) else 0)
                entry = load(entries, ring + begin)
                begin = begin + 1 if begin + 1 < capacity else 0
                length -= 1
                slot = entry & LOW
                is_marked = has_mark(marks, slot)
                if is_marked:
                    clear_mark(marks, slot)
                    store(entries, passed + num_passed, entry)
                    num_passed += 1
            if length < fresh:  # rows of this batch are the newest, and none of them is marked
                fresh, crowded = length, True
            release(slots, entry >> 32, np.int32(slot), -1)
        end = begin + length
        store(entries, ring + (end if end < capacity else end - capacity), node << 32 | slot)
        length += 1
        fresh += 1
        store(slots, node, np.int32(slot))
        store(inserted, count, np.int64(i))
        store(into, count, np.int32(slot))
        count += 1
    cursor[BEGIN], cursor[LENGTH], cursor[PASSED], cursor[USED], cursor[SWAPPED] = begin, length, num_passed, used, swapped
    return keep_resident(ids, slots, count, inserted, into) if crowded else count
