"""Read eight bytes of each of many strings, as numbers that compare like the bytes. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, load_word, prefetch_read, store

AHEAD = 16


@helper
def _reversed_bytes(word):
    swapped = np.uint64(0)
    for k in range(8):
        swapped |= ((word >> np.uint64(8 * k)) & np.uint64(0xFF)) << np.uint64(56 - 8 * k)
    return swapped


@kernel
def string_words(offsets, data, rows, skip, words):
    """Write to uint64[m] `words` bytes skip:skip + 8 of strings; see `reference.string_words`."""
    for i in range(rows.size):
        if i + 2 * AHEAD < rows.size:
            prefetch_read(offsets, load(rows, i + 2 * AHEAD))
        if i + AHEAD < rows.size:
            prefetch_read(data, np.int64(load(offsets, load(rows, i + AHEAD))) + skip)
        row = load(rows, i)
        start, end = np.int64(load(offsets, row)) + skip, np.int64(load(offsets, row + 1))
        word = np.uint64(0)
        if start + 8 <= end:
            word = _reversed_bytes(load_word(data, start))
        else:
            for k in range(end - start):
                word |= np.uint64(load(data, start + k)) << np.uint64(56 - 8 * k)
        store(words, i, word)
