"""The directory of a cache, looked up for a batch of ids, and what the kernels of all policies share.

Same results as `reference.py`, byte for byte.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_far, store

AHEAD = 64
"""How many ids ahead the directory entry of an id is prefetched."""

FAR_AHEAD = 512
"""How many places ahead a table is prefetched that a hand reads in order; the hand moves too slowly for the hardware prefetcher."""

LOW = (1 << 32) - 1
"""Mask of the slot in a queue entry, node << 32 | slot. The entry holds the node to spare an eviction one random read."""


@kernel
def lookup(ids, slots, hit_slots):
    """Write the slot of each id, -1 if it has none."""
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_far(slots, load(ids, i + AHEAD))
        store(hit_slots, i, max(load(slots, load(ids, i)), np.int32(-1)))


@kernel
def lies_inside(ids, num_nodes):
    """Whether all ids lie in [0, num_nodes). No early exit, so the loop vectorises."""
    signs = np.int64(0)
    for i in range(ids.size):
        signs |= ids[i] | (num_nodes - 1 - ids[i])
    return signs >= 0


@kernel
def count_anew(numbers, shift):
    """Renumber ascending numbers, int32[n]: `shift` becomes 0, lower ones become -1."""
    for k in range(numbers.size):
        numbers[k] = np.int32(max(np.int64(numbers[k]) - shift, -1))


@helper
def place_ahead(place, size, step=1):
    """The place AHEAD / 2 further in a ring, forwards or backwards; `place` itself past the ends. Used as a prefetch hint only."""
    ahead = place + step * (AHEAD >> 1)
    return ahead if 0 <= ahead < size else place


@helper
def around(place, size):
    """Wrap a place that may be past the end of a ring."""
    return place if place < size else place - size


@helper
def keep_resident(ids, slots, count, inserted, into, node_numbers=1):
    """Of the first `count` inserted ids, drop those that were evicted again within the batch. Returns how many are left.

    The directory has `node_numbers` numbers per node; the slot is the first.
    """
    kept = 0
    for k in range(count):
        if k + AHEAD < count:
            prefetch_far(slots, node_numbers * load(ids, load(inserted, k + AHEAD)))
        position, slot = load(inserted, k), load(into, k)
        if load(slots, node_numbers * load(ids, position)) == slot:
            store(inserted, kept, position)
            store(into, kept, slot)
            kept += 1
    return kept


@helper
def drop_first(left, count, inserted, into):
    """Drop the first `left` of the `count` inserted ids, those that left again within the batch. Returns how many remain."""
    if left > 0:
        for k in range(left, count):
            store(inserted, k - left, load(inserted, k))
            store(into, k - left, load(into, k))
    return count - max(left, 0)
