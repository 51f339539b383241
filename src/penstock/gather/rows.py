"""A table of rows in memory or memory-mapped.

In: ids. Out: their rows, written to the caller's buffer and nowhere else. Invariant: equals `array[ids]`, bit for bit, any dtype.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import InputError
from penstock.kernels.gather_rows import cpu
from penstock.records import Allocator


class RowTable:
    """Rows of a contiguous array.

    Args:
        array: [num_rows, ...], C-contiguous, fixed-size dtype; memory-mapped or not.
        name: for messages.
    """

    def __init__(self, array: np.ndarray, name: str) -> None:
        if not array.flags.c_contiguous or array.dtype.hasobject or array.ndim == 0:
            raise InputError(f"{name}: rows must be a contiguous array of numbers, got {array.dtype} with strides {array.strides}")
        self.name, self.dtype, self.row_shape, self.num_rows = name, array.dtype, array.shape[1:], array.shape[0]
        self.row_bytes = self.dtype.itemsize * int(np.prod(self.row_shape, dtype=np.int64))
        self._bytes = np.asarray(array).reshape(-1).view(np.uint8)

    def gather(self, ids: np.ndarray, allocate: Allocator = np.empty) -> np.ndarray:
        """Return the rows of int64[n] `ids` (in range, contiguous) as an array from `allocate`: dtype [n, *row_shape]."""
        out = allocate(ids.size * self.row_bytes, np.uint8)[: ids.size * self.row_bytes]
        if out.size:
            cpu.gather_rows(self._bytes, self.row_bytes, ids, out)
        return out.view(self.dtype).reshape(ids.size, *self.row_shape)
