"""What a process knows of its own memory."""

import subprocess
import sys

import pytest

FORGETFUL = """
import torch, numpy
from penstock.store.process_memory import let_go_of_libraries, resident_bytes
torch.ones(8, 8) @ torch.ones(8, 8)
before = resident_bytes()
let_go_of_libraries()
after = resident_bytes()
assert (torch.ones(8, 8) @ torch.ones(8, 8)).sum() == 512
assert numpy.linalg.norm(numpy.ones(4)) == 2
print(before - after)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the pages of libraries are dropped on Linux only")
def test_libraries_are_let_go_and_come_back():
    run = subprocess.run([sys.executable, "-c", FORGETFUL], capture_output=True, text=True, check=True)
    assert int(run.stdout) > 30e6


ARRAYS = """
import sys, numpy
from penstock.store.process_memory import let_go_of_arrays, resident_bytes
numpy.save(sys.argv[1], numpy.ones(64 << 20, numpy.uint8))
shared, own = numpy.load(sys.argv[1], mmap_mode="r"), numpy.load(sys.argv[1], mmap_mode="c")
own[0] = 2
assert shared.sum() == own.sum() - 1
before = resident_bytes()
let_go_of_arrays()
print(before - resident_bytes())
assert shared.sum() == own.sum() - 1  # what was written stays
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the pages of arrays are dropped on Linux only")
def test_mapped_arrays_are_let_go_and_come_back(tmp_path):
    run = subprocess.run([sys.executable, "-c", ARRAYS, tmp_path / "x.npy"], capture_output=True, text=True, check=True)
    assert int(run.stdout) >= 64e6


HEAP = """
import ctypes, numpy
from penstock.store.process_memory import is_in_heap
large = numpy.ones(64 << 20, numpy.uint8)
ctypes.CDLL(None).mallopt(-4, 0)  # as trainings do: M_MMAP_MAX
others = [numpy.ones(64 << 20, numpy.uint8) for _ in range(2)]
print(is_in_heap(large.ctypes.data), *(is_in_heap(each.ctypes.data) for each in others), is_in_heap(1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says where the heap is")
def test_large_memory_lies_in_the_heap_where_malloc_maps_none():
    run = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "True", "False"]


GROWTH = """
import numpy
from penstock.store.process_memory import keep_freed_memory, keeps_freed_memory, letting_freed_memory_go, peak_growth
if keep_freed_memory() and keeps_freed_memory():
    held = []
    def work():  # each a little too large for what the one before left, with one behind it that stays
        for size in range(8, 16):
            passing = numpy.ones(size << 20, numpy.uint8)
            held.append(numpy.ones(size << 20, numpy.uint8))
            del passing
    with letting_freed_memory_go():
        print(peak_growth(work) >> 20)
    print(peak_growth(work) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc of glibc, and its peak by Linux")
def test_growth_is_what_is_in_use_where_freed_memory_is_let_go():
    run = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    exact, kept = map(int, run.stdout.split())
    staying = sum(range(8, 16))
    assert staying + 13 <= exact <= staying + 20  # at its peak 15 more, rounded down, less pages that were there
    assert kept > 1.5 * staying
