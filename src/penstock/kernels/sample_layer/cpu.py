"""One hop of layer-wise sampling over one edge type, in passes over arrays. Same result as `reference.py`, byte for byte.

The caller has read whole lists and relabelled them: each edge has the position of its source among the nodes of the batch, followed by the
candidates. So a candidate is a small integer, and arrays hold its data. The passes: find the smallest number of each candidate's edges;
choose candidates; count the edges to keep; write these edges.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store
from penstock.kernels._random import philox, sample_counter

AHEAD = 16
VECTOR = 8
"""Blocks of numbers are computed in groups of this size, because a scalar remainder takes as long as a group."""

_32 = np.uint64(32)
_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)


def scratch_size(longest):
    """Elements of `numbers` for lists of up to `longest` edges."""
    return (longest + 2 * VECTOR - 1) // (2 * VECTOR) * (2 * VECTOR)


@helper
def _number(word_0, word_1, batch, key, num_blocks, numbers):
    key_0, key_1 = key[0], key[1]
    for block in range(num_blocks):
        w0, w1, w2, w3 = philox(word_0, word_1, batch, np.uint64(block), key_0, key_1)
        store(numbers, 2 * block, (w0 << _32) | w1)
        store(numbers, 2 * block + 1, (w2 << _32) | w3)


@kernel
def find_first(indptr, nodes, sources, num_known, key, batch, hop, edge_type, numbers, first):
    """Find the smallest number of the edges of each candidate.

    Args:
        indptr: int64[num_dst + 1]. nodes: int64[n]; their lists follow each other in `sources`.
        sources: int64[m]: position of each edge's source; from `num_known` on, it is a candidate.
        numbers: scratch, uint64[scratch_size(longest list)].
        first: uint64[candidates], the result.
    """
    at = 0
    first[:] = _LARGEST
    for i in range(nodes.size):
        node = load(nodes, i)
        degree = load(indptr, node + 1) - load(indptr, node)
        word_0, word_1, word_2, _ = sample_counter(node, edge_type, hop, batch, 0)
        _number(word_0, word_1, word_2, key, (degree + 2 * VECTOR - 1) // (2 * VECTOR) * VECTOR, numbers)
        for j in range(degree):
            candidate = load(sources, at + j) - num_known
            if candidate >= 0:
                store(first, candidate, min(load(first, candidate), load(numbers, j)))
        at += degree


@kernel
def choose(first, bound, fanout, num_known, ids, places):
    """Take `fanout` candidates: those whose numbers are below `bound`, and the first of those whose numbers equal it.

    Args:
        first: uint64[candidates], their numbers. bound: the `fanout`-th smallest of them.
        ids: int64[num_known + candidates]: from `num_known` on, the candidates; the taken ones move to the front of these.
        places: int64[candidates], the result: position in the batch, -1 if not taken.
    """
    num_equal = np.int64(fanout)
    for candidate in range(first.size):
        num_equal -= load(first, candidate) < bound
    taken = num_known
    for candidate in range(first.size):
        number, place = load(first, candidate), np.int64(-1)
        if number < bound or (number == bound and num_equal > 0):
            num_equal -= number == bound
            place, taken = taken, taken + 1
            store(ids, place, load(ids, num_known + candidate))
        store(places, candidate, place)


@kernel
def keep(sources, num_known, places):
    """Replace `sources` by positions in the batch, -1 if the source is not taken. Returns the number of edges kept."""
    count = 0
    for j in range(sources.size):
        source = load(sources, j)
        if source >= num_known:
            source = load(places, source - num_known)
            store(sources, j, source)
        count += source >= 0
    return count


@kernel
def take(indptr, nodes, sources, row_ptr, rows, positions):
    """Write the kept edges.

    Args:
        sources: int64[m], from `keep`.
        row_ptr: int64[n + 1]; row_ptr[0] is the number of edges sampled before, and the offsets written continue from it.
        rows, positions: int64[number of kept edges + 1], the results: position of the source in the batch; position of the edge. The last
            element is scratch: every edge is written, and the next one over it unless it is kept (a branch costs 5 ns an edge).
    """
    at, taken, before = 0, 0, load(row_ptr, 0)
    for i in range(nodes.size):
        if i + AHEAD < nodes.size:
            prefetch_read(indptr, load(nodes, i + AHEAD))
        node = load(nodes, i)
        start = load(indptr, node)
        degree = load(indptr, node + 1) - start
        for j in range(degree):
            source = load(sources, at + j)
            store(rows, taken, source)
            store(positions, taken, start + j)
            taken += source >= 0
        at += degree
        store(row_ptr, i + 1, before + taken)
