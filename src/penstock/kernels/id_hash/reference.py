"""64-bit hashes of the user's node ids, integers and strings: the definitions.

Invariants: a bijection mixes integers, so equal hashes mean equal ids. Strings may collide; code that builds a table on the hash detects
this and takes another seed. Source: SplitMix64's finaliser (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

import numpy as np

MULTIPLIER_1, MULTIPLIER_2, MULTIPLIER_3 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(value):
    """Mix a 64-bit word: a bijection."""
    value = ((value ^ (value >> 30)) * MULTIPLIER_1) & _MASK
    value = ((value ^ (value >> 27)) * MULTIPLIER_2) & _MASK
    return value ^ (value >> 31)


def hash_integers(ids, seed):
    """Return uint64[n]: `mix(id ^ mix(seed))` of int64[n] ids."""
    return np.array([mix((int(value) & _MASK) ^ mix(seed)) for value in ids], dtype=np.uint64)


def hash_strings(offsets, data, seed):
    """Hash byte strings.

    Args:
        offsets: int32 or int64[n + 1], where each string begins in `data`, as in an Arrow array.
        data: uint8[..].
        seed: any 64 bits.
    Returns:
        uint64[n]: state := mix(seed ^ length * MULTIPLIER_3); for each word of 8 bytes, little-endian, the last one padded with zeros:
        state := mix(state ^ word) + MULTIPLIER_3; the hash is mix(state).
    """
    hashes = []
    for start, end in zip(map(int, offsets[:-1]), map(int, offsets[1:]), strict=True):
        text = bytes(data[start:end])
        state = mix(seed ^ (len(text) * MULTIPLIER_3) & _MASK)
        for at in range(0, len(text), 8):
            state = (mix(state ^ int.from_bytes(text[at : at + 8], "little")) + MULTIPLIER_3) & _MASK
        hashes.append(mix(state))
    return np.array(hashes, dtype=np.uint64)
