"""One hop of layer-wise sampling over one edge type, in passes over arrays. Same result as `reference.py`, byte for byte.

Before, whole lists were read and compacted: each edge has the position of its source among the nodes of the batch and, behind these, the
candidates. So a candidate is a small number, and what is known of it stands in an array. Then: the smallest number of each candidate's
edges; which candidates are taken, and how many edges; these edges.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, store
from penstock.kernels._random import philox, sample_counter

VECTOR = 8
"""Blocks of numbers are computed so many at a time: what is left over would take as long, one by one."""

_32 = np.uint64(32)
_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)


def scratch_size(longest):
    """Elements of the numbers of a list of up to `longest` edges."""
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
        indptr: int64[num_dst + 1]. nodes: int64[n]; their lists lie one after the other in `sources`.
        sources: int64[m]: of each edge the position of its source; from `num_known` on it is a candidate.
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
    """Take `fanout` candidates, those whose numbers are below `bound` and the first ones where they are equal to it.

    Args:
        first: uint64[candidates]; bound: the `fanout`-th smallest of them.
        ids: int64[num_known + candidates]: from `num_known` on the candidates; those that are taken move to the front.
        places: int64[candidates], the result: positions in the batch, or -1.
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
    """Give edges the positions of their sources in the batch, -1 for those that are not taken. Returns how many are."""
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
    """Write the edges that are taken.

    Args:
        sources: int64[m], from `keep`.
        row_ptr: int64[n + 1]; row_ptr[0] is the number of edges taken before and is added to the rest.
        rows, positions: int64[edges], the results: sources in the batch; places of the edges in the adjacency.
    """
    at, taken, before = 0, 0, load(row_ptr, 0)
    for i in range(nodes.size):
        node = load(nodes, i)
        start = load(indptr, node)
        degree = load(indptr, node + 1) - start
        for j in range(degree):
            source = load(sources, at + j)
            if source >= 0:
                store(rows, taken, source)
                store(positions, taken, start + j)
                taken += 1
        at += degree
        store(row_ptr, i + 1, before + taken)
