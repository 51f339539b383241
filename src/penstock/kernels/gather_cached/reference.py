"""Gather rows by id, from a cache or the table beneath it: the definition."""

from __future__ import annotations

import numpy as np


def gather_cached(table, cache, slots, ids, by_position=False):
    """Return (rows, number of hits): row i is cache[slot] if ids[i] has a slot, else table[ids[i]].

    Args:
        table: any dtype [num_rows, ...].
        cache: same dtype and row shape, [num_slots, ...].
        slots: int32[num_rows], the slot of each node, negative if it is not in the cache; with `by_position`, int32[n], the slot of each
            of `ids`.
        ids: int64[n], in range.
        by_position: see `slots`.
    """
    found = slots if by_position else slots[ids]
    rows = np.array(table[ids])
    rows[found >= 0] = cache[found[found >= 0]]
    return rows, int((found >= 0).sum())
