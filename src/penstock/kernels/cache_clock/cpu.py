"""CLOCK: a ring of slots, a hand and a mark per slot. Same hits and content as `reference.py`. The hand goes downwards, as in FIFO."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, clear_mark, has_mark, keep_resident, prefetch_mark, release, set_mark


@kernel
def access(ids, slots, owners, marks, cursor, hit_slots, inserted, into):
    """Ask for a batch; returns how many are inserted.

    Args:
        marks: uint8[(capacity + 7) // 8], a bit per slot, set where a row was hit since the hand passed.
        ids, slots, owners, cursor, hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, hand, count, turned = owners.size, cursor[0], 0, 0
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_write(slots, load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            prefetch_mark(marks, load(slots, load(ids, i + AHEAD)))
        node = load(ids, i)
        slot = load(slots, node)
        if slot >= 0:
            store(hit_slots, i, slot)
            set_mark(marks, np.int64(slot))
            continue
        store(hit_slots, i, np.int32(-1))
        is_marked = True
        while is_marked:
            ahead = hand - AHEAD if hand >= AHEAD else max(hand - AHEAD + capacity, 0)
            prefetch_write(slots, 0 if has_mark(marks, ahead) else max(np.int64(load(owners, ahead)), 0))
            is_marked = has_mark(marks, hand)
            if is_marked:
                clear_mark(marks, hand)
                hand = hand - 1 if hand > 0 else capacity - 1
                turned += 1
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
