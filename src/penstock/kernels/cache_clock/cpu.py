"""CLOCK: a ring of slots and a hand. Same hits and content as `reference.py`. The hand goes downwards, as rows come in FIFO.

The mark of a row is a bit of its directory entry, which a hit has at hand and an eviction writes anyway. In a bitmap of its own each hit
was one more read at random, and a dear one, as the directory's pages drive the bitmap's out of the processor's tables.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, MARK, SLOT, keep_resident

HAND, USED = range(2)
"""Places in `cursor`."""


@kernel
def access(ids, entries, owners, cursor, hit_slots, inserted, into):
    """Ask for a batch; returns how many are inserted.

    Args:
        ids: int64[n], distinct.
        entries: int32[num_nodes], the directory: slot, with MARK where the row was hit since the hand passed; negative: not resident.
        owners: int32[capacity], node in each slot in use. 0 < capacity < MARK.
        cursor: int64[2]: the slot the hand is at, slots in use.
        hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, count, turned = owners.size, 0, 0
    hand, used = cursor[HAND], cursor[USED]
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
        is_marked = used == capacity
        while is_marked:
            ahead = hand - AHEAD if hand >= AHEAD else max(hand - AHEAD + capacity, 0)
            prefetch_write(entries, np.int64(load(owners, ahead)))
            owner = np.int64(load(owners, hand))
            is_marked = np.int64(load(entries, owner)) >= MARK
            store(entries, owner, np.int32(hand if is_marked else -1))
            if is_marked:
                hand = hand - 1 if hand > 0 else capacity - 1
                turned += 1
        used = min(used + 1, capacity)
        store(owners, hand, np.int32(node))
        store(entries, node, np.int32(hand))
        store(inserted, count, np.int64(i))
        store(into, count, np.int32(hand))
        count += 1
        hand = hand - 1 if hand > 0 else capacity - 1
    cursor[HAND], cursor[USED] = hand, used
    return keep_resident(ids, entries, count, inserted, into) if count + turned > capacity else count
