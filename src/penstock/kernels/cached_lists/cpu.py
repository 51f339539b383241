"""Read sampled neighbours from the lists that a neighbour cache keeps. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store

AHEAD = 16
"""How many nodes ahead the entries of a node are prefetched."""


@helper
def _read_list(shift, first, last, positions, cached, neighbors):
    for j in range(first, last):
        store(neighbors, j, load(cached, load(positions, j) + shift))


@helper
def _miss_list(first, last, missed, num_missed):
    for j in range(first, last):
        store(missed, num_missed + j - first, j)
    return num_missed + last - first


@kernel
def read_direct(indptr, nodes, row_ptr, positions, starts, cached, neighbors, missed):
    """See `reference.read_direct`; writes the misses to int64[>= m] `missed` and returns their number."""
    num_missed, base = 0, load(row_ptr, 0)
    for i in range(nodes.size):
        if i + AHEAD < nodes.size:
            prefetch_read(starts, load(nodes, i + AHEAD))
            prefetch_read(indptr, load(nodes, i + AHEAD))
        node, first, last = load(nodes, i), load(row_ptr, i) - base, load(row_ptr, i + 1) - base
        start = load(starts, node)
        if start >= 0:
            _read_list(start - load(indptr, node), first, last, positions, cached, neighbors)
        else:
            num_missed = _miss_list(first, last, missed, num_missed)
    return num_missed


@kernel
def read_prefix(indptr, nodes, row_ptr, positions, ranks, prefix_ptr, cached, neighbors, missed):
    """See `reference.read_prefix`; writes the misses to int64[>= m] `missed` and returns their number."""
    num_missed, base, num_kept = 0, load(row_ptr, 0), prefix_ptr.size - 1
    for i in range(nodes.size):
        if i + AHEAD < nodes.size:
            prefetch_read(ranks, load(nodes, i + AHEAD))
            prefetch_read(indptr, load(nodes, i + AHEAD))
        node, first, last = load(nodes, i), load(row_ptr, i) - base, load(row_ptr, i + 1) - base
        rank = load(ranks, node)
        if rank < num_kept:
            _read_list(load(prefix_ptr, rank) - load(indptr, node), first, last, positions, cached, neighbors)
        else:
            num_missed = _miss_list(first, last, missed, num_missed)
    return num_missed
