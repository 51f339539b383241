"""CLOCK: a ring of slots, a hand and a mark per slot. Same hits and content as `reference.py`. The hand goes downwards, as in FIFO."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident, release


@kernel
def access(ids, slots, owners, marks, cursor, hit_slots, inserted, into):
    """Ask for a batch; returns how many are inserted.

    Args:
        marks: uint8[capacity], 1 where a row was hit since the hand passed.
        ids, slots, owners, cursor, hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, hand, count, turned = owners.size, cursor[0], 0, 0
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_write(slots, load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            prefetch_write(marks, max(np.int64(load(slots, load(ids, i + AHEAD))), 0))
        node = load(ids, i)
        slot = load(slots, node)
        if slot >= 0:
            store(hit_slots, i, slot)
            store(marks, np.int64(slot), np.uint8(1))
            continue
        store(hit_slots, i, np.int32(-1))
        while load(marks, hand):
            store(marks, hand, np.uint8(0))
            hand = hand - 1 if hand > 0 else capacity - 1
            turned += 1
        ahead = hand - AHEAD if hand >= AHEAD else max(hand - AHEAD + capacity, 0)
        prefetch_write(slots, max(np.int64(load(owners, ahead)), 0))
        owner = np.int64(load(owners, hand))
        if owner >= 0:
            release(slots, owner, np.int32(hand), -1)
        store(owners, hand, np.int32(node))
        store(slots, node, np.int32(hand))
        store(inserted, count, np.int64(i))
        store(into, count, np.int32(hand))
        count += 1
        hand = hand - 1 if hand > 0 else capacity - 1
    cursor[0] = hand
    return keep_resident(ids, slots, count, inserted, into) if count + turned > capacity else count
