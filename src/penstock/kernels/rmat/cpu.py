"""Ends of R-MAT edges. Same result as `reference.py`, byte for byte.

Two passes: `random_words`, which is vectorised, draws the words of all edges' first attempts; then come the descents. Later attempts draw
their own words.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, store
from penstock.kernels._random import philox


@helper
def _descend(word, table, source, destination):
    entry = load(table, np.int64(word >> np.uint64(24)))
    outcome = entry & np.uint64(0xFF)
    if (word & np.uint64(0xFFFFFF)) >= (entry >> np.uint64(16)):
        outcome = (entry >> np.uint64(8)) & np.uint64(0xFF)
    return (source << np.uint64(4)) | (outcome >> np.uint64(4)), (destination << np.uint64(4)) | (outcome & np.uint64(0xF))


@helper
def _draw_again(index, block, key, stream, table, num_groups):
    """Draw the ends of an edge from blocks `block`, `block` + 1, ... of its index."""
    low = np.uint64(0xFFFFFFFF)
    source = destination = np.uint64(0)
    for group in range(0, num_groups, 4):
        counter = block + np.uint64(group >> 2)
        words = philox(index & low, index >> np.uint64(32), np.uint64(stream), counter, key[0], key[1])
        for lane in range(min(4, num_groups - group)):
            source, destination = _descend(words[lane], table, source, destination)
    return source, destination


@kernel
def rmat_edges(words, first, key, stream, table, num_levels, num_nodes, sources, destinations):
    """Write the ends of edges `first`, `first` + 1, ...; see `reference.rmat_edge`.

    Args:
        words: uint64[num_groups * n]: word g of the first attempt of edge i at g * n + i.
        sources, destinations: int64[n].
    """
    n = sources.size
    num_groups = (num_levels + 3) // 4
    num_blocks = np.uint64((num_groups + 3) // 4)
    surplus = np.uint64(4 * num_groups - num_levels)
    limit = np.uint64(num_nodes)
    for i in range(n):
        source = destination = np.uint64(0)
        for group in range(num_groups):
            source, destination = _descend(load(words, group * n + i), table, source, destination)
        source, destination = source >> surplus, destination >> surplus
        block = num_blocks
        while source >= limit or destination >= limit:
            source, destination = _draw_again(np.uint64(first) + np.uint64(i), block, key, stream, table, num_groups)
            source, destination = source >> surplus, destination >> surplus
            block += num_blocks
        store(sources, i, np.int64(source))
        store(destinations, i, np.int64(destination))
