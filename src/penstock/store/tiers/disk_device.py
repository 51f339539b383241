"""How pages are read from a disk: devices, and channels, each of which serves one read at a time.

In: jobs: planned requests of one file, and where their rows go. Out: the rows at their places, or a verdict. Invariant: after a channel is
closed, nothing is written to a job's `out` any more; data that the device still delivers goes to memory that nobody else uses.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.errors import TierError, reason_of
from penstock.store.tiers.disk_plan import ReadPlan

logger = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Job:
    """The work of a channel.

    Attributes:
        descriptor: of the file; block_bytes: its reads begin and end at multiples of this.
        plan: the requests.
        end: where the last row ends in the file; bytes after it are not needed.
        row_bytes, data_offset: of the rows.
        places: int64[n]: row plan.rows[i] goes to row places[i] of `out`.
        out: uint8 vector.
    """

    descriptor: int
    block_bytes: int
    plan: ReadPlan
    end: int
    row_bytes: int
    data_offset: int
    places: np.ndarray
    out: np.ndarray

    @property
    def arguments(self) -> tuple[object, ...]:
        """Return the arguments that all kernels take last."""
        plan = self.plan
        reads = (plan.starts, plan.lengths, plan.firsts, plan.lasts)
        return (self.descriptor, *reads, self.end, self.block_bytes, plan.rows, self.places, self.row_bytes, self.data_offset, self.out)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of a job.

    Attributes:
        verdict: one of `kernels.read_pages.rules`.
        num_done: finished requests.
        read, number: of a failure: which request (-1: none in particular), and its errno or the bytes that it got.
    """

    verdict: int
    num_done: int
    read: int = 0
    number: int = 0


class Channel(Protocol):
    """One job at a time, of one thread at a time."""

    resident_bytes: int

    def begin(self, job: Job) -> None:
        """Submit the first requests, and return."""
        ...

    def go_on(self) -> Outcome:
        """Continue until the job is over, or nothing has come for a while. A finished job is released."""
        ...

    def close(self) -> None:
        """Release everything, even while requests are under way. May be called several times."""
        ...


class Device(Protocol):
    """Makes channels.

    Attributes:
        name: for reports.
        resident_bytes: memory that all channels share.
    """

    name: str

    @property
    def resident_bytes(self) -> int:
        """Memory that all channels share."""
        ...

    def channel(self) -> Channel:
        """Return a new channel; raises OSError if the system refuses one."""
        ...

    def close(self) -> None:
        """Release what channels share."""
        ...


class Channels:
    """The channels of a tier, lent to one read at a time. Safe to use from any thread, and in forked children."""

    def __init__(self, make_device: Callable[[], Device], most: int) -> None:
        self._make_device, self._most = make_device, most
        self.device = make_device()
        self._lock, self._pid = threading.RLock(), os.getpid()  # reentrant: a garbage-collected read drops its channel
        self._idle: list[Channel] = []
        self._num_made, self._channel_bytes = 0, 0

    @property
    def resident_bytes(self) -> int:
        """Memory of all channels, lent or not."""
        return self.device.resident_bytes + self._num_made * self._channel_bytes

    def take(self) -> Channel | None:
        """Return a channel, or None if `max_channels` are lent."""
        self._take_over_after_fork()
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if self._num_made >= self._most:
                return None
            try:
                return self._make()
            except OSError:  # the system lacks a resource: the read begins in `wait`
                return None

    def take_anyway(self) -> Channel:
        """Return a channel for a thread that waits for its rows; beyond the limit if necessary, since the holders of the others may be
        waiting for this thread."""
        channel = self.take()
        if channel is not None:
            return channel
        with self._lock:
            try:
                return self._make()
            except OSError as error:
                raise TierError(f"the system has no more rings or memory to read with ({reason_of(error)}): read less at a time") from error

    def give_back(self, channel: Channel) -> None:
        """Take back a channel whose job is done."""
        with self._lock:
            if self._num_made <= self._most:
                self._idle.append(channel)
                return
            self._num_made -= 1
        channel.close()

    def drop(self, channel: Channel) -> None:
        """Close a channel whose job is not done."""
        channel.close()
        with self._lock:
            self._num_made -= 1

    def close(self) -> None:
        """Close all channels that are not lent."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._num_made -= len(idle)
        for channel in idle:
            channel.close()
        self.device.close()

    def _make(self) -> Channel:
        channel = self.device.channel()
        self._num_made += 1
        self._channel_bytes = channel.resident_bytes
        return channel

    def _take_over_after_fork(self) -> None:
        """Start over in a forked child: rings and threads are the parent's, and a copied lock may be held for ever. Closing copied
        descriptors does not affect the parent."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._idle = []
        self._num_made = 0
        self.device = self._make_device()
