"""Explain a bus error: where a mapped file is shorter than its map, the operating system ends the process by SIGBUS without a message.

In: nothing. Out: a signal handler that writes one line to standard error and exits with the exit code of bad input. Python's own handlers
cannot do this: they run between two instructions of the interpreter, and the instruction that raised the signal never ends. So the handler
is compiled, takes no lock, allocates nothing, and calls only `write`, `_exit` and `pause`.
"""

from __future__ import annotations

import ctypes
import functools
import signal
from typing import Any

import numba
from llvmlite import ir
from numba import types

from penstock.kernels._compile import intrinsic

EXIT_CODE = 2
LINE = (
    "penstock: a file of the store was truncated while it was mapped, or its disk cannot be read (bus error): run penstock check on the "
    "store, put the file back or make the store again, and run this again (train: with --resume)"
)

_write: Any = types.ExternalFunction("write", types.int64(types.int32, types.intp, types.int64))
_exit: Any = types.ExternalFunction("_exit", types.void(types.int32))
_pause: Any = types.ExternalFunction("pause", types.int32())


@intrinsic
def _address_of_line(typing_context):
    """The address of the message, which is part of the compiled code."""

    def generate(context, builder, signature, arguments):
        text = context.insert_const_string(builder.module, LINE + "\n")
        return builder.ptrtoint(text, ir.IntType(64))

    return types.intp(), generate


@intrinsic
def _has_the_word(typing_context):
    """Whether this thread is the first to call this: threads that read the same file fail at the same time."""

    def generate(context, builder, signature, arguments):
        number = ir.IntType(32)
        asked: Any = ir.GlobalVariable(builder.module, number, "penstock_bus_error")
        asked.initializer, asked.linkage = ir.Constant(number, 0), "internal"
        return builder.icmp_unsigned("==", builder.atomic_rmw("xchg", asked, ir.Constant(number, 1), "seq_cst"), ir.Constant(number, 0))

    return types.boolean(), generate


_NUM_BYTES = len(LINE.encode()) + 1


@functools.cache
def _handler() -> Any:
    @numba.cfunc(types.void(types.int32))
    def say_and_leave(number):
        if not _has_the_word():
            while True:
                _pause()  # until the first thread exits the process
        _write(types.int32(2), _address_of_line(), _NUM_BYTES)
        _exit(types.int32(EXIT_CODE))

    return say_and_leave


def explain_bus_errors() -> bool:
    """Install the handler, unless another one handles SIGBUS already. Returns whether it is installed."""
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    before = set_handler(signal.SIGBUS, _handler().address)
    if before not in (None, signal.SIG_DFL, _handler().address):
        set_handler(signal.SIGBUS, before)
        return False
    return True
