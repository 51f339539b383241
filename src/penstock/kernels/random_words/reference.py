"""Random words for a range of indices: the definition."""

from __future__ import annotations

import numpy as np

from penstock import rng


def random_words(key, first, count, stream, block):
    """Draw four words for each index in [first, first + count).

    Args:
        key: uint64[2], from `rng.derive_key`.
        first, count: the range of indices, 64 bits.
        stream: separates uses under one key; 32 bits.
        block: which block of four words of an index; 32 bits.
    Returns:
        uint64[4, count], each below 2**32. Block 0 equals `rng.random_words`, transposed.
    """
    index = np.arange(first, first + count, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    zero = np.zeros(count, dtype=np.uint64)
    return np.stack(rng.philox(index & low, index >> np.uint64(32), zero + np.uint64(stream), zero + np.uint64(block), key[0], key[1]))
