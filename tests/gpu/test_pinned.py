"""Ten lines before all else: can a Triton kernel read memory of the host by its pointer?

Needs a GPU, torch and Triton, and nothing of Penstock: `TRITON_INTERPRET=0 python -m pytest -m gpu tests/gpu/test_pinned.py`, or, where
pytest is missing, `python tests/gpu/test_pinned.py`.
"""

import ctypes
import mmap
import tempfile

import torch
import triton
import triton.language as tl

try:
    import pytest
except ImportError:
    pytest = None
else:
    pytestmark = pytest.mark.gpu

NUM = 100_000
PORTABLE, MAPPED, READ_ONLY = 1, 2, 8  # CU_MEMHOSTREGISTER_*


@triton.jit
def _copy(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)


@triton.jit
def _copy_from_address(address, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(address.to(tl.pointer_type(tl.int64)) + at, mask=at < count), mask=at < count)


def read_by_kernel(tensor):
    """The content as a kernel on the device sees it: given as a tensor, and as a number."""
    grid, targets = (triton.cdiv(NUM, 1024),), [torch.zeros(NUM, dtype=torch.int64, device="cuda") for _ in range(2)]
    _copy[grid](tensor, targets[0], NUM, BLOCK=1024, enable_fp_fusion=False)
    _copy_from_address[grid](device_pointer(tensor.data_ptr()), targets[1], NUM, BLOCK=1024, enable_fp_fusion=False)
    torch.cuda.synchronize()
    return [target.cpu() for target in targets]


def device_pointer(address):
    """Where the device finds memory of the host."""
    found = ctypes.c_uint64()
    code = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute(ctypes.byref(found), 3, ctypes.c_uint64(address))
    assert code == 0, f"cuPointerGetAttribute: CUDA error {code}"
    return found.value


def test_a_kernel_reads_a_pinned_tensor():
    pinned = torch.arange(NUM).pin_memory()
    for seen in read_by_kernel(pinned):
        assert torch.equal(seen, pinned)


def read_registered_map(access, flags, folder=None):
    expected = torch.arange(NUM) * 3
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(expected.numpy().tobytes())
        file.flush()
        pages = mmap.mmap(file.fileno(), NUM * 8, flags=mmap.MAP_SHARED, prot=access)
        if access & mmap.PROT_WRITE:
            tensor = torch.frombuffer(pages, dtype=torch.int64)
        else:
            import numpy as np

            array = np.frombuffer(pages, dtype=np.int64)
            owner = type("Owner", (), {"__array_interface__": {**array.__array_interface__, "data": (array.ctypes.data, False)}})()
            tensor = torch.from_numpy(np.asarray(owner))
        torch.zeros(1, device="cuda")
        driver, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(tensor.data_ptr())  # the runtime's errors stay behind for torch
        code = driver.cuMemHostRegister_v2(address, ctypes.c_size_t(NUM * 8), ctypes.c_uint(flags))
        assert code == 0, f"cuMemHostRegister of a map with flags {flags}: CUDA error {code}"
        try:
            for seen in read_by_kernel(tensor):
                assert torch.equal(seen, expected)
        finally:
            driver.cuMemHostUnregister(address)


def test_a_kernel_reads_a_registered_map():
    """In a file system of memory: since Linux 6.5 nobody keeps pages of a disk's file for long that he may write to."""
    read_registered_map(mmap.PROT_READ | mmap.PROT_WRITE, PORTABLE | MAPPED, "/dev/shm")


def test_a_kernel_reads_a_registered_map_that_is_read_only():
    read_registered_map(mmap.PROT_READ, PORTABLE | MAPPED | READ_ONLY)


def test_what_lies_beside_registered_memory_is_not_pinned():
    """Not a promise of ours: what torch says of it decides how careful others must be."""
    space = torch.zeros(4096, dtype=torch.uint8)
    torch.zeros(1, device="cuda")
    driver, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(space.data_ptr())
    assert driver.cuMemHostRegister_v2(address, ctypes.c_size_t(100), ctypes.c_uint(PORTABLE | MAPPED)) == 0
    try:
        says = space[200:].is_pinned()
    finally:
        driver.cuMemHostUnregister(address)
    if says:
        message = "this driver calls all of a page pinned that holds registered memory"
        pytest.xfail(message) if pytest else print(message)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                print(name, "ok")
            except Exception as error:
                print(name, "FAILED:", error)
