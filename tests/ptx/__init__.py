"""What Triton compiles for a GPU, run where none is: PTX, lane by lane, on memory of the host.

Triton's own interpreter runs the Python of a kernel. Here runs what its compiler made of it: layouts, exchanges between lanes and warps,
shared memory, barriers, widths of words. As a plugin, it runs the tests of kernels and of all that is above them so, on tensors of the CPU:

    TRITON_INTERPRET=0 python -m pytest -p tests.ptx tests/differential/test_gpu_sampling.py

`watched` counts what is asked of a piece of memory as a GPU asks for it. `interleaved` lets warps go on in an order by chance. Only those
instructions are known that kernels here have come to; another one is an error, as are addresses that are not aligned, places outside of
shared memory, and exchanges with lanes that have not come. Orders that only weak memory allows are not played, and nothing has a time.
"""

import os
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from tests.ptx.kernel import Kernel
from tests.ptx.run import WARP, Run
from tests.ptx.words import TYPES

AT_ONCE = 16
"""Programs that are at work at the same time; the next ones begin when these are over."""

options = {"random": None, "watches": []}
loaded = []
"""Kernels; their handles are their places, from 1 on."""


class Watch:
    """Reads of a piece of memory. Attributes: lines, of 128 bytes, that warps asked for, each as often as an instruction did; sectors, of
    32; bytes."""

    def __init__(self, first, num_bytes):
        self._first, self._end = first, first + num_bytes
        self.lines = self.sectors = self.bytes = 0

    def count(self, kind, address, num_bytes, warp):
        """An instruction: where its lanes read."""
        if kind == "ld":
            inside = (address + num_bytes > self._first) & (address < self._end)
            address, warp = address[inside], warp[inside]
            self.lines += np.unique(warp << 48 | address >> 7).size
            self.sectors += np.unique(warp << 48 | address >> 5).size
            self.bytes += num_bytes * address.size


@contextmanager
def watched(array):
    """Yields a `Watch` of the bytes of an array."""
    watch = Watch(array.ctypes.data, array.nbytes)
    options["watches"].append(watch)
    try:
        yield watch
    finally:
        options["watches"].remove(watch)


@contextmanager
def interleaved(random):
    """Warps go on in an order by chance within."""
    options["random"] = random
    try:
        yield
    finally:
        options["random"] = None


class Launcher:
    """In the place of Triton's own."""

    def __init__(self, source, metadata):
        self._are_passed = [kind != "constexpr" for kind in source.signature.values()]

    def __call__(self, width, height, depth, stream, kernel, packed, metadata, on_enter, on_exit, *arguments):
        assert height == depth == 1
        passed = [argument for argument, is_passed in zip(arguments, self._are_passed, strict=True) if is_passed]
        passed += [0] * (len(loaded[kernel - 1].parameters) - len(passed))  # memory to work with: these kernels need none
        run_kernel(kernel, width, [each.data_ptr() if hasattr(each, "data_ptr") else each for each in passed])


def run_kernel(handle, width, numbers):
    """Run programs of a kernel, given the bits of its parameters."""
    kernel = loaded[handle - 1]
    values = {
        name: np.array(number & (1 << 8 * TYPES[kind].itemsize) - 1, TYPES[kind])
        for number, (kind, name) in zip(numbers, kernel.parameters, strict=True)
    }
    with np.errstate(over="ignore"):
        for first in range(0, width, AT_ONCE):
            Run(kernel, width, range(first, min(width, first + AT_ONCE)), values, **options).run()


class _Driver:
    """In the place of that of a GPU: an H200."""

    def __init__(self, target, launcher):
        self.launcher_cls = launcher
        self.get_current_target = lambda: target
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device: 0
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 227 << 10},
            load_binary=lambda name, kernel, shared_bytes, device: (None, loaded.append(kernel) or len(loaded), 0, 0, 1024),
            unload_module=lambda module: None,
        )


def install(launcher=Launcher):
    """From now on, kernels of this process are compiled for a GPU, and run here. Before any of them is imported."""
    os.environ |= {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "0"}  # `_triton.launch` asks for the latter on a device
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver

    from penstock.kernels import _triton

    make = CompiledKernel.__init__

    def make_kernel(self, *arguments, **settings):
        make(self, *arguments, **settings)
        self.kernel = Kernel(self.asm["ptx"], WARP * self.metadata.num_warps, self.metadata.shared)

    CompiledKernel.__init__ = make_kernel
    driver.set_active(_Driver(GPUTarget("cuda", 90, WARP), launcher))
    _triton.is_interpreted = lambda: True  # tensors are the CPU's


def pytest_load_initial_conftests():
    """As a plugin."""
    install()
