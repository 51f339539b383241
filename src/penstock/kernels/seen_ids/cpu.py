"""A set of ids, as hashes of 128 bits: a table with linear probing. Same results as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_write, store

AHEAD = 16


@helper
def _slot(value, num_slots):
    """Spread the high half of a hash over the slots. Source: Lemire 2019."""
    return np.int64(((value >> np.uint64(32)) * num_slots) >> np.uint64(32))


@kernel
def add_new(first, second, table, fresh):
    """Add ids to a set and mark the new ones; returns their number. See `reference.add_new`.

    Args:
        table: uint64[2 * num_slots], pairs of hashes; the first hash of an empty slot is 0. num_slots is below 2**32 and above the number
            of ids.
        fresh: receives uint8[n].
    """
    num_slots, count = np.uint64(table.size >> 1), 0
    for i in range(first.size):
        if i + AHEAD < first.size:
            prefetch_write(table, 2 * _slot(load(first, i + AHEAD), num_slots))
        one, other = load(first, i), load(second, i)
        if one == np.uint64(0):
            one = np.uint64(1)
        slot = _slot(one, num_slots)
        while load(table, 2 * slot) != np.uint64(0) and (load(table, 2 * slot) != one or load(table, 2 * slot + 1) != other):
            slot += 1
            if slot == np.int64(num_slots):
                slot = np.int64(0)
        is_new = load(table, 2 * slot) == np.uint64(0)
        if is_new:
            store(table, 2 * slot, one)
            store(table, 2 * slot + 1, other)
            count += 1
        store(fresh, i, np.uint8(is_new))
    return count
