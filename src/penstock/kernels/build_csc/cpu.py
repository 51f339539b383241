"""Edge list -> in-neighbour lists, by counting: each edge is read twice and written once. Same result as `reference.py`."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.placement.cpu import count_keys

AHEAD = 16


def build_csc(src, dst, num_dst, indices, edge_ids):
    """Group edges by destination, see `reference.build_csc`. Returns indptr; writes the other two, of any dtypes that have room."""
    indptr = np.zeros(num_dst + 1, np.int64)
    count_degrees(dst, indptr[1:])
    np.cumsum(indptr, out=indptr)
    place_edges(src, dst, indptr[:-1].copy(), indices, edge_ids)
    return indptr


@kernel
def count_degrees(dst, degrees):
    """Add to int64[num_dst] `degrees` the number of edges into each node."""
    count_keys(dst, 0, degrees)


@kernel
def place_edges(src, dst, cursor, indices, edge_ids):
    """Write each edge to the next place of its destination's list.

    Args:
        src, dst: int[num_edges].
        cursor: int64[num_dst], next place of each list; advanced.
        indices: receives the source of each edge. edge_ids: receives its number in the edge list.
    """
    for i in range(dst.size):
        if i + AHEAD < dst.size:
            prefetch_write(cursor, load(dst, i + AHEAD))
        node = load(dst, i)
        at = load(cursor, node)
        store(cursor, node, at + 1)
        store(indices, at, load(src, i))
        store(edge_ids, at, i)
