"""The random numbers of `penstock.rng` inside kernels, and the counters of a tile of nodes.

The words of a tile are uint32 in rows of `tile` columns, one column per node. The first `COUNTER_ROWS` rows hold the three counter words
that differ between nodes; in the rows after them, a kernel keeps the words that it draws.
"""

from __future__ import annotations

import numpy as np

from penstock import rng
from penstock.kernels._compile import helper
from penstock.kernels._memory import load, store

philox = helper(rng.philox)
below_narrow = helper(rng.below_narrow)
below_wide = helper(rng.below_wide)
below_sum = helper(rng.below_sum)
sample_counter = helper(rng.sample_counter)

COUNTER_ROWS = 3
"""Rows of a tile's words that hold counters."""


@helper
def copy_of(copies, i):
    """The copy number of the i-th node; 0 where `copies` is None."""
    if copies is None:
        return np.uint64(0)
    return np.uint64(load(copies, i))


@helper
def keep_counter(words, tile, column, node, hop, edge_type, copy):
    """Store the three words of a node's counter that differ between nodes."""
    word_0, word_1, _, word_3 = sample_counter(node, edge_type, hop, 0, copy)
    store(words, column, np.uint32(word_0))
    store(words, tile + column, np.uint32(word_1))
    store(words, 2 * tile + column, np.uint32(word_3))


@helper
def draw_block(words, tile, column, batch, block, key_0, key_1):
    """Draw the four words of a block from the counter that `keep_counter` stored."""
    word_0, word_1, word_3 = load(words, column), load(words, tile + column), load(words, 2 * tile + column)
    return philox(np.uint64(word_0), np.uint64(word_1), batch, np.uint64(word_3) + np.uint64(block), key_0, key_1)
