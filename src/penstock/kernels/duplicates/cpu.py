"""Which entries of neighbour lists repeat an earlier one: a bitmap over the sources, set and cleared list by list.

Same results as `reference.py`. Refused: sorting each list (loses the order of input unless sorted back); a hash table per list (its size
depends on the longest list, while the bitmap always needs one bit per source node).
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._bits import has_bit, set_bit
from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_write, store

AHEAD = 24


@helper
def _mark(indices, start, end, bitmap, keep):
    count = 0
    for i in range(start, end):
        if i + AHEAD < indices.size:
            prefetch_write(bitmap, np.int64(load(indices, i + AHEAD)) >> 6)
        node = np.int64(load(indices, i))
        is_first = not has_bit(bitmap, node)
        set_bit(bitmap, node)
        store(keep, i, np.uint8(is_first))
        count += is_first
    return count


@kernel
def mark_list(indices, bitmap, keep):
    """Mark the first occurrences in one list, or in a piece of one: the bitmap carries over to the next piece. Returns their number.

    Args:
        indices: int32 or int64[n], neighbours.
        bitmap: uint64[ceil(num_src / 64)], zero at the start of a list.
        keep: receives uint8[n].
    """
    return _mark(indices, 0, indices.size, bitmap, keep)


@kernel
def mark_first(ends, indices, bitmap, keep):
    """Mark the first occurrences in each list; see `reference.mark_first`. Writes `keep`, and overwrites `ends` with the new ends.

    Args:
        bitmap: uint64[ceil(num_src / 64)], zero before and after.
    """
    start, count = 0, 0
    for v in range(ends.size):
        end = load(ends, v)
        count += _mark(indices, start, end, bitmap, keep)
        for i in range(start, end):
            store(bitmap, np.int64(load(indices, i)) >> 6, np.uint64(0))
        start = end
        store(ends, v, count)
