"""Kernels compiled for a device that is not here: the compiler needs none. What it makes of them is looked at, and never run."""

import os
import subprocess
import sys

import pytest

CODE = """
import re, sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from penstock.kernels._device_rows import layout_of
from penstock.kernels.gather_cached.gpu import _gather_cached
from penstock.kernels.gather_rows.gpu import _gather_rows
from penstock.kernels.move_rows.gpu import _move_rows

def widths(kernel, **constants):
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else "i32" if name == "num_rows" else "i64" for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, constexprs=values)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": False})
    assert compiled.asm["cubin"]
    return {8 * int(count or 1) * int(bits) // 64 for count, bits in re.findall(r"st\\.global\\.?v?(\\d?)\\.b(\\d+)", compiled.asm["ptx"])}

for row_bytes, source, width in [(512, 0, 16), (48, 0, 16), (512, 8, 8), (100, 0, 4), (7, 0, 1)]:
    layout = layout_of(row_bytes, source, 0)
    assert widths(_gather_rows, INTEGER=tl.int64, **layout) == {width}, (row_bytes, width)
    if row_bytes in (48, 100):
        assert widths(_move_rows, SOURCE_INTEGER=tl.int64, TARGET_INTEGER=tl.int32, **layout) == {width}
        for by_position in (False, True):
            assert width in widths(_gather_cached, BY_POSITION=by_position, HAS_TARGETS=by_position, **layout)
"""


def test_rows_are_copied_in_the_widest_words(tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:.torch.jit:DeprecationWarning", "-c", CODE],
        env=environment, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
