"""The sampling kernels compiled for a device that is not here, by the functions that launch them; what comes out is never run."""

import os
import subprocess
import sys

import pytest

CODE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit
from penstock.kernels import _triton

class Elsewhere:
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device: 0

driver.set_active(Elsewhere())
compiled = {}

def compile_only(kernel, num_programs, device, *arguments, **constants):
    made = kernel.run(*arguments, grid=(num_programs,), warmup=True, enable_fp_fusion=False, **constants)
    assert made.asm["cubin"]
    compiled.setdefault(kernel.fn.__name__, set()).add(made.hash)

_triton.launch = compile_only
from penstock.kernels.relabel import gpu as relabel
from penstock.kernels.sample_neighbors import gpu as draw

ids, small, status = torch.arange(70), torch.arange(70, dtype=torch.int32), torch.zeros(2, dtype=torch.int64)
kept = draw.Kept(small, ids, small)
draw.count_neighbors(ids, 70, ids[:60], 15, False, torch.zeros(61, dtype=torch.int64), status)
for fanout, replace in ((15, False), (15, True), (-1, False)):
    for key, batch, num_src, num_nodes in (((1, 2), 0, 70, 60), ((2**31, 2**32 - 1), 2**32 - 1, 16, 1), ((0, 16), 1, 1, 16)):
        outputs = torch.zeros(17 + num_nodes, dtype=torch.int64)[num_nodes % 3 :], small[num_nodes % 3 :]
        place = fanout, replace, key, batch, batch % 16, batch % 4096, ids[batch % 2 :]
        draw.sample_neighbors(ids, small, num_src, ids[num_nodes % 5 :][:num_nodes], *place, ids[num_nodes % 7 :], *outputs, status, kept)
for claims, first, count in ((relabel.EMPTY - 99, 0, 70), (1, 3, 1), (16, 5, 16)):
    scratch = torch.zeros((2, count), dtype=torch.int32)
    relabel.relabel(small[first:][:count], small, claims, 0, ids[first:], ids[first:], *scratch)
# none of these numbers makes another kernel, and no place in memory
assert {name: len(each) for name, each in compiled.items()} == {
    "_count": 1, "_draw_tile": 2, "_draw_edge": 1, "_read_edge": 1, "_claim": 1, "_find_first": 1, "_place": 1,
}, compiled
"""


def test_they_compile_once(tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:.torch.jit:DeprecationWarning", "-c", CODE],
        env=environment, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
