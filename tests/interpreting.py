"""Triton's interpreter, without the work that it does again for every call: three fifths of the time of a test of kernels.

It replaces the functions of Triton's language by its own whenever a kernel, or a function of one, is called, and puts those of the language
back when the kernel is over. In a process of the interpreter nothing else calls them, so here they are replaced once, for good.
"""

import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

from penstock.kernels import _triton

PARTS = ("_patch_lang", "interpreter_builder", "_get_np_dtype")
"""Of Triton's, that it may rename: tests then take their time."""


def hurry():
    """From now on, where Triton interprets. Who imports no kernel does not wait for Triton."""
    if "triton.runtime.interpreter" in sys.modules:
        _replace_once()


@cache
def _replace_once():
    import triton.language as tl
    from triton.runtime import interpreter

    if not _triton.is_interpreted() or not all(hasattr(interpreter, name) for name in PARTS):
        return
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda fn: SimpleNamespace(restore=lambda: None)
    builder, numpy_type = interpreter.interpreter_builder, interpreter._get_np_dtype
    if not builder.options.debug:  # sums are computed in 64 bits too, and nothing looks at these
        builder.options = replace(builder.options, sanitize_overflow=False)
    of_scalar = cache(numpy_type)  # it makes a dictionary of all types to look one up
    interpreter._get_np_dtype = lambda dtype: of_scalar(dtype) if type(dtype) is tl.dtype else numpy_type(dtype)
