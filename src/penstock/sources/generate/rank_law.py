"""Ranks with a power law: rank r of n has a weight of about (r + 1)**-skew.

By inversion of the continuous law: r = floor(n * u**p) with p = 1 / (1 - skew). The power is computed from products and square roots
alone, which every processor rounds the same way, so that the ranks are the same on every machine; p is rounded to 1/16 for that.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import UsageError, argument

_ROOTS = 4
_UNIT = 2.0**-53

MAX_SKEW = 0.95


def power_of(skew: float) -> int:
    """Return p in units of 1/16 for a skew in [0, 0.95]; 0 is uniform, 0.6 gives a degree exponent of 1 + 1 / 0.6."""
    if not 0 <= skew <= MAX_SKEW:
        raise UsageError(f"{argument('skew')} must lie in [0, {MAX_SKEW}], got {skew!r}")
    return round((1 << _ROOTS) / (1 - skew))


def uniform(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Make float64 in [0, 1) from 53 random bits of two words below 2**32."""
    return ((high << np.uint64(21)) | (low >> np.uint64(11))).view(np.int64) * _UNIT


def raise_to(values: np.ndarray, power: int) -> np.ndarray:
    """Return values ** (power / 16) for float64 values in [0, 1)."""
    out, factor, whole = np.ones_like(values), values, power >> _ROOTS
    while whole:
        if whole & 1:
            out = out * factor
        whole >>= 1
        if whole:
            factor = factor * factor
    root, rest = values, power & ((1 << _ROOTS) - 1)
    for bit in reversed(range(_ROOTS)):
        if rest & ((2 << bit) - 1) == 0:
            break
        root = np.sqrt(root)
        if rest >> bit & 1:
            out = out * root
    return out


def ranks(values: np.ndarray, num_ranks: int | np.ndarray, power: int) -> np.ndarray:
    """Map float64 in [0, 1) to int64 ranks in [0, num_ranks)."""
    found = (raise_to(values, power) * num_ranks).astype(np.int64)
    return np.minimum(found, num_ranks - 1, out=found)
