"""Rows on a disk, read by many requests at once, bypassing the page cache.

In: row numbers. Out: the rows, at their places. Invariants: every delivered row is complete, or an error names the file, the position and
what to do; every wait has a deadline; memory is bounded by the channels. Reads begin when they are submitted; the thread that waits
continues them.
Source: Ginex 3 and 4 (features and lists on an SSD, direct I/O); `docs/design/disk.md`.
"""

from __future__ import annotations

import errno
import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.errors import MAKE_AGAIN, TierError, UsageError, reason_of
from penstock.kernels.read_pages import rules
from penstock.store.tiers.disk_device import Channel, Channels, Device, Job, Outcome, logger
from penstock.store.tiers.disk_files import OpenRows, RowFile
from penstock.store.tiers.disk_gauge import CACHED_GAP_BYTES, measure_gap
from penstock.store.tiers.disk_plan import ReadPlan, plan_reads
from penstock.store.tiers.disk_pread import PreadDevice
from penstock.store.tiers.disk_uring import UringDevice
from penstock.store.tiers.tier import Read, TierStats, check_rows

_NUM_THREADS = 32
"""Threads for pread: enough to come near io_uring's rate, at three times its CPU time."""

_PAUSE_S = 1e-3
"""Pause before asking again if nothing came: a kernel that lacks a resource returns at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskOptions:
    """How a disk is read.

    Attributes:
        depth: requests under way per channel.
        max_read_bytes: largest request; rows further apart, or more rows, take several requests.
        max_channels: most reads at work at the same time; the buffers of a channel take 1.25 * depth * max_read_bytes.
        block_bytes: reads begin and end at multiples of this; None: the smallest block that the file system allows.
        gap_bytes: holes of up to this size are read along; None: measured when the tier is opened.
        patience_s: after this time without any data the read fails.
        device: "io_uring", "pread", a function that makes a device, or "auto": io_uring if the kernel has it.
        direct: bypass the page cache.
    """

    depth: int = 128
    max_read_bytes: int = 1 << 16
    max_channels: int = 8
    block_bytes: int | None = None
    gap_bytes: int | None = None
    patience_s: float = 30.0
    device: str | Callable[[int, int], Device] = "auto"
    direct: bool = True

    def __post_init__(self) -> None:
        """Check the options."""
        if not 1 <= self.depth <= 4096 or self.max_channels < 1 or self.patience_s <= 0 or (self.gap_bytes or 0) < 0:
            raise UsageError("a disk needs depth from 1 to 4096, max_channels from 1, patience_s above 0 and gap_bytes from 0")
        block = self.block_bytes or 4096
        if block < 512 or block & (block - 1) or self.max_read_bytes < 1 or self.max_read_bytes % max(block, 4096):
            raise UsageError("block_bytes must be a power of two from 512, and max_read_bytes a multiple of it and of 4096")
        if isinstance(self.device, str) and self.device not in ("auto", "io_uring", "pread"):
            raise UsageError(f"device must be auto, io_uring or pread, got {self.device!r}")


@dataclass(slots=True)
class DiskStats(TierStats):
    """Counts of a disk tier: rows asked for, and the requests that this caused.

    Attributes:
        num_requests: reads of the file. read_bytes: their bytes, including holes and the rest of blocks.
        num_pages: pages of 4 KiB that hold the rows; a page is counted once per read.
    """

    num_requests: int = 0
    read_bytes: int = 0
    num_pages: int = 0

    def add_requests(self, plan: ReadPlan) -> None:
        """Count the requests of a plan."""
        with self._guard.lock:
            self.num_requests += plan.starts.size
            self.read_bytes += plan.num_bytes
            self.num_pages += plan.num_pages


class DiskTier:
    """Rows in files.

    Args:
        files: one per field, with equal numbers of rows. `RowFile.behind(array)` finds the file of a store's array.
        num_rows: of each file.
        name: for messages and reports.
        options: see there.
    Raises:
        TierError: a file cannot be opened, or is too short.
    """

    device = "cpu"

    def __init__(self, files: Sequence[RowFile], num_rows: int, name: str = "disk", options: DiskOptions | None = None) -> None:
        self.name, self.num_rows, self.row_bytes = name, num_rows, tuple(file.row_bytes for file in files)
        self.options, self.stats = options or DiskOptions(), DiskStats()
        block, chosen = self.options.block_bytes, self.options  # the finalizer below holds these, and must not hold self
        self._files = [OpenRows(file, num_rows, name, block_bytes=block, direct=self.options.direct) for file in files]
        self._channels = Channels(lambda: _choose_device(chosen, name), chosen.max_channels)
        for file in self._files:
            if file.refusal is not None:
                logger.warning("%s: %s: reads go through the page cache, and memory fills with it", name, file.refusal)
        self.gap_bytes = self.options.gap_bytes if self.options.gap_bytes is not None else self._measure()
        self._close = weakref.finalize(self, _close_all, self._channels, self._files)

    @property
    def resident_bytes(self) -> int:
        """Memory of the buffers of all channels."""
        return self._channels.resident_bytes

    @property
    def folder(self) -> Path:
        """The folder of its first file."""
        return self._files[0].file.path.parent

    def most_bytes(self, num_readers: int) -> int:
        """Return the most that `resident_bytes` may become with `num_readers` reading threads."""
        return int(1.25 * min(num_readers, self.options.max_channels) * self.options.depth * self.options.max_read_bytes)

    def describe(self) -> str:
        """Describe how the rows are read, in a few words."""
        ways = sorted({"direct I/O" if file.is_direct else "through the page cache" for file in self._files})
        blocks = sorted({file.block_bytes for file in self._files})
        return (
            f"{self._channels.device.name}, {' and '.join(ways)}, blocks of {', '.join(map(str, blocks))} bytes, "
            f"holes up to {self.gap_bytes} bytes read along"
        )

    def close(self) -> None:
        """Close files and rings. No read may be under way."""
        self._close()

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read: as many requests as fit are under way when this returns."""
        started = time.perf_counter()
        check_rows(self, rows)
        if not self._close.alive:
            raise TierError(f"{self.name}: it was closed")
        places, jobs = np.ascontiguousarray(places, np.int64), []
        for file, out in zip(self._files, outs, strict=True):
            job = self._plan(file, rows, out, places)
            if job is not None:
                jobs.append(job)
        read = _DiskRead(self, jobs, rows.size, started)
        read.begin()
        return read

    def _plan(self, open_file: OpenRows, rows: np.ndarray, out: np.ndarray, places: np.ndarray) -> _Part | None:
        file, most = open_file.file, self.options.max_read_bytes
        if not rows.size or not file.row_bytes:
            return None
        block = open_file.block_bytes
        plan = plan_reads(rows, file.row_bytes, file.data_offset, block_bytes=block, gap_bytes=self.gap_bytes, max_bytes=most)
        job = Job(open_file.descriptor, block, plan, open_file.end, file.row_bytes, file.data_offset, places[plan.order], out)
        return _Part(job, file.path)

    def _measure(self) -> int:
        """Measure which holes are worth reading, on the first large file whose reads bypass the page cache."""
        for file in self._files:
            if file.is_direct:
                channel = self._channels.take_anyway()
                gap, is_sound = measure_gap(channel, file, self.options.max_read_bytes)
                if is_sound:
                    self._channels.give_back(channel)
                else:
                    self._channels.drop(channel)
                return gap
        return CACHED_GAP_BYTES

    def _explain(self, part: _Part, outcome: Outcome) -> TierError:
        job = part.job
        at = int(job.plan.starts[outcome.read]) if job.plan.starts.size else 0
        row = max(0, (at - job.data_offset) // max(job.row_bytes, 1))
        if outcome.verdict == rules.RUNNING:
            return TierError(
                f"{self.name}: {part.path}: nothing has come for {self.options.patience_s:g} s, {outcome.num_done} of "
                f"{job.plan.starts.size} reads are over: the disk does not answer. See the system's log; when it answers again, go on"
            )
        if outcome.verdict == rules.ENDED:
            size = os.fstat(job.descriptor).st_size
            end = size if size < job.end else at + outcome.number
            return TierError(
                f"{self.name}: {part.path} ends at byte {end}, its rows go on to {job.end}: it was truncated since it was opened: "
                f"{MAKE_AGAIN}"
            )
        reason = os.strerror(outcome.number)
        if outcome.read < 0:
            return TierError(f"{self.name}: cannot read {part.path}: {reason}")
        hint = (
            "the disk is failing: see the system's log, and put the file on another"
            if outcome.number == errno.EIO
            else "see the system's log"
        )
        return TierError(f"{self.name}: cannot read {part.path} at byte {at} (row {row}): {reason}: {hint}")


@dataclass(slots=True)
class _Part:
    """A job of a read."""

    job: Job
    path: Path
    channel: Channel | None = None


class _DiskRead:
    """A read under way: a job per field."""

    def __init__(self, tier: DiskTier, parts: list[_Part], num_rows: int, started: float) -> None:
        self._tier = tier
        self._parts = parts
        self._num_rows = num_rows
        self._pid = os.getpid()
        self._seconds, self.since = -started, started

    def begin(self) -> None:
        """Begin as many jobs as there are free channels."""
        for part in self._parts:
            part.channel = self._tier._channels.take()
            if part.channel is not None:
                part.channel.begin(part.job)
        self._seconds += time.perf_counter()

    def wait(self) -> int:
        """Complete the read."""
        started, tier = time.perf_counter(), self._tier
        if self._pid != os.getpid():  # submitted by the parent before a fork, whose rings are not ours
            for part in self._parts:
                part.channel = None
        if not tier._close.alive:
            self._drop()
            raise TierError(f"{tier.name}: it was closed while rows were read from it")
        for part in self._parts:
            self._end(part)
        num_bytes = self._num_rows * sum(tier.row_bytes)
        tier.stats.add(self._num_rows, num_bytes, self._seconds + time.perf_counter() - started)
        for part in self._parts:
            tier.stats.add_requests(part.job.plan)
        return num_bytes

    def _end(self, part: _Part) -> None:
        tier = self._tier
        if part.channel is None:
            part.channel = tier._channels.take_anyway()
            part.channel.begin(part.job)
        channel, last, since = part.channel, -1, time.monotonic()
        while True:
            outcome = channel.go_on()
            if outcome.verdict == rules.DONE:
                part.channel = None
                tier._channels.give_back(channel)
                return
            now = time.monotonic()
            if outcome.verdict != rules.RUNNING or (outcome.num_done == last and now - since > tier.options.patience_s):
                self._drop()
                raise tier._explain(part, outcome)
            if outcome.num_done == last:
                time.sleep(_PAUSE_S)
            else:
                last, since = outcome.num_done, now

    def _drop(self) -> None:
        for part in self._parts:
            channel, part.channel = part.channel, None
            if channel is not None and self._pid == os.getpid():
                self._tier._channels.drop(channel)

    def __del__(self) -> None:
        self._drop()


def _choose_device(options: DiskOptions, name: str) -> Device:
    """Choose io_uring if the kernel has it, else threads."""
    if callable(options.device):
        return options.device(options.depth, options.max_read_bytes)
    if options.device != "pread":
        try:
            return UringDevice(options.depth, options.max_read_bytes)
        except OSError as error:
            if options.device == "io_uring":
                raise TierError(f"{name}: the kernel refuses io_uring ({reason_of(error)}): allow it, or read by pread") from None
            logger.warning(
                "%s: the kernel refuses io_uring (%s): reading by pread on threads, at three times the CPU", name, reason_of(error)
            )
    return PreadDevice(min(_NUM_THREADS, options.depth), options.max_read_bytes)


def _close_all(channels: Channels, files: list[OpenRows]) -> None:
    channels.close()
    for file in files:
        file.close()
