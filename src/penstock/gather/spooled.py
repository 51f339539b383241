"""A spooled tier: it reads the rows of a group of coming batches in the order of the file, and keeps them on a disk until each batch's
turn.

In: the rows of each batch, announced in order and then requested in the same order. Out: the rows. Invariant: they equal those of the
slower tier; a batch that was not spooled is read from that tier.

Why: the rows of one batch are far apart, and a disk serves a limited number of requests per second, however short they are. The rows of
many batches are near each other: read together, with the holes between them, they arrive as fast as the disk reads sequentially. They are
written batch by batch, so that each batch then takes a few long reads. Instead of a request, a row costs its share of the sequential read,
and its own bytes written and read again.
Source: external sorting; DiskGNN (Liu et al. 2024) packs the rows of batches like this for a whole training in advance, which takes as much
disk space as all batches. Here the disk holds two groups, one being read and one being written.

A group is `group_size` consecutive batches. While its batches are read from one half of the spool, the next group is made in the other.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from penstock.errors import TierError
from penstock.gather.spool_file import SpoolFile, cut
from penstock.records import index_dtype
from penstock.store.tiers import Read, Tier, TierStats

PIECE_BYTES, NUM_BUFFERS = 16 << 20, 3
"""Bytes of rows read or written at a time, and number of buffers: one is written while two are read into, so that the disk never idles."""


@dataclass(slots=True, eq=False)
class _Group:
    """Batches that are spooled together.

    Attributes:
        half: the half of the spool that holds them.
        rows: the sorted rows of each batch, until they are spooled.
        checks: a checksum of the rows of each batch.
        made: done when the batches are spooled; None: spooling has not begun.
        starts, cuts: once spooled: int64[num_batches, num_pieces], the spool row where the rows of a batch in a piece begin; and see
            `Pieces.cuts`.
        unread: number of batches whose reads are not over yet.
        is_dropped: the batches will not be requested.
    """

    half: int
    rows: list[np.ndarray] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)
    made: Future[None] | None = None
    starts: np.ndarray | None = None
    cuts: np.ndarray | None = None
    unread: int = 0
    is_dropped: bool = False

    def where(self, number: int) -> np.ndarray | None:
        """Return int64[n]: the spool rows that hold the sorted rows of a batch; None if the batch is not spooled."""
        if self.starts is None or self.cuts is None or number >= len(self.starts):
            return None
        starts, cuts = self.starts[number], self.cuts[number]
        return np.repeat(starts - cuts[:-1], np.diff(cuts)) + np.arange(cuts[-1])


class SpooledTier:
    """Rows of a slower tier, read ahead for groups of batches.

    Args:
        slow: has all rows, in the order of a file.
        folder: on the disk for the spool. The files have no names, so nothing is left behind.
        num_bytes: size of the spool. Batches that do not fit into half of it are read from `slow`.
        group_size: batches per group.
        name: of the spool, for messages and reports.
    Raises:
        UsageError: the folder cannot be written, or the disk has too little space.
    """

    device = "cpu"
    is_static = False  # see `stack.around`

    def __init__(self, slow: Tier, folder: Path, num_bytes: int, group_size: int, name: str = "spool") -> None:
        self.slow = slow
        self.name = name
        self.num_rows = slow.num_rows
        self.row_bytes = slow.row_bytes
        self.group_size = group_size
        self._file = SpoolFile(
            folder, slow.row_bytes, num_bytes, num_buffers=NUM_BUFFERS, piece_bytes=PIECE_BYTES, least_rows=4 * group_size, name=name
        )
        self._dtype = index_dtype(slow.num_rows)
        self._pid, self._lock = os.getpid(), threading.RLock()  # reentrant: a read may be dropped while this thread holds it
        self._maker, self._writer = (ThreadPoolExecutor(1, thread_name_prefix="penstock-spool") for _ in range(2))
        for threads in (self._maker, self._writer):
            weakref.finalize(self, threads.shutdown, wait=False, cancel_futures=True)
        self._readers = [0, 0]  # reads under way in each half
        self._groups: deque[_Group] = deque()  # not made yet
        self._in_half: list[_Group | None] = [None, None]
        self._open, self._num_groups = _Group(0), 0
        self._to_come: deque[tuple[_Group, int]] = deque()

    @property
    def stats(self) -> TierStats:
        """Counts of the reads from the spool."""
        return self._file.tier.stats

    @property
    def kept(self) -> Tier:
        """The tier of the rows in the spool."""
        return self._file.tier

    @property
    def written_bytes(self) -> int:
        """Bytes written to the spool so far."""
        return self._file.written_bytes

    @property
    def resident_bytes(self) -> int:
        """Memory of the buffers, and of the row numbers of coming batches."""
        if self._pid != os.getpid():  # the thread that held the lock at the fork does not exist here
            return self._file.buffer_bytes
        with self._lock:
            waiting = [group for group in (*self._groups, *self._in_half, self._open) if group is not None]
            return self._file.buffer_bytes + sum(rows.nbytes for group in waiting for rows in group.rows)

    def announce(self, rows: np.ndarray) -> None:
        """Announce the distinct int64[n] rows of a coming batch, in the order of the batches."""
        if self._pid != os.getpid():
            return
        ordered = np.sort(rows).astype(self._dtype)
        with self._lock:
            group = self._open
            self._to_come.append((group, len(group.rows)))
            group.rows.append(ordered)
            group.checks.append(crc32(ordered.data))
            group.unread += 1
            if len(group.rows) == self.group_size:
                self._num_groups += 1
                self._groups.append(group)
                self._open = _Group(self._num_groups % 2)
                self._go_on()

    def restart(self) -> None:
        """Begin a new pass. Forgets batches that were announced but not requested."""
        if self._pid != os.getpid():
            return
        with self._lock:
            for group in (*self._groups, *self._in_half, self._open):
                if group is not None:
                    group.is_dropped = True
            self._groups.clear()
            self._to_come.clear()
            self._open = _Group(self._open.half)

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read, in the order of the batches; see `Tier.submit`."""
        if self._pid != os.getpid():  # a forked child must not use what the parent spools
            return self.slow.submit(rows, outs, places)
        with self._lock:
            group, number = self._to_come.popleft() if self._to_come else (None, 0)
        if group is None:
            return self.slow.submit(rows, outs, places)
        read = _SpooledRead(self, group, number, rows, outs, places)
        if group.made is None or group.made.done():
            read.begin()
        return read

    def _go_on(self) -> None:
        """Begin to spool the next group, if its half is free; called with the lock held."""
        if self._groups:
            before = self._in_half[self._groups[0].half]
            is_free = before is None or before.is_dropped or before.unread == 0
            if is_free and (before is None or before.made is None or before.made.done()) and not self._readers[self._groups[0].half]:
                group = self._groups.popleft()
                self._in_half[group.half] = group
                with contextlib.suppress(RuntimeError):  # the process is ending, and its pool accepts no more work
                    group.made = self._maker.submit(self._make, group)
                    made = weakref.WeakMethod(self._made)  # weak: the spool ends with its last user, without garbage collection
                    group.made.add_done_callback(lambda _: go_on() if (go_on := made()) is not None else None)

    def _made(self) -> None:
        with self._lock:
            self._go_on()

    def _make(self, group: _Group) -> None:
        """Spool a group: read the rows of its batches in the order of the file, and write them batch by batch."""
        pieces = cut(group.rows, self._file.piece_rows, self._file.half_rows, self._file.step)
        first, number = group.half * self._file.half_rows, pieces.num_batches
        starts = np.empty((number, pieces.num_pieces), np.int64)
        written: deque[Future[None]] = deque()
        read = begun = None  # of a piece: (read, its buffer, first row in the spool, number of rows)
        try:
            for piece in range(pieces.num_pieces):
                if group.is_dropped:
                    return
                cuts = pieces.cuts[:, piece : piece + 2]
                counts = cuts[:, 1] - cuts[:, 0]
                starts[:, piece] = first + np.cumsum(counts) - counts
                wanted = np.concatenate([rows[low:high] for rows, (low, high) in zip(group.rows[:number], cuts, strict=True)])
                if len(written) == NUM_BUFFERS - 1:
                    written.popleft().result()
                out = self._file.buffer(piece % NUM_BUFFERS)
                begun = self.slow.submit(wanted.astype(np.int64), out, np.arange(wanted.size)), out, first, wanted.size
                if read is not None:
                    written.append(self._end(*read))
                read = begun
                first += -(-wanted.size // self._file.step) * self._file.step
            if read is not None:
                written.append(self._end(*read))
            for one in written:
                one.result()
        finally:
            read = begun = None  # after a failure, drop the reads: the traceback would keep them alive, and they write to the buffers
            wait(written)  # until then, the buffers are in use
        with self._lock:
            group.starts, group.cuts = starts, pieces.cuts
            group.rows.clear()

    def _end(self, read: Read, out: Sequence[np.ndarray], first: int, count: int) -> Future[None]:
        """Complete the read of a piece, and begin to write it."""
        read.wait()
        return self._writer.submit(self._file.write, first, count, out)


class _SpooledRead:
    """A read of an announced batch."""

    def __init__(self, tier: SpooledTier, group: _Group, number: int, rows: np.ndarray, outs: Any, places: np.ndarray) -> None:
        self._tier, self._group, self._number = tier, group, number
        self._rows, self._outs, self._places = rows, outs, places
        self._beneath: Read | None = None
        self._half: int | None = None
        self._is_over = False

    @property
    def since(self) -> float | None:
        """See `Read.since`; None: the read has not begun."""
        return None if self._beneath is None else self._beneath.since

    def begin(self) -> None:
        """Begin to read from the spool, or from the slower tier."""
        tier, group = self._tier, self._group
        if group.made is not None and (error := group.made.exception()) is not None:
            raise copy.copy(error) from error  # a copy per batch, with a traceback of its own
        order = np.argsort(self._rows)
        if crc32(self._rows[order].astype(tier._dtype).data) != group.checks[self._number]:
            raise TierError(f"{tier.name}: a batch asks for other rows than were announced: this is an error in Penstock")
        with tier._lock:
            where = None if group.is_dropped else group.where(self._number)
            if where is not None:
                self._half = group.half
                tier._readers[group.half] += 1
        if where is None:
            self._beneath = tier.slow.submit(self._rows, self._outs, self._places)
        else:
            self._beneath = tier.kept.submit(where, self._outs, self._places[order])

    def wait(self) -> int:
        """Complete the read."""
        try:
            if self._beneath is None:
                self.begin()
            assert self._beneath is not None
            return self._beneath.wait()
        finally:
            self._over()

    def _over(self, *, goes_on: bool = True) -> None:
        if self._is_over or self._tier._pid != os.getpid():
            return
        self._is_over, tier = True, self._tier
        with tier._lock:
            if self._half is not None:
                tier._readers[self._half] -= 1
            self._group.unread -= 1
            if goes_on:
                tier._go_on()

    def __del__(self) -> None:
        self._over(goes_on=False)  # this may run at any point, also inside the pool's submit
