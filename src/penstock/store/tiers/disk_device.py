"""How pages come from a disk: devices, and the channels that reads under way have to themselves.

In: jobs, planned reads of one file and where the rows in them go. Out: the rows at their places, or a verdict. Invariant: once a channel is
closed nothing is written to a job's `out` any more, and what the device still writes goes to memory that nobody else has.
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
    """What a channel is to do.

    Attributes:
        descriptor: of the file; block_bytes: what its reads are made of.
        plan: the reads.
        end: where in the file the last row ends; nothing after it need come.
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
        """The last arguments of the kernels."""
        plan = self.plan
        reads = (plan.starts, plan.lengths, plan.firsts, plan.lasts)
        return (self.descriptor, *reads, self.end, self.block_bytes, plan.rows, self.places, self.row_bytes, self.data_offset, self.out)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job stands.

    Attributes:
        verdict: one of `kernels.read_pages.rules`.
        num_done: reads that are over.
        read, number: of a failure: which read (-1: none in particular), and the errno or the bytes that it had.
    """

    verdict: int
    num_done: int
    read: int = 0
    number: int = 0


class Channel(Protocol):
    """One job at a time, of one thread at a time."""

    resident_bytes: int

    def begin(self, job: Job) -> None:
        """Ask the device for the first reads, and come back."""
        ...

    def go_on(self) -> Outcome:
        """Go on until the job is over, or nothing has come for a while. A job that is over is let go of."""
        ...

    def close(self) -> None:
        """Give everything back, whatever is under way. Any number of times."""
        ...


class Device(Protocol):
    """Makes channels.

    Attributes:
        name: for reports.
        resident_bytes: that all channels share.
    """

    name: str

    @property
    def resident_bytes(self) -> int:
        """Memory that all channels share."""
        ...

    def channel(self) -> Channel:
        """Return a new channel; raises OSError where the system refuses one."""
        ...

    def close(self) -> None:
        """End what channels share."""
        ...


class Channels:
    """The channels of a tier, lent to one read at a time. Safe to use from any thread, and in forked children."""

    def __init__(self, make_device: Callable[[], Device], most: int) -> None:
        self._make_device, self._most = make_device, most
        self.device = make_device()
        self._lock, self._pid = threading.RLock(), os.getpid()  # a read that is collected drops its channel, wherever this thread is
        self._idle: list[Channel] = []
        self._num_made, self._channel_bytes = 0, 0

    @property
    def resident_bytes(self) -> int:
        """Memory of all channels, lent or not."""
        return self.device.resident_bytes + self._num_made * self._channel_bytes

    def take(self) -> Channel | None:
        """A channel, or None where as many are lent as there may be."""
        self._take_over_after_fork()
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if self._num_made >= self._most:
                return None
            try:
                return self._make()
            except OSError:  # the system is short of something: the read begins when it is waited for
                return None

    def take_anyway(self) -> Channel:
        """A channel for a thread that waits for its rows; one more than there may be, if need be: who has the others may be waiting for
        this thread."""
        channel = self.take()
        if channel is not None:
            return channel
        with self._lock:
            try:
                return self._make()
            except OSError as error:
                raise TierError(f"the system has no more rings or memory to read with ({reason_of(error)}): read less at a time") from error

    def give_back(self, channel: Channel) -> None:
        """Take a channel back whose job is done."""
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
        """Close all that is not lent."""
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
        """Rings belong to the parent, threads stayed there, and a lock may be held for ever: begin anew. Closing a copy of a descriptor
        leaves the parent's alone."""
        if self._pid == os.getpid():
            return
        self._pid, self._lock, self._idle, self._num_made = os.getpid(), threading.RLock(), [], 0
        self.device = self._make_device()
