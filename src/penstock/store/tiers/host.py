"""Rows in host memory: arrays, or files mapped through the page cache."""

from __future__ import annotations

import mmap
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

import numpy as np

from penstock.errors import InputError, UsageError
from penstock.kernels.move_rows import cpu
from penstock.store.files import memory_of
from penstock.store.huge_pages import OwnPages
from penstock.store.tiers.tier import Deferred, Read, TierStats, check_rows
from penstock.threads import Threads

LEAST_ROWS = 64
"""Fewest rows for which a thread is used."""


class ReadByHost(ABC):
    """Base of tiers whose rows are copied by the thread that waits, in `_move`. Subclasses set the attributes of a tier (`Tier`)."""

    device = "cpu"
    name: str
    num_rows: int
    row_bytes: tuple[int, ...]
    resident_bytes: int
    stats: TierStats

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read."""
        check_rows(self, rows)
        return Deferred(lambda: self._copy(rows, outs, places))

    def _copy(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> int:
        started = time.perf_counter()
        self._move(rows, outs, places)
        num_bytes = rows.size * sum(self.row_bytes)
        self.stats.add(rows.size, num_bytes, time.perf_counter() - started)
        return num_bytes

    @abstractmethod
    def _move(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> None:
        """Copy `rows` to their `places`; arguments as for `submit`, rows checked."""


class HostTier(ReadByHost):
    """Arrays in memory.

    Args:
        arrays: per field [num_rows, ...], C-contiguous, equal num_rows.
        name: for messages and reports.
    """

    def __init__(self, arrays: Sequence[np.ndarray], name: str = "host") -> None:
        check_arrays(name, arrays)
        self.name, self.num_rows, self.stats = name, len(arrays[0]), TierStats()
        self.row_bytes = tuple(row_bytes_of(array) for array in arrays)
        self.buffers = [np.asarray(array).reshape(-1).view(np.uint8) for array in arrays]
        self.resident_bytes = sum(array.nbytes for array in arrays)

    def _move(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> None:
        for source, out, row_bytes in zip(self.buffers, outs, self.row_bytes, strict=True):
            cpu.move_rows(source, rows, out, places, row_bytes)

    def write(self, rows: np.ndarray, sources: Sequence[np.ndarray], source_rows: np.ndarray) -> None:
        """Replace `rows` (distinct) by the rows `source_rows` of `sources` (per field, uint8). TierError: a row is none."""
        check_rows(self, rows)
        for target, source, row_bytes in zip(self.buffers, sources, self.row_bytes, strict=True):
            cpu.move_rows(source, source_rows, target, rows, row_bytes)


class MappedTier(HostTier):
    """Arrays mapped from files: the page cache decides which parts are in memory; this memory is not counted here.

    Args:
        arrays, name: as for `HostTier`.
        num_threads: threads that copy parts of a read at the same time; 0: the thread that waits copies. A row that is not in memory blocks
            the thread that touches it, so there are at most as many requests under way as threads.
    """

    def __init__(self, arrays: Sequence[np.ndarray], name: str = "mmap", *, num_threads: int = 0) -> None:
        if num_threads < 0:
            raise UsageError(f"{name}: a number of threads must not be negative, got {num_threads}")
        super().__init__(arrays, name)
        self.resident_bytes, self.num_threads = 0, num_threads
        self._threads = Threads(num_threads, "penstock-map")

    def _move(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> None:
        count = min(self.num_threads, rows.size // LEAST_ROWS)
        if count < 2:
            super()._move(rows, outs, places)
            return
        copy = super()._move
        pieces = [(rows[i::count], places[i::count]) for i in range(count)]
        for piece in [self._threads.submit(partial(copy, np.ascontiguousarray(r), outs, np.ascontiguousarray(p))) for r, p in pieces]:
            piece.result()


def is_map(array: np.ndarray) -> bool:
    """Whether an array is a map of a file."""
    owner = memory_of(array)
    return isinstance(owner, mmap.mmap) and not isinstance(owner, OwnPages)


def advise_random(array: np.ndarray) -> bool:
    """Turn off read-ahead for an array that is a map of a file; returns whether it is one."""
    return _advise(array, "MADV_RANDOM")


def advise_in_order(array: np.ndarray) -> bool:
    """Turn read-ahead on again."""
    return _advise(array, "MADV_NORMAL")


def _advise(array: np.ndarray, how: str) -> bool:
    owner = memory_of(array)
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, how):
        return False
    owner.madvise(getattr(mmap, how))
    return True


def check_arrays(name: str, arrays: Sequence[np.ndarray]) -> None:
    """Check that all arrays are C-contiguous rows of numbers, with equal numbers of rows. `name`: for the message."""
    if len({len(array) for array in arrays}) != 1:
        raise InputError(f"{name}: fields of one tier must have equally many rows, got {[len(array) for array in arrays]}")
    for array in arrays:
        if not array.flags.c_contiguous or array.dtype.hasobject:
            raise InputError(f"{name}: rows must be contiguous arrays of numbers, got {array.dtype} with strides {array.strides}")


def row_bytes_of(array: np.ndarray) -> int:
    """Bytes of one row."""
    return array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
