"""First in, first out, without a queue. Same hits and content as `reference.py`.

Rows are numbered in the order in which they enter the cache. The directory holds the last number of each node: the node is resident until
as many later rows have entered as there are slots. So an eviction reads and writes nothing, and the slot follows from the number. Rows
enter at descending slots: the initial content lies from slot 0 on, best first, so the worst of it is overwritten first.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels.cache_lookup.cpu import AHEAD, drop_first

NEWEST, COME = range(2)
"""Indices in `cursor`."""

GROUP = 64
"""Ids looked up before their misses are inserted."""


@helper
def _find(number, capacity, newest, come):
    """The slot of a row by its number, -1 if it left or never entered. Sign bits replace branches, which would often be mispredicted."""
    age = come - number  # 1: the newest row
    slot = newest + age - 1
    slot -= capacity & ~(slot - capacity >> 63)
    return slot | (number | capacity - age) >> 63


@kernel
def look_up_all(numbers, capacity, cursor, slots):
    """Write the slots of all nodes; arguments as in `access`."""
    for node in range(numbers.size):
        slots[node] = np.int32(_find(np.int64(numbers[node]), capacity, cursor[NEWEST], cursor[COME]))


@kernel
def access(ids, numbers, capacity, cursor, hit_slots, inserted, into):
    """Request a batch. Returns how many ids are inserted.

    Args:
        ids: int64[n], distinct.
        numbers: int32[num_nodes], the directory: the number of each node's row when it last entered, -1: never.
        capacity: number of slots, at least one.
        cursor: int64[2]: the slot of the newest row; how many rows have entered. The latter plus n must be below 2**31.
        hit_slots, inserted, into: receive int32[n], int64[k], int32[k], see `penstock.cache.Change`; need room for n elements each.
    """
    newest, come, count, last = cursor[NEWEST], cursor[COME], 0, ids.size - 1
    for first in range(0, ids.size, GROUP):
        begun, shift = count, newest + come
        for i in range(first, min(first + GROUP, ids.size)):
            prefetch_far(numbers, load(ids, min(i + AHEAD, last)))
            number, now = np.int64(load(numbers, load(ids, i))), come + count - begun
            slot = _find(number, capacity, shift - now, now)
            store(hit_slots, i, np.int32(slot))
            store(inserted, count, np.int64(i))
            count -= slot >> 63
        for k in range(begun, count):
            newest = newest - 1 if newest > 0 else capacity - 1
            store(numbers, load(ids, load(inserted, k)), np.int32(come))
            store(into, k, np.int32(newest))
            come += 1
    cursor[NEWEST], cursor[COME] = newest, come
    return drop_first(count - capacity, count, inserted, into)
