"""A table of rows in memory or memory-mapped.

In: ids. Out: their rows, in memory from the caller's allocator. Invariant: the result equals `array[ids]`, bit for bit, for any dtype.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise

import numpy as np

from penstock.errors import InputError
from penstock.gather.hops import clear_between, runs_of, size_of
from penstock.kernels.gather_rows import cpu
from penstock.records import Allocator
from penstock.store.format import row_bytes
from penstock.threads import Threads

LEAST_BYTES = 1 << 22
"""Fewest bytes that are worth another thread."""


class RowTable:
    """Rows of a contiguous array.

    Args:
        array: [num_rows, ...], C-contiguous, fixed-size dtype; memory-mapped or not.
        name: for messages.
    Raises:
        InputError: another kind of array.
    """

    def __init__(self, array: np.ndarray, name: str) -> None:
        if not array.flags.c_contiguous or array.dtype.hasobject or array.ndim == 0:
            raise InputError(f"{name}: rows must be a contiguous array of numbers, got {array.dtype} with strides {array.strides}")
        self.dtype, self.row_shape = array.dtype, array.shape[1:]
        self.row_bytes = row_bytes(self.dtype, self.row_shape)
        self._bytes = np.asarray(array).reshape(-1).view(np.uint8)

    def gather(self, ids: np.ndarray, allocate: Allocator = np.empty, num_threads: int = 1, hops: np.ndarray | None = None) -> np.ndarray:
        """Return the rows of int64[n] `ids` (in range, contiguous) as an array from `allocate`: dtype [n, *row_shape].

        Args:
            ids: int64[n], in [0, num_rows); not checked.
            allocate: makes the result.
            num_threads: threads that share the work if it is large, the caller's among them.
            hops: see `penstock.gather.hops`; the result then has a row per place.
        """
        num_rows, width = size_of(hops, ids.size), self.row_bytes
        out = allocate(num_rows * width, np.uint8)[: num_rows * width]
        if hops is None:
            self._read(ids, out, num_threads)
        else:
            clear_between(out, hops, width)
            for first, place, count, _ in runs_of(hops):
                self._read(ids[first : first + count], out[place * width : (place + count) * width], num_threads)
        return out.view(self.dtype).reshape(num_rows, *self.row_shape)

    def _read(self, ids: np.ndarray, out: np.ndarray, num_threads: int) -> None:
        num_threads = min(num_threads, out.size // LEAST_BYTES)
        if num_threads > 1:
            self._gather_together(ids, out, num_threads)
        elif out.size:
            cpu.gather_rows(self._bytes, self.row_bytes, ids, out)

    def _gather_together(self, ids: np.ndarray, out: np.ndarray, num_threads: int) -> None:
        ends = [ids.size * i // num_threads for i in range(num_threads + 1)]
        pieces = [(ids[a:b], out[a * self.row_bytes : b * self.row_bytes]) for a, b in pairwise(ends)]
        gather = partial(cpu.gather_rows, self._bytes, self.row_bytes)
        others = _threads(num_threads - 1)
        under_way = [others.submit(partial(gather, *piece)) for piece in pieces[1:]]  # whatever comes, they keep the memory that they fill
        gather(*pieces[0])
        for piece in under_way:
            piece.result()


@cache
def _threads(count: int) -> Threads:
    return Threads(count, "penstock-gather")
