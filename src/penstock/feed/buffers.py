"""Recycled memory for what a batch is made of.

In: requests for arrays. Out: arrays over buffers that come back by themselves. Invariant: a buffer is handed out again only when no
array, tensor or view of it is alive, wherever it went; nobody has to give anything back.
Why: a fresh buffer of 100 MB costs 2-10 times the gather that fills it, for its pages are mapped and zeroed one by one. Huge pages do not
help: gathering into a recycled buffer is as fast without (0.96-1.01x), and their first touch cost 0.02 to 0.6 s for 130 MB against 0.12 s
on a virtual machine whose host gives memory only when it is touched. So buffers are mapped without advice.
How: the array's owner is a `_Lease`; torch and NumPy keep the owner alive through any chain of views; its end returns the buffer.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

import numpy as np

from penstock.store.process_memory import aligned_bytes
from penstock.threads import Guard

SMALLEST_BYTES = 1 << 18
"""Smaller arrays are left to the allocator, which recycles them well enough."""

_MAPPED_BYTES = 1 << 21
"""Buffers from here on are mapped one by one, so that the memory of a buffer that is dropped goes back at once."""
_LOOKED_AT = 512
"""Arrays that are asked for between two looks at whether all that memory is of use."""
_SPARE = 4
"""There may be 1/4 more memory than was in use at once. Arrays that a batch needs only while it is made then have buffers of their own.
Where any new size took the place of another, it took that of the features, whose memory was then new for each batch."""
_HEADROOM = 16
"""A new buffer is 1/16 larger than asked for, so that the next, slightly larger batch fits as well."""


class _Buffer:
    """One piece of memory; freed with the object."""

    __slots__ = ("_array", "address", "num_bytes")

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        if num_bytes < _MAPPED_BYTES:
            self._array = np.empty(num_bytes, dtype=np.uint8)
        else:
            self._array = aligned_bytes(num_bytes)  # NumPy itself would ask for huge pages
        self.address = self._array.ctypes.data


class _Lease:
    """Owner of one handed-out array; returns the buffer when the last view is gone."""

    __slots__ = ("__array_interface__", "__weakref__", "_buffer", "_returned")

    def __init__(self, buffer: _Buffer, num_bytes: int, returned: deque[_Buffer]) -> None:
        self._buffer, self._returned = buffer, returned
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (num_bytes,), "data": (buffer.address, False)}

    def __del__(self) -> None:
        self._returned.append(self._buffer)  # atomic: this may run in any thread, also inside `BufferPool.empty`


class BufferPool:
    """Arrays over recycled buffers. Safe to use from any thread."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._returned: deque[_Buffer] = deque()
        self._idle: list[_Buffer] = []
        self._total_bytes = 0
        self._num_taken, self._most_used = 0, 0
        self.peak_bytes = 0

    def empty(self, size: int, dtype: Any) -> np.ndarray:
        """Return a one-dimensional array of `size` elements, contents undefined."""
        dtype = np.dtype(dtype)
        num_bytes = size * dtype.itemsize
        if num_bytes < SMALLEST_BYTES:
            return np.empty(size, dtype)
        with self._guard.lock:
            buffer = self._take(num_bytes)
        return np.asarray(_Lease(buffer, num_bytes, self._returned)).view(dtype)

    @property
    def total_bytes(self) -> int:
        """Bytes held now: handed out and idle."""
        return self._total_bytes

    def _take(self, num_bytes: int) -> _Buffer:
        """The smallest idle buffer that fits and is not much too large; else a new one, in place of one that is somewhat too small, and of
        others where there is much memory."""
        while self._returned:
            self._idle.append(self._returned.popleft())
        self._look(self._total_bytes - sum(buffer.num_bytes for buffer in self._idle) + num_bytes)
        fitting = [buffer for buffer in self._idle if num_bytes <= buffer.num_bytes <= 2 * num_bytes + _MAPPED_BYTES]
        if fitting:
            buffer = min(fitting, key=lambda buffer: buffer.num_bytes)
            self._idle.remove(buffer)
            return buffer
        outgrown = [buffer for buffer in self._idle if buffer.num_bytes < num_bytes <= 2 * buffer.num_bytes]
        if outgrown:
            self._drop(max(outgrown, key=lambda buffer: buffer.num_bytes))
        while self._idle and self._total_bytes + num_bytes > self._limit:
            self._drop(min(self._idle, key=lambda buffer: abs(math.log(buffer.num_bytes / num_bytes))))
        buffer = _Buffer(num_bytes + num_bytes // _HEADROOM)
        self._total_bytes += buffer.num_bytes
        self.peak_bytes = max(self.peak_bytes, self._total_bytes)
        return buffer

    def _look(self, used_bytes: int) -> None:
        """Note how much is in use. Let go of idle buffers where much memory was idle for long: somebody held many batches, say, and does no
        more."""
        self._most_used = max(self._most_used, used_bytes)
        self._num_taken += 1
        if self._num_taken % _LOOKED_AT:
            return
        for buffer in sorted(self._idle, key=lambda buffer: buffer.num_bytes, reverse=True):
            if self._total_bytes > self._limit and self._total_bytes - buffer.num_bytes >= self._most_used:
                self._drop(buffer)
        self._most_used = used_bytes

    @property
    def _limit(self) -> int:
        return self._most_used + self._most_used // _SPARE

    def _drop(self, buffer: _Buffer) -> None:
        self._idle.remove(buffer)
        self._total_bytes -= buffer.num_bytes


class Loan:
    """An allocator over a pool, for one batch, that knows when all of it has come back.

    Args:
        pool: that it lends from.
    """

    __slots__ = ("_leases", "_pool")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._leases: list[weakref.ref[_Lease]] = []

    def empty(self, size: int, dtype: Any) -> np.ndarray:
        """As `BufferPool.empty`."""
        array = self._pool.empty(size, dtype)
        if (lease := _lease_of(array)) is not None:
            self._leases.append(weakref.ref(lease))
        return array

    @property
    def is_back(self) -> bool:
        """Whether something was lent, and nothing of it is alive."""
        return bool(self._leases) and all(lease() is None for lease in self._leases)


def _lease_of(array: Any) -> _Lease | None:
    while array is not None and not isinstance(array, _Lease):
        array = getattr(array, "base", None)
    return array
