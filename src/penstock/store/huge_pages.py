"""Maps of files that are read at random are replaced by huge pages of memory, at the same address.

In: a `MappedPages` array. Out: the same array at the same address with the same bytes, in pages of 2 MiB. Why: a mapped file has pages of
4 KiB, so a random read misses the TLB as well, which on a virtual machine costs more than the read itself.
How: a piece is copied into fresh huge pages, and `mremap` puts these in place of the file's pages. A thread that reads at that moment waits
for this call at most, and sees the same bytes before and after. The system cannot drop this memory as it can the page cache, so this is for
maps that fit easily.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from penstock.store.files import MappedPages, memory_of
from penstock.threads import Guard

HUGE = 2 << 20
PIECE = 16 * HUGE
LEAST_BYTES = 4 * HUGE
"""Smallest array that is moved; the TLB covers smaller ones anyway."""
_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_MOVE_AND_REPLACE = 1 | 2  # MREMAP_MAYMOVE | MREMAP_FIXED
_FAILED = ctypes.c_void_p(-1).value
_one_at_a_time = Guard()

if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    _libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    _libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def are_available() -> bool:
    """Whether this system grants huge pages on request."""
    try:
        return sys.platform == "linux" and "[never]" not in _ENABLED.read_text()
    except OSError:
        return False


def can_move(array: np.ndarray) -> bool:
    """Whether an array is a `MappedPages` map that is large enough and was not moved before."""
    return isinstance(array.base, MappedPages) and not array.base.is_moved and array.nbytes >= LEAST_BYTES


def move_to_huge_pages(array: np.ndarray, is_wanted: Callable[[], bool] = lambda: True) -> int:
    """Move an array for which `can_move` holds, piece by piece as long as `is_wanted`. Returns the bytes moved.

    Safe while other threads read the array. An array is moved once, no matter how often that is asked. If the system refuses, the rest
    stays a map.
    """
    pages = array.base
    assert isinstance(pages, MappedPages)
    moved = 0
    with _one_at_a_time.lock:
        if pages.is_moved:
            return 0
        pages.is_moved = True
        first = -(-array.ctypes.data // HUGE) * HUGE
        last = (array.ctypes.data + array.nbytes) // HUGE * HUGE
        while first < last and is_wanted():
            length = min(PIECE, last - first)
            if not _replace(first, length):
                break
            first, moved = first + length, moved + length
    return moved


class OwnPages(mmap.mmap):
    """Memory without a file that shares no page with anything else."""


def own_pages(num_bytes: int, *, are_huge: bool = True) -> np.ndarray:
    """Return uint8[num_bytes], zeros, on pages of its own: of 2 MiB if `are_huge` and the system has them. Allocates at least one byte; a
    page takes memory once it is written to."""
    pages = OwnPages(-1, num_bytes, flags=_PRIVATE)
    with suppress(OSError, AttributeError):
        pages.madvise(mmap.MADV_HUGEPAGE if are_huge else mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def copy_to_own_pages(array: np.ndarray) -> np.ndarray:
    """Return a C-contiguous copy of an array on its own pages: random reads miss the TLB less, and a driver can register it."""
    if array.nbytes == 0:
        return np.array(array, order="C")
    copy = own_pages(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def keep_in_place(array: np.ndarray) -> None:
    """Exclude an array from being moved, and wait if it is being moved: for callers that give its pages to a driver."""
    if isinstance(pages := memory_of(array), MappedPages):
        with _one_at_a_time.lock:
            pages.is_moved = True


def _replace(address: int, length: int) -> bool:
    """Replace pages by huge pages with the same bytes; `address` and `length` are multiples of a huge page."""
    block_bytes = length + HUGE
    block = _libc.mmap(None, block_bytes, mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE, -1, 0)
    if block in (None, _FAILED):
        return False
    fresh = -(-block // HUGE) * HUGE
    _libc.madvise(fresh, length, mmap.MADV_HUGEPAGE)
    ctypes.memmove(fresh, address, length)
    _libc.mprotect(fresh, length, mmap.PROT_READ)
    is_done = _libc.mremap(fresh, length, length, _MOVE_AND_REPLACE, address) == address
    _libc.munmap(block, fresh - block)
    rest = fresh if not is_done else fresh + length
    _libc.munmap(rest, block + block_bytes - rest)
    return is_done
