"""A last word where a map leads beyond its file: the kernel then ends the process by SIGBUS, which by itself says nothing.

In: nothing. Out: a signal handler that writes one line to standard error and leaves with the exit code of bad input. Python's own handlers
cannot do it: they run between two instructions of the interpreter, and the one that met the signal is never over. So it is compiled, takes
no lock, allocates nothing, and calls nothing but `write` and `_exit`.
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
    """The address of the line, which becomes part of the compiled code."""

    def generate(context, builder, signature, arguments):
        text = context.insert_const_string(builder.module, LINE + "\n")
        return builder.ptrtoint(text, ir.IntType(64))

    return types.intp(), generate


@intrinsic
def _has_the_word(typing_context):
    """Whether no other thread has asked before: threads that read one file meet its end at the same time."""

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
                _pause()  # until the one that has it leaves
        _write(types.int32(2), _address_of_line(), _NUM_BYTES)
        _exit(types.int32(EXIT_CODE))

    return say_and_leave


def explain_bus_errors() -> bool:
    """From now on, a bus error ends this process with a line. Returns whether it will: not where somebody else handles the signal."""
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    before = set_handler(signal.SIGBUS, _handler().address)
    if before not in (None, signal.SIG_DFL, _handler().address):
        set_handler(signal.SIGBUS, before)
        return False
    return True
