"""A keyed random permutation of [0, n), one element at a time. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._random import below_wide, philox

_LOW, _32, _0 = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(0)


@helper
def _shift(half, turn, bound, key_0, key_1):
    w0, w1, _, _ = philox(half & _LOW, half >> _32, np.uint64(turn), _0, key_0, key_1)
    return below_wide(w0, w1, bound)


@kernel
def permute(positions, n, a, b, rounds, key, elements):
    """Write the elements at int64[m] `positions` to int64[m] `elements`; (a, b, rounds) from `reference.choose_network`."""
    a, b, n = np.uint64(a), np.uint64(b), np.uint64(n)
    for i in range(positions.size):
        value = np.uint64(positions[i])
        while True:
            left, right = value // b, value % b
            for turn in range(0, rounds, 2):
                left += _shift(right, turn, a, key[0], key[1])
                if left >= a:
                    left -= a
                right += _shift(left, turn + 1, b, key[0], key[1])
                if right >= b:
                    right -= b
            value = left * b + right
            if value < n:
                break
        elements[i] = np.int64(value)
