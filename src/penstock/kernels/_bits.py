"""Bits of words, and bitmaps (uint64 vectors with 64 places per word), for kernels."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from penstock.kernels._compile import helper, intrinsic
from penstock.kernels._memory import load, store


@intrinsic
def highest_bit(typing_context, word):
    """The index of the highest set bit of a nonzero uint64, as an int64."""

    def generate(context, builder, signature, arguments):
        zeros = builder.ctlz(arguments[0], ir.IntType(1)(1))
        return builder.sub(ir.IntType(64)(63), zeros)

    return types.int64(types.uint64), generate


@helper
def has_bit(bits, place):
    """Whether the bit of a place is set."""
    return load(bits, place >> 6) >> np.uint64(place & 63) & np.uint64(1) != 0


@helper
def set_bit(bits, place):
    """Set the bit of a place."""
    store(bits, place >> 6, load(bits, place >> 6) | np.uint64(1) << np.uint64(place & 63))


@helper
def clear_bit(bits, place):
    """Clear the bit of a place."""
    store(bits, place >> 6, load(bits, place >> 6) & ~(np.uint64(1) << np.uint64(place & 63)))
