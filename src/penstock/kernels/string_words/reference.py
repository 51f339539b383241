"""Read eight bytes of each of many strings, as numbers that compare like the bytes: the definition."""

from __future__ import annotations

import numpy as np


def string_words(offsets, data, rows, skip):
    """Read bytes skip:skip + 8 of strings.

    Args:
        offsets: int32 or int64[n + 1], where each string begins in `data`.
        data: uint8[..].
        rows: int64[m], the strings to read.
        skip: bytes to skip at the front of each string.
    Returns:
        uint64[m], big-endian, padded with zeros.
    """
    texts = [bytes(data[offsets[row] : offsets[row + 1]])[skip : skip + 8] for row in map(int, rows)]
    return np.array([int.from_bytes(text.ljust(8, b"\0"), "big") for text in texts], dtype=np.uint64)
