"""Rows of random features around the centre of their class. Same result as `reference.py`, byte for byte.

Two passes per row: all words, in whole blocks, then the features; both vectorise.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, store
from penstock.kernels._random import philox
from penstock.kernels.noise_rows.reference import MEAN


@kernel
def noise_rows(key, first, stream, scale, centers, classes, num_columns, words, out):
    """Write feature rows; see `reference.noise_rows`.

    Args:
        scale: float32.
        centers: float32[num_classes * num_columns], flat. classes: int64[num_rows].
        words: uint32[4 * ceil(num_columns / 4)], scratch.
        out: float32[num_rows * num_columns], flat.
    """
    low = np.uint64(0xFFFFFFFF)
    key_0, key_1, c2 = key[0] & low, key[1] & low, np.uint64(stream) & low
    num_blocks = words.size >> 2
    for i in range(classes.size):
        row = np.uint64(first) + np.uint64(i)
        c0, c1 = row & low, row >> np.uint64(32)
        for block in range(num_blocks):
            w0, w1, w2, w3 = philox(c0, c1, c2, np.uint64(block) & low, key_0, key_1)
            store(words, block, np.uint32(w0))
            store(words, num_blocks + block, np.uint32(w1))
            store(words, 2 * num_blocks + block, np.uint32(w2))
            store(words, 3 * num_blocks + block, np.uint32(w3))
        center, start = load(classes, i) * num_columns, i * num_columns
        for column in range(num_columns):
            word = np.int32(load(words, column))
            total = (word & 0xFF) + ((word >> 8) & 0xFF) + ((word >> 16) & 0xFF) + ((word >> 24) & 0xFF)
            store(out, start + column, load(centers, center + column) + scale * np.float32(np.int32(total) - np.int32(MEAN)))
