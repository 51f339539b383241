"""The directory of a cache, looked up for a batch of ids, and what the kernels of all policies share.

Same results as `reference.py`, byte for byte.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_far, store

AHEAD = 64
"""How many ids ahead their directory entries are prefetched."""

FAR_AHEAD = 512
"""How many places ahead a table is prefetched that a hand reads in order: too slowly for the processor to take note of it."""

LOW = (1 << 32) - 1
"""Queue entries hold node << 32 | slot: the node is there when its row is evicted, without one more read at random."""


@kernel
def lookup(ids, slots, hit_slots):
    """Write the slots of ids, -1 where there is none."""
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_far(slots, load(ids, i + AHEAD))
        store(hit_slots, i, max(load(slots, load(ids, i)), np.int32(-1)))


@kernel
def lies_inside(ids, num_nodes):
    """Whether all ids lie in [0, num_nodes). No early end: it vectorises."""
    signs = np.int64(0)
    for i in range(ids.size):
        signs |= ids[i] | (num_nodes - 1 - ids[i])
    return signs >= 0


@kernel
def count_anew(numbers, shift):
    """Count numbers that only grow, int32[n], from `shift` on; earlier ones become -1."""
    for k in range(numbers.size):
        numbers[k] = np.int32(max(np.int64(numbers[k]) - shift, -1))


@helper
def place_ahead(place, size, step=1):
    """A place of a ring that is half of `AHEAD` on, forwards or backwards: a hint what to prefetch."""
    ahead = place + step * (AHEAD >> 1)
    return ahead if 0 <= ahead < size else place


@helper
def around(place, size):
    """A place of a ring that may be past its end."""
    return place if place < size else place - size


@helper
def keep_resident(ids, slots, count, inserted, into, node_numbers=1):
    """Drop those of the first `count` inserted that were evicted again within their batch. Returns how many are left.

    The slot is the first of `node_numbers` that the directory keeps per node.
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
    """Drop the first `left` of the `count` inserted, where those are the ones that left again. Returns how many are left."""
    if left > 0:
        for k in range(left, count):
            store(inserted, k - left, load(inserted, k))
            store(into, k - left, load(into, k))
    return count - max(left, 0)
