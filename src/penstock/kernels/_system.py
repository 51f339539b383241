"""System calls, atomic words and raw addresses inside kernels. 64-bit Linux.

libc is called through `types.ExternalFunction`: its symbols are resolved when a compiled kernel is loaded, so kernels can be cached (a
pointer from ctypes would be compiled in as a number).
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.np.arrayobj import make_array

from penstock.kernels._compile import helper, intrinsic

_LONG = types.int64
syscall: Any = types.ExternalFunction("syscall", _LONG(*(_LONG,) * 7))
"""syscall(number, six arguments): returns -1 for an error."""

pread: Any = types.ExternalFunction("pread", _LONG(types.int32, _LONG, _LONG, _LONG))
"""pread(descriptor, address, count, offset): returns -1 for an error."""

_errno_location: Any = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())


@intrinsic
def _load_int32(typing_context, pointer):
    def generate(context, builder, signature, arguments):
        return builder.load(arguments[0])

    return types.int32(pointer), generate


@helper
def errno():
    """Return the number of this thread's last error."""
    return _load_int32(_errno_location())


@intrinsic
def fence(typing_context):
    """A full memory fence: other threads see all writes before it, also those that bypass the caches, before any write after it."""

    def generate(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def load_acquire(typing_context, array, index):
    """Return array[index] by an atomic load with acquire order: later reads happen after it."""

    def generate(context, builder, signature, arguments):
        pointer = builder.gep(make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])
        return builder.load_atomic(pointer, "acquire", signature.return_type.bitwidth // 8)

    return array.dtype(array, types.intp), generate


@intrinsic
def store_release(typing_context, array, index, value):
    """Set array[index] by an atomic store with release order: earlier writes happen before it."""

    def generate(context, builder, signature, arguments):
        pointer = builder.gep(make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])
        builder.store_atomic(arguments[2], pointer, "release", signature.args[2].bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), generate


@intrinsic
def add_atomic(typing_context, array, index, value):
    """Add to array[index] of an int64 vector; returns the old value. Sequentially consistent; adding 0 is a load."""

    def generate(context, builder, signature, arguments):
        pointer = builder.gep(make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])
        return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate
