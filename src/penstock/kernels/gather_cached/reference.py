"""Rows by id, out of a cache where they are in it: the definition."""

from __future__ import annotations

import numpy as np


def gather_cached(table, cache, slots, ids, by_position=False):
    """Return (rows, number of hits): row i is cache[slot] where id i has a slot, else table[ids[i]].

    Args:
        table: any dtype [num_rows, ...].
        cache: same dtype and row shape, [num_slots, ...].
        slots: int32[num_rows], slot of each node, negative where it has none; int32[n], of each of ids, if `by_position`.
        ids: int64[n], in range.
        by_position: see slots.
    """
    found = slots if by_position else slots[ids]
    rows = np.array(table[ids])
    rows[found >= 0] = cache[found[found >= 0]]
    return rows, int((found >= 0).sum())
