"""Least recently used, by a log of accesses in place of a linked list. Same hits and content as `reference.py`.

Each access appends its slot to a ring, and the row notes where; older entries of the row are void from then on. The row to evict is
the first entry that is not void: the end of a list would be found one read at random after another, the log is read in order, so that
rows and directory can be prefetched. Void entries are squeezed out when the ring is full; with three entries a row that is one step of
work in sequence for each two accesses.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident, place_ahead, release

BEGIN, LENGTH, USED = range(3)
"""Places in `cursor`."""

LOG_ENTRIES = 3
"""Log entries per row."""


@helper
def _squeeze(rows, log, begin, length):
    """Drop void entries. Returns how many are left, from `begin` on."""
    read, write, kept = begin, begin, 0
    for _ in range(length):
        prefetch_write(rows, 2 * np.int64(load(log, place_ahead(read, log.size))))
        slot = load(log, read)
        if load(rows, 2 * np.int64(slot) + 1) == read:
            store(log, write, slot)
            store(rows, 2 * np.int64(slot) + 1, np.int32(write))
            write = write + 1 if write + 1 < log.size else 0
            kept += 1
        read = read + 1 if read + 1 < log.size else 0
    return kept


@kernel
def access(ids, slots, rows, log, cursor, hit_slots, inserted, into):
    """Ask for a batch; returns how many are inserted.

    Args:
        rows: int32[2 * capacity], per slot its node and the place of its last access in the log. capacity > 0.
        log: int32[m], m > capacity, slots in the order of accesses; a ring.
        cursor: int64[3]: where the ring begins, its length, slots in use.
        ids, slots, hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, count, size = rows.size >> 1, 0, log.size
    begin, length, used = cursor[BEGIN], cursor[LENGTH], cursor[USED]
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_write(slots, load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            prefetch_write(rows, 2 * max(np.int64(load(slots, load(ids, i + AHEAD))), 0))
        if length == size:
            length = _squeeze(rows, log, begin, length)
        node = load(ids, i)
        slot = np.int64(load(slots, node))
        store(hit_slots, i, np.int32(max(slot, -1)))
        if slot < 0:
            if used < capacity:
                slot = used
                used += 1
            else:
                is_void = True
                while is_void:
                    near = place_ahead(begin, size)
                    prefetch_write(rows, 2 * np.int64(load(log, place_ahead(near, size))))
                    ahead = 2 * np.int64(load(log, near))
                    if load(rows, ahead + 1) == near:
                        prefetch_write(slots, np.int64(load(rows, ahead)))
                    slot = np.int64(load(log, begin))
                    is_void = load(rows, 2 * slot + 1) != begin
                    begin = begin + 1 if begin + 1 < size else 0
                    length -= 1
                release(slots, np.int64(load(rows, 2 * slot)), np.int32(slot), -1)
            store(rows, 2 * slot, np.int32(node))
            store(slots, node, np.int32(slot))
            store(inserted, count, np.int64(i))
            store(into, count, np.int32(slot))
            count += 1
        end = begin + length
        end = end if end < size else end - size
        store(log, end, np.int32(slot))
        store(rows, 2 * slot + 1, np.int32(end))
        length += 1
    cursor[BEGIN], cursor[LENGTH], cursor[USED] = begin, length, used
    return keep_resident(ids, slots, count, inserted, into) if ids.size > capacity else count
