"""First in, first out: a ring of slots and a hand. Same hits and content as `reference.py`.

The hand goes downwards: rows are filled in from slot 0, best first, and the worst of them is the first to be overwritten.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident, release


@kernel
def access(ids, slots, owners, cursor, hit_slots, inserted, into):
    """Ask for a batch; returns how many are inserted.

    Args:
        ids: int64[n], distinct.
        slots: int32[num_nodes], the directory.
        owners: int32[capacity], node in each slot, -1 where it is empty. capacity > 0.
        cursor: int64[1], the slot overwritten next.
        hit_slots, inserted, into: receive int32[n], int64[k], int32[k], see `penstock.cache.Change`; k is at most n.
    """
    capacity, hand, count = owners.size, cursor[0], 0
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_write(slots, load(ids, i + AHEAD))
        node = load(ids, i)
        slot = load(slots, node)
        if slot >= 0:
            store(hit_slots, i, slot)
            continue
        store(hit_slots, i, np.int32(-1))
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
    return keep_resident(ids, slots, count, inserted, into) if count > capacity else count
