"""Reading pages through io_uring: rings are mapped here, and driven by a compiled kernel.

A channel is a ring with a buffer of one slot per request. Its requests may be submitted by one thread and collected by another.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from penstock.kernels.read_pages import uring
from penstock.kernels.read_pages.rules import RUNNING
from penstock.store.process_memory import aligned_bytes
from penstock.store.tiers.disk_device import Channel, Job, Outcome

SLICE_S = 0.25
"""A kernel that gets no data returns after this time, so that signals are handled and deadlines kept."""

SPARE = 4
"""There are 1 / SPARE more slots than requests under way, so that requests need not wait for rows to be copied."""

STREAMED_BYTES = 4 << 20
"""Rows of more than this in total are written past the processor's caches, which would not hold them until they are used."""

WANTED = 16
"""The thread wakes when 1 / WANTED of the requests are done: earlier takes more CPU, later leaves the device less to do."""

_SETUP, _REGISTER = 425, 427
_SINGLE_MMAP, _EXT_ARG = 1 << 0, 1 << 8
_OFFSET_SQES = 0x10000000
_REGISTER_BUFFERS = 0
_OP_READ_FIXED, _OP_READ = 4, 22
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class UringDevice:
    """Makes rings.

    Args:
        depth: requests under way per channel.
        slot_bytes: size of the longest read.
    Raises:
        OSError: the kernel refuses io_uring, or is older than 5.11.
    """

    def __init__(self, depth: int, slot_bytes: int) -> None:
        self.name = "io_uring"
        self._depth = depth
        self._slot_bytes = slot_bytes
        self.resident_bytes = 0
        self.channel().close()

    def channel(self) -> Channel:
        """Return a new ring."""
        return _Ring(self._depth, self._slot_bytes)

    def close(self) -> None:
        """Nothing is shared."""


class _Ring:
    def __init__(self, depth: int, slot_bytes: int) -> None:
        parameters = np.zeros(30, np.uint32)  # struct io_uring_params
        self._ring = _syscall(_SETUP, depth, parameters.ctypes.data)
        try:
            if ~parameters[5] & (_SINGLE_MMAP | _EXT_ARG):
                raise OSError(38, "its io_uring is older than Linux 5.11")
            self._map(parameters)
            self._num_slots, self._depth = depth + max(1, depth // SPARE), depth
            self._buffer = aligned_bytes(self._num_slots * slot_bytes)
            self._register()
        except BaseException:
            self._close_ring()
            raise
        self.resident_bytes = self._buffer.nbytes
        self._state, self._slots = np.zeros(uring.NUM_STATE, np.int64), np.zeros((uring.NUM_SLOT_ROWS, self._num_slots), np.int64)
        self._job: Job | None = None

    def _map(self, parameters: np.ndarray) -> None:
        num_sq = int(parameters[0])
        num_cq = int(parameters[1])
        sq = parameters[10:20].tolist()
        cq = parameters[20:30].tolist()
        num_bytes = max(sq[6] + 4 * num_sq, cq[5] + 16 * num_cq)
        pages = mmap.mmap(self._ring, num_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._ring32, self._ring64 = (np.frombuffer(pages, d, num_bytes // d.itemsize) for d in (np.dtype(np.uint32), np.dtype(np.uint64)))
        self._sqes = np.frombuffer(
            mmap.mmap(self._ring, 64 * num_sq, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=_OFFSET_SQES), np.uint64
        )
        self._sqes[:] = 0
        self._ring32[sq[6] // 4 : sq[6] // 4 + num_sq] = np.arange(num_sq)
        self._wait = np.zeros(5, np.uint64)  # struct io_uring_getevents_arg, then the timespec that it points to
        self._wait[2] = self._wait.ctypes.data + 24
        self._wait[3:] = int(SLICE_S), int(SLICE_S % 1 * 1e9)
        self._layout = np.zeros(11, np.int64)
        self._layout[[uring.RING, uring.WAIT_ARGUMENT, uring.OPCODE]] = self._ring, self._wait.ctypes.data, _OP_READ
        self._layout[[uring.SQ_HEAD, uring.SQ_TAIL, uring.CQ_HEAD, uring.CQ_TAIL]] = [at // 4 for at in (sq[0], sq[1], cq[0], cq[1])]
        self._layout[[uring.SQ_MASK, uring.CQ_MASK, uring.CQES]] = num_sq - 1, num_cq - 1, cq[5] // 8

    def _register(self) -> None:
        """Register the buffer, so that its pages are pinned once rather than at every read, if the limit on locked memory allows it."""
        vector = np.array([self._buffer.ctypes.data, self._buffer.nbytes], np.uint64)
        try:
            _syscall(_REGISTER, self._ring, _REGISTER_BUFFERS, vector.ctypes.data, 1)
        except OSError:
            return
        self._layout[uring.OPCODE] = _OP_READ_FIXED

    def begin(self, job: Job) -> None:
        """Submit as many requests as fit."""
        slot_bytes = int(job.plan.lengths.max(initial=job.block_bytes))
        self._state[:] = 0
        self._state[uring.NUM_FREE] = self._num_slots
        self._layout[uring.STREAMS] = job.plan.rows.size * job.row_bytes >= STREAMED_BYTES
        self._slots[uring.FREE] = np.arange(self._num_slots)[::-1]
        self._job, self._address = job, (self._depth, self._buffer.ctypes.data, slot_bytes)
        ring = (self._layout, self._ring32, self._sqes, self._state, self._slots)
        uring.begin(*ring, *self._address, job.descriptor, job.plan.starts, job.plan.lengths)

    def go_on(self) -> Outcome:
        """Collect finished requests, copy their rows, submit more."""
        assert self._job is not None
        ring = (self._layout, self._ring32, self._ring64, self._sqes, self._state, self._slots, self._buffer)
        verdict = uring.read_pages(*ring, *self._address, max(1, self._depth // WANTED), *self._job.arguments)
        if verdict != RUNNING:
            self._job = None  # and the memory of its batch, which may be freed before the ring is used again
        state = self._state
        return Outcome(verdict, int(state[uring.NUM_DONE]), int(state[uring.READ]), int(state[uring.NUMBER]))

    def close(self) -> None:
        """Close the ring. Requests under way write to pages that the kernel holds until they end, and that nobody else uses."""
        if self._ring >= 0:
            self._close_ring()
            self._job = None
            del self._ring32, self._ring64, self._sqes, self._buffer

    def _close_ring(self) -> None:
        """Close the descriptor, only once: later its number may belong to another file."""
        ring, self._ring = self._ring, -1
        if ring >= 0:
            os.close(ring)

    def __del__(self) -> None:
        if hasattr(self, "_ring"):
            self._close_ring()


def _syscall(number: int, *arguments: int) -> int:
    result = _libc.syscall(*(ctypes.c_long(value) for value in (number, *arguments, 0, 0, 0, 0, 0)[:7]))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
