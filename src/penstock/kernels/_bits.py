"""Bits of words, for kernels."""

from __future__ import annotations

from llvmlite import ir
from numba import types

from penstock.kernels._compile import intrinsic


@intrinsic
def highest_bit(typing_context, word):
    """The number of the highest bit set in a uint64 that is not 0, as an int64."""

    def generate(context, builder, signature, arguments):
        zeros = builder.ctlz(arguments[0], ir.IntType(1)(1))
        return builder.sub(ir.IntType(64)(63), zeros)

    return types.int64(types.uint64), generate
