"""Kernels compiled for a device that is not here: the compiler needs none. What it makes of them is looked at, and never run."""

import os
import subprocess
import sys

import pytest

ROWS = """
import re, sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from penstock.kernels._device_rows import layout_of
from penstock.kernels.gather_cached.gpu import _gather_cached
from penstock.kernels.gather_rows.gpu import _gather_rows
from penstock.kernels.move_rows.gpu import _move_rows

def widths(kernel, num_warps, **constants):
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else "i32" if name == "num_rows" else "i64" for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, constexprs=values)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": False, "num_warps": num_warps})
    assert compiled.asm["cubin"]
    assert "ld.global.v2.b64" in compiled.asm["ptx"] or constants["READ"] < 16
    return {8 * int(count or 1) * int(bits) // 64 for count, bits in re.findall(r"st\\.global\\.?v?(\\d?)\\.b(\\d+)", compiled.asm["ptx"])}

for row_bytes, source, width, is_far in [
    (512, 0, 16, True), (48, 0, 16, False), (512, 8, 8, False), (512, 8, 8, True), (100, 0, 4, False), (1000, 0, 8, True), (7, 0, 1, True),
]:
    layout = layout_of(row_bytes, source, 0, is_far=is_far)
    for has_order in (False, True) if row_bytes in (48, 100) else (True,):
        assert widths(_gather_rows, HAS_ORDER=has_order, INTEGER=tl.int64, **layout) == {width}, (row_bytes, width)
        if row_bytes in (48, 100):
            integers = {"SOURCE_INTEGER": tl.int64, "TARGET_INTEGER": tl.int32}
            assert widths(_move_rows, HAS_SOURCES=has_order, HAS_ORDER=has_order, **integers, **layout) == {width}
            assert width in widths(_gather_cached, BY_POSITION=has_order, HAS_TARGETS=has_order, HAS_ORDER=has_order, **layout)
"""

SAMPLING = """
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
from penstock.kernels._block_sums import Blocks
from penstock.kernels._device_lists import InTime, Kept
from penstock.kernels.cache_fifo import gpu as cache_fifo
from penstock.kernels.links import gpu as links
from penstock.kernels.pad_hops import gpu as pad_hops
from penstock.kernels.region_order import gpu as region_order
from penstock.kernels.relabel import gpu as relabel
from penstock.kernels.sample_neighbors import gpu as draw
from penstock.kernels.sample_weighted import gpu as draw_weighted
from penstock.kernels.sample_shared import gpu as draw_shared
from penstock.kernels.time_windows.gpu import find_windows

ids, small, status = torch.arange(70), torch.arange(70, dtype=torch.int32), torch.zeros(2, dtype=torch.int64)
kept = Kept(small, ids, small)
windows = torch.zeros((70, 2), dtype=torch.int64)
in_time = InTime(windows, small)
def some(first, size=None):
    return torch.arange(90)[first:][:size]

for first in range(3):
    counted = draw.Counted(some(first), Blocks(some(first, 1), some(first, 1)))
    for drawable in (None, small[first:]):
        draw.count_neighbors(ids, 70, ids, some(first, 2), some(first, 2), 15, False, counted, status[first % 2 :], drawable)
    find_windows(ids, small, ids, some(first, 2), some(first), some(first), first, 15, windows, status[first % 2 :])
    draw.count_neighbors(ids, 70, ids, some(first, 2), some(first, 2), 15, False, counted, status[first % 2 :], None, in_time)
for fanout, replace in ((15, False), (15, True), (-1, False)):
    for number, num_src, num_nodes in ((0, 70, 60), (4095, 16, 1), (16, 1, 16)):
        outputs = some(num_nodes % 3, 14 + num_nodes), some(num_nodes % 5, 14 + num_nodes), small[num_nodes % 3 :]
        place = fanout, replace, some(number % 3, 3), number % 16, number, ids[number % 2 :]
        frontier, far = (ids[num_nodes % 5 :], some(num_nodes % 5, 2)), draw.Far(small[number % 3 :], 1 + number % 3)
        row_ptr = torch.zeros(70, dtype=torch.int64)[num_nodes % 7 :]
        for how in (None, far):
            counted = draw.Counted(some(number % 5), Blocks(some(number % 5, 1), None))
            lists = ids, small, num_src, *frontier, *place, counted, row_ptr, *outputs, status[num_nodes % 2 :], kept, how
            draw.sample_neighbors(*lists)
            draw.sample_neighbors(*lists, in_time)
            draw_weighted.sample_neighbors(draw_weighted.Weights(ids, small[num_nodes % 5 :]), *lists)
            if fanout == 15:
                draw_shared.sample_neighbors(small.to(torch.int8), draw_shared.make_held(60 + number, 15, ids.device), *lists)
        region_order.order_by_region(ids, num_src, small[number % 3 :], region_order.make_counts(ids.device), some(num_nodes % 5, 2))
        region_order.order_by_region(small[number % 3 :][:num_nodes], num_src, small, region_order.make_counts(ids.device))
for first, count in ((0, 70), (3, 1), (5, 16)):
    relabel.add_seeds(ids[first:][:count], some(first, 1), small, some(first, 1), ids[first:])
    scratch = relabel.make_scratch(count, some(first, 1))
    places = some(first, 1), some(first, 2), ids[first:], ids[first:], scratch
    relabel.relabel(small[first:][:count], some(first, 2), small, *places, is_last=first == 3)
    for columns in (None, some(first, count)):
        trees = relabel.Trees(torch.zeros(1024, dtype=torch.int64), 70 + first, some(first, count), some(first), columns, some(first))
        if columns is None:
            relabel.add_seeds(ids[first:][:count], some(first, 1), small, some(first, 1), ids[first:], trees)
        else:
            relabel.relabel(small[first:][:count], some(first, 2), small, *places, is_last=first == 3, trees=trees)
    relabel.forget(trees.keys)
    state = cache_fifo.State(some(first, 2), some(first, 4), some(first, 2), some(first, 1))
    cache_fifo.access(ids[first:][:count], small, [50, 16, 1][first // 2], state, small[first:], small[first + 1 :])
    told, ends = some(first, 3 * count).view(3, -1)[:, : 1 + count // 3], some(first, 2)
    pairs = some(first, 2 + 2 * count).view(2, -1), ids[first:], some(first, count + 1), told
    scratch = links.make_scratch(count, some(first, 1))
    links.leave_out(*pairs, small[first:][:count], ends, ends, scratch, told, some(first, count + 1))
    hops = [some(first + more, 2 * (3 + more)).view(-1, 2) for more in (0, 1, 1)]
    pad_hops.pad_ids(some(first), hops[0], some(2 * first, count + 1))
    pad_hops.place(hops[0], some(first, count))
    pad_hops.pad_row_ptr(some(first), hops[0], hops[2], some(first + 1, count + 2))
    pad_hops.pad_edges(some(first), some(first + 1), *hops, some(first + 2, count), some(first, count))
# none of these numbers makes another kernel, and no place in memory
assert {name: len(each) for name, each in compiled.items()} == {
    "_add_up": 1, "_draw_tile": 8, "_read_tile": 2, "_draw_edge": 2, "_read_edge": 2, "_find_window": 1,
    "_draw_weighted": 4, "_take_list": 1, "_choose": 2,
    "_forget": 1, "_find_slot": 2, "_add_seeds": 2, "_claim": 2, "_find_first": 2, "_place": 4,
    "_count_regions": 2, "_begin": 1, "_give": 2,
    "_look": 1, "_copy": 1, "_count": 4,
    "_look_up": 1, "_settle": 1, "_give_slots": 1,
    "_pad_ids": 1, "_write_places": 1, "_pad_row_ptr": 1, "_pad_edges": 1,
}, compiled
"""

TILES = """
import re, subprocess
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from penstock.kernels.sample_neighbors import gpu as draw

names = draw._draw_tile.arg_names
numbers, small = ("num_edges", "num_src", "fanout", "place", "num_kept", "b"), ("indices", "ranks", "cached", "neighbors")
tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
for lanes, (rows, num_warps) in draw._TILES.items():
    constants = {"copies": None, "REPLACE": False, "HAS_COPIES": False, "HAS_KEPT": True, "READS": True}
    constants |= {"windows": None, "by_time": None, "IN_TIME": False, "BY_TIME": False}
    constants |= {"ROWS": rows, "LANES": lanes, "BLOCK": draw.BLOCK}
    signature = {name: "i32" if name in numbers else "*i32" if name in small else "*i64" for name in names}
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(draw._draw_tile, signature, constexprs={(names.index(name),): value for name, value in constants.items()})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps, "enable_fp_fusion": False})
    path = Path("tile.cubin")
    path.write_bytes(compiled.asm["cubin"])
    said = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True).stdout
    assert int(re.search(r"STACK:(\\d+)", said)[1]) <= 8, (lanes, said)  # a register or two, of one compiler
"""


def compiles(code, folder):
    """Run it where no device is, in a process that does not interpret."""
    pytest.importorskip("triton.backends.nvidia")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:.torch.jit:DeprecationWarning", "-c", code],
        env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_rows_are_copied_in_the_widest_words(tmp_path):
    compiles(ROWS, tmp_path)


def test_sampling_kernels_compile_once(tmp_path):
    """By the functions that launch them."""
    compiles(SAMPLING, tmp_path)


def test_tiles_stay_in_registers(tmp_path):
    """What does not fit goes to memory and back, in each round."""
    compiles(TILES, tmp_path)
