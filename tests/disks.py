"""Disk tiers over small files, and a device that fails as told."""

import errno
import itertools
import mmap
import os
import threading

import numpy as np

from penstock.kernels.read_pages import reference, rules
from penstock.store.tiers import DiskOptions, DiskTier, RowFile
from penstock.store.tiers.disk_device import Outcome
from penstock.store.tiers.disk_uring import UringDevice

VERDICTS = {reference.DONE: rules.DONE, reference.FAILED: rules.FAILED, reference.ENDED: rules.ENDED}
numbers = itertools.count()


def has_uring():
    """Whether the kernel lets us have rings."""
    try:
        UringDevice(1, 4096)
    except OSError:
        return False
    return True


DEVICES = ["pread", *(["io_uring"] if has_uring() else [])]
"""The devices that this machine has; where it refuses io_uring, what is said and done about it is tested all the same."""


def write_rows(folder, arrays, offset=4096):
    """Write arrays to files, each behind `offset` bytes of something else."""
    files = []
    for array in arrays:
        path = folder / f"{next(numbers)}.rows"
        path.write_bytes(b"\xee" * offset + array.tobytes())
        row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
        files.append(RowFile(path=path, data_offset=offset, row_bytes=row_bytes))
    return files


def make_tier(folder, arrays, offset=4096, **options):
    """A tier over arrays."""
    return DiskTier(write_rows(folder, arrays, offset), len(arrays[0]), options=DiskOptions(**{"gap_bytes": 0, **options}))


def read(tier, rows, places=None, num_places=None):
    """Read rows of all fields; the places that get none stay 0xAB."""
    rows = np.asarray(rows, np.int64)
    places = np.arange(rows.size) if places is None else places
    outs = [np.full((num_places or rows.size) * width, 0xAB, np.uint8) for width in tier.row_bytes]
    tier.submit(rows, outs, places).wait()
    return outs


class FaultyDevice:
    """Reads files in plain Python, by the definition of the kernels.

    Args:
        fault: (number of the read, offset, length) -> None, an errno, ("short", bytes), ("stall", seconds), ("end", bytes).
    """

    name, resident_bytes = "faulty", 0

    def __init__(self, fault):
        self.fault, self.numbers, self.offsets = fault, itertools.count(), []

    def __call__(self, depth, slot_bytes):
        return self

    def channel(self):
        return _FaultyChannel(self)

    def close(self):
        pass


class _FaultyChannel:
    resident_bytes = 0

    def __init__(self, device):
        self.device, self.stop = device, threading.Event()

    def begin(self, job):
        self.job, self.rows, self.result = job, job.out.copy(), None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        job = self.job
        plan = job.plan
        with open(job.descriptor, "rb", buffering=0, closefd=False) as file:
            self.result = reference.read_pages(
                lambda offset, length: self.read_at(file, offset, length), (plan.starts, plan.lengths, plan.firsts, plan.lasts),
                job.end, job.block_bytes, plan.rows, job.places, job.row_bytes, job.data_offset, self.rows,
            )  # fmt: skip

    def read_at(self, file, offset, length):
        number = next(self.device.numbers)
        self.device.offsets.append((offset, length))
        fault = self.device.fault(number, offset, length)
        if isinstance(fault, int):
            raise OSError(fault, "made up")
        kind, amount = fault or (None, 0)
        if kind == "stall":
            self.stop.wait(amount)
        with mmap.mmap(-1, length) as buffer:  # at the beginning of a page
            count = os.preadv(file.fileno(), [buffer], offset)
            return buffer[: min(count, amount) if kind in ("short", "end") else count]

    def go_on(self):
        self.thread.join(0.05)
        if self.result is None:
            return Outcome(rules.RUNNING, 0)
        verdict, k, number = self.result
        if verdict == reference.DONE:
            self.job.out[:] = self.rows
        return Outcome(VERDICTS[verdict], self.job.plan.starts.size, k, number)

    def close(self):
        self.stop.set()


def again(count, code=errno.EINTR):
    """A fault: the first reads are interrupted."""
    return lambda number, offset, length: code if number < count else None
