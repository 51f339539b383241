"""64-bit hashes of the user's node ids. Same results as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, load_word, store
from penstock.kernels.id_hash import reference

MULTIPLIER_1 = np.uint64(reference.MULTIPLIER_1)
MULTIPLIER_2 = np.uint64(reference.MULTIPLIER_2)
MULTIPLIER_3 = np.uint64(reference.MULTIPLIER_3)
_27, _30, _31 = np.uint64(27), np.uint64(30), np.uint64(31)


@helper
def mix(value):
    """Mix a 64-bit word: a bijection."""
    value = (value ^ (value >> _30)) * MULTIPLIER_1
    value = (value ^ (value >> _27)) * MULTIPLIER_2
    return value ^ (value >> _31)


@helper
def _word(data, at, end):
    """Read up to 8 bytes as a little-endian word."""
    if at + 8 <= end:
        return load_word(data, at)
    if at + 8 <= data.size:
        return load_word(data, at) & ((np.uint64(1) << np.uint64(8 * (end - at))) - np.uint64(1))
    word = np.uint64(0)
    for k in range(end - at):
        word |= np.uint64(load(data, at + k)) << np.uint64(8 * k)
    return word


@kernel
def hash_integers(ids, seed, hashes):
    """Write to uint64[n] `hashes` the hash of int64[n] `ids`."""
    start = mix(np.uint64(seed))
    for i in range(ids.size):
        store(hashes, i, mix(np.uint64(load(ids, i)) ^ start))


@kernel
def hash_strings(offsets, data, seed, hashes):
    """Write to uint64[n] `hashes` the hash of each string; see `reference.hash_strings`."""
    for i in range(hashes.size):
        start, end = np.int64(load(offsets, i)), np.int64(load(offsets, i + 1))
        state = mix(np.uint64(seed) ^ (np.uint64(end - start) * MULTIPLIER_3))
        for at in range(start, end, 8):
            state = mix(state ^ _word(data, at, end)) + MULTIPLIER_3
        store(hashes, i, mix(state))
