"""Rows in the memory of the host: arrays of ours, or the page cache behind a mapped file."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from penstock.errors import InputError
from penstock.kernels.move_rows import cpu
from penstock.store.tiers.tier import Deferred, Read, TierStats, check_rows


class HostTier:
    """Arrays in memory. The copy is made by whoever waits.

    Args:
        arrays: per field [num_rows, ...], C-contiguous, equal num_rows.
        name: for messages and reports.
    """

    device = "cpu"

    def __init__(self, arrays: Sequence[np.ndarray], name: str = "host") -> None:
        if len({len(array) for array in arrays}) != 1:
            raise InputError(f"{name}: fields of one tier must have equally many rows, got {[len(array) for array in arrays]}")
        for array in arrays:
            if not array.flags.c_contiguous or array.dtype.hasobject:
                raise InputError(f"{name}: rows must be contiguous arrays of numbers, got {array.dtype} with strides {array.strides}")
        self.name, self.num_rows, self.stats = name, len(arrays[0]), TierStats()
        self.row_bytes = tuple(row_bytes_of(array) for array in arrays)
        self.buffers = [np.asarray(array).reshape(-1).view(np.uint8) for array in arrays]
        self.resident_bytes = sum(array.nbytes for array in arrays)

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read."""
        check_rows(self, rows)
        return Deferred(lambda: self._copy(rows, outs, places))

    def _copy(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> int:
        started = time.perf_counter()
        for source, out, row_bytes in zip(self.buffers, outs, self.row_bytes, strict=True):
            cpu.move_rows(source, rows, out, places, row_bytes)
        num_bytes = rows.size * sum(self.row_bytes)
        self.stats.add(rows.size, num_bytes, time.perf_counter() - started)
        return num_bytes

    def write(self, rows: np.ndarray, sources: Sequence[np.ndarray], source_rows: np.ndarray) -> None:
        """Replace rows (distinct) by rows `source_rows` of `sources`, uint8 per field."""
        for target, source, row_bytes in zip(self.buffers, sources, self.row_bytes, strict=True):
            cpu.move_rows(source, source_rows, target, rows, row_bytes)


class MappedTier(HostTier):
    """Arrays mapped from files: what of them is in memory is up to the page cache, and not counted here."""

    def __init__(self, arrays: Sequence[np.ndarray], name: str = "mmap") -> None:
        super().__init__(arrays, name)
        self.resident_bytes = 0


def row_bytes_of(array: np.ndarray) -> int:
    """Bytes of one row."""
    return array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
