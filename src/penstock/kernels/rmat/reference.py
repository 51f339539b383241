"""Ends of R-MAT edges from random words: the definition.

An edge descends through the adjacency matrix, at every level into one of the quadrants a (low source, low destination), b (low, high),
c (high, low), d (high, high). Four levels are one draw among their 256 outcomes by Walker's alias method: 8 bits choose a cell, 24 bits
choose between its two outcomes. So four levels take one word; the plain method takes four.
Source: Chakrabarti, Zhan, Faloutsos: R-MAT (SDM 2004); several levels per draw: Hübschle-Schneider and Sanders (2020); Walker 1977.
"""

from __future__ import annotations

import numpy as np

from penstock import rng

LEVELS = 4
CELLS = 1 << 2 * LEVELS
CELL = 1 << 24
"""Parts of one cell; all cells together are 2**32."""


def alias_table(probabilities):
    """Prepare draws from the outcomes of four levels.

    Args:
        probabilities: of the quadrants a, b, c, d, with sum 1.
    Returns:
        uint64[256]: per cell, parts << 16 | other << 8 | own: of the cell's 2**24 parts, `parts` go to its own outcome and the rest to the
        outcome `other`. An outcome is four bits of the source << 4 | four bits of the destination.
    """
    weights = np.ones(1)
    for _ in range(LEVELS):
        weights = np.multiply.outer(weights, np.asarray(probabilities, dtype=np.float64)).ravel()
    parts = np.floor(weights * CELLS * CELL).astype(np.int64)
    parts[np.argmax(parts)] += CELLS * CELL - parts.sum()
    paths = np.array(np.unravel_index(np.arange(CELLS), (4,) * LEVELS))
    bits = 1 << np.arange(LEVELS)[::-1]
    outcomes = ((paths >> 1).T @ bits) << LEVELS | (paths & 1).T @ bits
    own, other = np.full(CELLS, CELL), outcomes.copy()
    small, large = [i for i in range(CELLS) if parts[i] < CELL], [i for i in range(CELLS) if parts[i] >= CELL]
    while small and large:
        poor, rich = small.pop(), large[-1]
        own[poor], other[poor] = parts[poor], outcomes[rich]
        parts[rich] -= CELL - parts[poor]
        if parts[rich] < CELL:
            small.append(large.pop())
    return own.astype(np.uint64) << np.uint64(16) | other.astype(np.uint64) << np.uint64(8) | outcomes.astype(np.uint64)


def draw_ends(words, table, num_levels):
    """Descend `num_levels` levels.

    Args:
        words: ceil(num_levels / 4) words below 2**32.
        table: from `alias_table`.
        num_levels: number of levels.
    Returns:
        (source, destination), both below 2**num_levels.
    """
    source = destination = 0
    for group in range(-(-num_levels // LEVELS)):
        entry, word = int(table[int(words[group]) >> 24]), int(words[group])
        outcome = entry & 0xFF if word & 0xFFFFFF < entry >> 16 else entry >> 8 & 0xFF
        source, destination = source << LEVELS | outcome >> LEVELS, destination << LEVELS | outcome & 0xF
    surplus = -num_levels % LEVELS
    return source >> surplus, destination >> surplus


def rmat_edge(index, key, stream, table, num_levels, num_nodes):
    """Draw edge number `index` from blocks 0, 1, ... of the index, until both ends are below `num_nodes`."""
    num_blocks = -(-num_levels // (4 * LEVELS))
    first = 0
    while True:
        words = []
        for block in range(first, first + num_blocks):
            c0, c1, c2, c3 = (np.uint64(word) for word in (index & 0xFFFFFFFF, index >> 32, stream, block))
            words += rng.philox(c0, c1, c2, c3, key[0], key[1])
        source, destination = draw_ends(words, table, num_levels)
        if source < num_nodes and destination < num_nodes:
            return source, destination
        first += num_blocks
