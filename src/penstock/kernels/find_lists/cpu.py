"""Find the node whose neighbour list contains a position. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, store


@kernel
def find_lists(indptr, positions, nodes):
    """Write to int64[n] `nodes` the node whose list contains each of int64[n] `positions`, in [0, indptr[-1]). Positions drawn from one
    list follow each other, so most lie in the list of the position before."""
    start, end, node = 0, 0, 0
    for i in range(positions.size):
        position = load(positions, i)
        if not start <= position < end:
            low, high = 0, indptr.size - 1
            while high - low > 1:
                middle = (low + high) >> 1
                if load(indptr, middle) <= position:
                    low = middle
                else:
                    high = middle
            node, start, end = low, load(indptr, low), load(indptr, low + 1)
        store(nodes, i, node)
