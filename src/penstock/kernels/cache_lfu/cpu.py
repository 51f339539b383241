"""Least frequently used: a list of rows per count. Same hits and content as `reference.py`.

The list of count c has its end at capacity + c; the value of a row is its count.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._lists import (
    is_empty,
    link_first,
    node_of,
    prefetch_neighbors,
    prefetch_row,
    set_row,
    set_value,
    take_last,
    unlink,
    value_of,
)
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident


@kernel
def access(ids, slots, rows, most, cursor, hit_slots, inserted, into):
    """Request a batch. Returns how many ids are inserted.

    Args:
        slots: int32[num_nodes], the directory: slot of each node, negative if it is not resident.
        rows: int32[4 * (capacity + most + 1)], see `penstock.kernels._lists`. capacity > 0.
        most: counts stop here.
        cursor: int64[2]: a count below which there is no row; number of slots in use.
        ids, hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, count = (rows.size >> 2) - most - 1, 0
    least, used = cursor[0], cursor[1]
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_far(slots, load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            prefetch_row(rows, load(slots, load(ids, i + AHEAD)))
        if i + AHEAD // 2 < ids.size:
            prefetch_neighbors(rows, load(slots, load(ids, i + AHEAD // 2)))
        node = load(ids, i)
        slot = np.int64(load(slots, node))
        store(hit_slots, i, np.int32(max(slot, -1)))
        if slot >= 0:
            accesses = min(value_of(rows, slot) + 1, most)
            set_value(rows, slot, accesses)
            unlink(rows, slot)
        else:
            if used < capacity:
                slot = used
                used += 1
            else:
                while is_empty(rows, capacity + least):
                    least += 1
                slot = take_last(rows, slots, capacity + least)
                store(slots, node_of(rows, slot), np.int32(-1))
            accesses = least = np.int64(1)
            set_row(rows, slot, node, accesses)
            store(slots, node, np.int32(slot))
            store(inserted, count, np.int64(i))
            store(into, count, np.int32(slot))
            count += 1
        link_first(rows, capacity + accesses, slot)
    cursor[0], cursor[1] = least, used
    return keep_resident(ids, slots, count, inserted, into)
