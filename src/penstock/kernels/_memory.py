"""Raw access to one-dimensional contiguous arrays from inside kernels: load, store and prefetch.

Numba's own indexing tests whether each index is negative; in the sampling passes, this test and the lack of prefetching cost a third of the
time. In checked mode (`PENSTOCK_CHECKED_KERNELS=1`) the same names are plain, bounds-checked indexing.
"""

# checked mode defines some functions differently:
# pyright: reportRedeclaration=false

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np.arrayobj import make_array

from penstock.kernels._compile import CHECKED, helper, intrinsic


def _element_pointer(context, builder, array_type, array, index, inbounds=True):
    return builder.gep(make_array(array_type)(context, builder, array).data, [index], inbounds=inbounds)


def _is_vector(array: Any) -> bool:
    return isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"


def _make_prefetch(is_write: int, level: int) -> Any:
    @intrinsic
    def prefetch(typing_context, array, index):
        """Prefetch array[index]. The index may be any number: an invalid address is ignored."""
        if not _is_vector(array):
            return None

        def generate(context, builder, signature, arguments):
            byte_pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
            pointer = builder.bitcast(_element_pointer(context, builder, signature.args[0], *arguments, inbounds=False), byte_pointer)
            kind = ir.FunctionType(ir.VoidType(), [byte_pointer, i32, i32, i32])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [pointer, i32(is_write), i32(4 - level), i32(1)])
            return context.get_dummy_value()

        return types.void(array, types.intp), generate

    return prefetch


prefetch_read = _make_prefetch(0, 1)
prefetch_write = _make_prefetch(1, 1)

prefetch_far = _make_prefetch(0, 2)
"""Prefetch into the second-level cache only, to read or write. A prefetch into the first level occupies one of a dozen line buffers, which
limits how many run at once; this one is faster for tables much larger than the caches (docs/design/caching.md)."""

_LINE = 64


@helper
def prefetch_bytes(array, start, count):
    """Prefetch array[start:][:count] of a uint8 vector."""
    for byte in range(start, start + count, _LINE):
        prefetch_read(array, byte)


WORD_PAIR = 16
"""Bytes that `stream_pair` copies."""


@intrinsic
def address_of(typing_context, array):
    """Return the address of array[0]."""

    def generate(context, builder, signature, arguments):
        return builder.ptrtoint(make_array(signature.args[0])(context, builder, arguments[0]).data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic
def stream_pair(typing_context, target, target_start, source, source_start):
    """Copy target[target_start:][:16] = source[source_start:][:16], both uint8 vectors, unchecked, bypassing the processor's caches.

    The target's address must be a multiple of 16. Other threads see these writes in order only after a `fence`.
    """

    def generate(context, builder, signature, arguments):
        pair = ir.VectorType(ir.IntType(64), 2).as_pointer()
        places = ((signature.args[i], arguments[i], arguments[i + 1]) for i in (0, 2))
        pointers = [builder.gep(make_array(kind)(context, builder, array).data, [start]) for kind, array, start in places]
        to, come_from = (builder.bitcast(pointer, pair) for pointer in pointers)
        stored = builder.store(builder.load(come_from, align=1), to, align=WORD_PAIR)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), generate


@intrinsic
def copy_bytes(typing_context, target, target_start, source, source_start, count):
    """Copy target[target_start:][:count] = source[source_start:][:count], both uint8 vectors, unchecked."""

    def generate(context, builder, signature, arguments):
        target_pointer = builder.gep(make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])
        source_pointer = builder.gep(make_array(signature.args[2])(context, builder, arguments[2]).data, [arguments[3]])
        cgutils.raw_memcpy(builder, target_pointer, source_pointer, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


if CHECKED:

    @helper
    def load_word(array, index):
        """Return the little-endian word at array[index:index + 8] of a uint8 vector."""
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(array[index + k]) << np.uint64(8 * k)
        return word

    @helper
    def load(array, index):
        """Return array[index]."""
        return array[index]

    @helper
    def store(array, index, value):
        """Set array[index] = value."""
        array[index] = value

else:

    @intrinsic
    def load(typing_context, array, index):
        """Return array[index], 0 <= index < array.size unchecked."""
        if not _is_vector(array):
            return None

        def generate(context, builder, signature, arguments):
            array_type = signature.args[0]
            return context.unpack_value(builder, array_type.dtype, _element_pointer(context, builder, array_type, *arguments))

        return array.dtype(array, types.intp), generate

    @intrinsic
    def load_word(typing_context, array, index):
        """Return the little-endian word at array[index:index + 8] of a uint8 vector, unchecked."""
        if not _is_vector(array) or array.dtype != types.uint8:
            return None

        def generate(context, builder, signature, arguments):
            pointer = _element_pointer(context, builder, signature.args[0], *arguments)
            return builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)

        return types.uint64(array, types.intp), generate

    @intrinsic
    def store(typing_context, array, index, value):
        """Set array[index] = value (cast to the array's dtype), 0 <= index < array.size unchecked."""
        if not _is_vector(array):
            return None

        def generate(context, builder, signature, arguments):
            array_type = signature.args[0]
            context.pack_value(builder, array_type.dtype, arguments[2], _element_pointer(context, builder, array_type, *arguments[:2]))
            return context.get_dummy_value()

        return types.void(array, types.intp, array.dtype), generate
