"""Devices for tests: the interpreter on CPU tensors by default, a GPU with `TRITON_INTERPRET=0 pytest -m gpu`; the same tests for both."""

import ctypes
import mmap
import os

import numpy as np
import pytest
import torch

from penstock.kernels import _triton

NAME = os.environ.get("PENSTOCK_TEST_DEVICE", "cuda")
"""What a user would write. Another one than the first shows what is asked of the current device instead of the one that is named."""
DEVICES = [NAME] if _triton.is_interpreted() else [pytest.param(NAME, marks=pytest.mark.gpu)]
"""For `pytest.mark.parametrize`; on machines with a GPU and in the interpreter, the same."""


def of_rank(name, rank):
    """The device of a rank: where there are several, ranks have their own."""
    count = 1 if _triton.is_interpreted() else torch.cuda.device_count()
    return name if count == 1 else f"cuda:{rank % count}"


def on_device(array, device):
    """A tensor on a device with the bytes of an array, aligned as those are."""
    if device.type == "cpu":
        return torch.from_numpy(array)
    offset = array.ctypes.data % 128
    space = torch.empty(array.nbytes + 256, dtype=torch.uint8, device=device)
    first = (offset - space.data_ptr()) % 128
    copied = space[first : first + array.nbytes]
    copied.copy_(torch.from_numpy(array.reshape(-1).view(np.uint8)))
    return copied.view(getattr(torch, str(array.dtype))).view(array.shape)


def poisoned_on(device, num_bytes):
    """A uint8 tensor full of the same byte."""
    return torch.full((num_bytes,), 0xA5, dtype=torch.uint8, device=device)


def address_rows(random, num_rows, row_bytes, offset, *, fenced=False):
    """(uint8 vector that begins `offset` bytes after a line of 128, the same as rows). `fenced`: it ends where a page ends, before one that
    cannot be touched."""
    num_bytes = num_rows * row_bytes
    if fenced:
        pages = -(-num_bytes // mmap.PAGESIZE) + 1
        space = mmap.mmap(-1, pages * mmap.PAGESIZE)
        whole = np.frombuffer(space, np.uint8)
        fence = ctypes.c_void_p(whole.ctypes.data + (pages - 1) * mmap.PAGESIZE)
        assert ctypes.CDLL(None).mprotect(fence, mmap.PAGESIZE, 0) == 0
        table = whole[(pages - 1) * mmap.PAGESIZE - num_bytes : (pages - 1) * mmap.PAGESIZE]
    else:
        whole = np.empty(num_bytes + 256, np.uint8)
        first = (offset - whole.ctypes.data) % 128
        table = whole[first : first + num_bytes]
    table[:] = random.integers(0, 256, num_bytes, dtype=np.uint8)
    return table, table.reshape(num_rows, row_bytes)
