"""Which entries of neighbour lists repeat an earlier entry of the same list: the definition."""

from __future__ import annotations

import numpy as np


def mark_first(ends, indices):
    """Mark the first occurrence of each neighbour in each list.

    Args:
        ends: int64[num_lists], end of each list in `indices`; the first list begins at 0.
        indices: int32 or int64[n], neighbours.
    Returns:
        (keep uint8[n], new_ends int64[num_lists]): keep is 1 at the first occurrence of a neighbour in a list; new_ends are the ends of the
        lists without repetitions.
    """
    keep = np.zeros(indices.size, dtype=np.uint8)
    start = 0
    for end in map(int, ends):
        seen = set()
        for i in range(start, end):
            if int(indices[i]) not in seen:
                seen.add(int(indices[i]))
                keep[i] = 1
        start = end
    return keep, np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[ends]
