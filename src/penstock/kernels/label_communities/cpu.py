"""Label propagation: each node joins the community that most of its neighbours are in. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read
from penstock.kernels._typed_lists import list_of

AHEAD = 24


@helper
def _count(neighbors, start, stop, first, labels, counts):
    for i in range(start, stop):
        if i + AHEAD < neighbors.size:  # the lists follow one another
            prefetch_read(labels, np.int64(load(neighbors, i + AHEAD)) + first)
        label = np.int64(load(labels, np.int64(load(neighbors, i)) + first))
        counts[label] += 1


@helper
def _choose(neighbors, start, stop, first, labels, counts, sizes, max_size, best):
    for i in range(start, stop):
        label = np.int64(load(labels, np.int64(load(neighbors, i)) + first))
        if load(counts, label) > load(counts, best) and np.int64(load(sizes, label)) < max_size:
            best = label
    return best


@helper
def _clear(neighbors, start, stop, first, labels, counts):
    for i in range(start, stop):
        counts[np.int64(load(labels, np.int64(load(neighbors, i)) + first))] = 0


@kernel
def propagate(indptrs, indices, firsts, out_ptr, out_nodes, max_size, labels, sizes, counts):
    """Visit every node once, by ascending id; see `reference.propagate`. Returns how many nodes changed.

    Args:
        indptrs, indices, firsts, out_ptr, out_nodes: see `breadth_first.cpu`.
        labels, sizes: int32 or int64[num_nodes], changed. counts: scratch, same dtype and shape, zero before and after.
    """
    changed = 0
    for node in range(labels.size):
        for e in range(len(indptrs)):
            start, stop = list_of(indptrs[e], firsts[e, 1], node)
            _count(indices[e], start, stop, firsts[e, 0], labels, counts)
        out_start, out_stop = list_of(out_ptr, 0, node)
        _count(out_nodes, out_start, out_stop, 0, labels, counts)
        own = best = np.int64(labels[node])
        for e in range(len(indptrs)):
            start, stop = list_of(indptrs[e], firsts[e, 1], node)
            best = _choose(indices[e], start, stop, firsts[e, 0], labels, counts, sizes, max_size, best)
        best = _choose(out_nodes, out_start, out_stop, 0, labels, counts, sizes, max_size, best)
        for e in range(len(indptrs)):
            start, stop = list_of(indptrs[e], firsts[e, 1], node)
            _clear(indices[e], start, stop, firsts[e, 0], labels, counts)
        _clear(out_nodes, out_start, out_stop, 0, labels, counts)
        if best != own:
            labels[node] = best
            sizes[own] -= 1
            sizes[best] += 1
            changed += 1
    return changed
