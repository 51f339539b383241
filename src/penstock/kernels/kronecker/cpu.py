"""Edges of a randomised Kronecker product. Same result as `reference.py`, byte for byte.

Two passes over a tile of edges. The first computes all its words, block by block across the edges, a loop that the compiler vectorises. The
second chooses edges without a branch: every candidate is written, and the output index advances only if it is kept.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, store
from penstock.kernels._random import philox


@helper
def _draw_words(sources, destinations, first, count, num_blocks, key, words):
    """Write word w of edge first + e to words[w * count + e]."""
    bits, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    key_0, key_1 = key[0] & bits, key[1] & bits
    for block in range(num_blocks):
        for e in range(count):
            u, v = np.uint64(load(sources, first + e)), np.uint64(load(destinations, first + e))
            low, high = min(u, v), max(u, v)
            c2 = ((low >> shift) | ((high >> shift) << np.uint64(8))) & bits
            w0, w1, w2, w3 = philox(low & bits, high & bits, c2, np.uint64(block) & bits, key_0, key_1)
            store(words, (4 * block) * count + e, np.uint32(w0))
            store(words, (4 * block + 1) * count + e, np.uint32(w1))
            store(words, (4 * block + 2) * count + e, np.uint32(w2))
            store(words, (4 * block + 3) * count + e, np.uint32(w3))


@helper
def _expand_edge(u, v, num_nodes, num_copies, thresholds, words, e, stride, out_low, out_high, m):
    """Expand an edge between two nodes; `out_low` takes the copies of the smaller one."""
    low, high = min(u, v), max(u, v)
    place = 0
    for i in range(num_copies):
        for j in range(num_copies):
            store(out_low, m, i * num_nodes + low)
            store(out_high, m, j * num_nodes + high)
            m += np.int64(np.uint64(load(words, place * stride + e)) < load(thresholds, place))
            place += 1
    return m


@helper
def _expand_loop(u, num_nodes, num_copies, thresholds, words, e, stride, out_sources, out_destinations, m):
    """Expand a self-loop: the pairs (i, j) and (j, i) are kept together."""
    for i in range(num_copies):
        for j in range(i, num_copies):
            place = i * num_copies + j
            if np.uint64(load(words, place * stride + e)) < load(thresholds, place):
                first, second = i * num_nodes + u, j * num_nodes + u
                store(out_sources, m, first)
                store(out_destinations, m, second)
                m += 1
                if i != j:
                    store(out_sources, m, second)
                    store(out_destinations, m, first)
                    m += 1
    return m


@kernel
def kronecker_edges(sources, destinations, num_nodes, num_copies, thresholds, key, tile, words, out_sources, out_destinations):
    """Expand edges; see `reference.kronecker_edges`.

    Args:
        sources, destinations: int64[n].
        thresholds: uint64[num_copies**2], flat.
        tile: edges whose words are drawn together; does not affect the result.
        words: uint32[4 * ceil(num_copies**2 / 4) * tile], scratch.
        out_sources, out_destinations: int64[n * num_copies**2 + 1].
    Returns:
        m, the number of edges written.
    """
    num_blocks = (num_copies * num_copies + 3) >> 2
    m = 0
    for first in range(0, sources.size, tile):
        count = min(tile, sources.size - first)
        _draw_words(sources, destinations, first, count, num_blocks, key, words)
        for e in range(count):
            u, v = load(sources, first + e), load(destinations, first + e)
            if u < v:
                m = _expand_edge(u, v, num_nodes, num_copies, thresholds, words, e, count, out_sources, out_destinations, m)
            elif u > v:
                m = _expand_edge(u, v, num_nodes, num_copies, thresholds, words, e, count, out_destinations, out_sources, m)
            else:
                m = _expand_loop(u, num_nodes, num_copies, thresholds, words, e, count, out_sources, out_destinations, m)
    return m
