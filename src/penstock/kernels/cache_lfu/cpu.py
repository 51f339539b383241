"""Least frequently used: a list of rows per count. Same hits and content as `reference.py`.

A list of count c has an end of its own in `links`, at capacity + c: rows are taken out without asking where they stand.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._lists import is_empty, last_of, link_first, unlink
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident, release


@kernel
def access(ids, slots, owners, counts, links, most, cursor, hit_slots, inserted, into):
    """Ask for a batch; returns how many are inserted.

    Args:
        counts: uint8[capacity], accesses of each row, at most `most`.
        links: int32[2 * (capacity + most + 1)], per slot and per end of a list the one before and the one after.
        most: counts stop here, at most 255.
        cursor: int64[2]: no row has a lower count, slots in use.
        ids, slots, owners, hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, count = owners.size, 0
    least, used = cursor[0], cursor[1]
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_write(slots, load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            prefetch_write(links, 2 * max(np.int64(load(slots, load(ids, i + AHEAD))), 0))
        node = load(ids, i)
        slot = np.int64(load(slots, node))
        store(hit_slots, i, np.int32(max(slot, -1)))
        if slot >= 0:
            accesses = min(np.int64(load(counts, slot)) + 1, most)
            unlink(links, slot)
        else:
            if used < capacity:
                slot = used
                used += 1
            else:
                while is_empty(links, capacity + least):
                    least += 1
                slot = last_of(links, capacity + least)
                unlink(links, slot)
                release(slots, np.int64(load(owners, slot)), np.int32(slot), -1)
            accesses = least = np.int64(1)
            store(owners, slot, np.int32(node))
            store(slots, node, np.int32(slot))
            store(inserted, count, np.int64(i))
            store(into, count, np.int32(slot))
            count += 1
        store(counts, slot, np.uint8(accesses))
        link_first(links, capacity + accesses, slot)
    cursor[0], cursor[1] = least, used
    return keep_resident(ids, slots, count, inserted, into)
