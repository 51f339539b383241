"""Reading pages by pread on a pool of threads: if the kernel refuses io_uring, and for files that are in memory anyway.

Threads and their buffers are shared by all channels. Invariant: after a channel is closed no thread copies to its job's `out` any more, not
even one whose read never returns.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref

import numpy as np

from penstock.errors import TierError
from penstock.kernels.read_pages import cpu
from penstock.kernels.read_pages.rules import DONE, RUNNING
from penstock.store.process_memory import aligned_bytes
from penstock.store.tiers.disk_device import Channel, Job, Outcome
from penstock.store.tiers.disk_uring import SLICE_S

Tasks = queue.SimpleQueue["_Threads | None"]


class PreadDevice:
    """A pool of threads.

    Args:
        num_threads: most reads under way, of all channels together.
        slot_bytes: size of the longest read.
    """

    def __init__(self, num_threads: int, slot_bytes: int) -> None:
        self.name, self._num_threads, self._slot_bytes = f"pread on {num_threads} threads", num_threads, slot_bytes
        self._tasks: Tasks = queue.SimpleQueue()
        self._num_started, self._lock = 0, threading.Lock()
        self._finalizer = weakref.finalize(self, _end_all, self._tasks, num_threads)

    @property
    def resident_bytes(self) -> int:
        """Buffers of the threads that were started."""
        return self._num_started * self._slot_bytes

    def channel(self) -> Channel:
        """Return a channel."""
        return _Threads(self)

    def close(self) -> None:
        """Let the threads end."""
        self._finalizer()

    def _ask(self, channel: _Threads, num_threads: int) -> int:
        """Put threads to work for a channel; returns how many."""
        with self._lock:
            for _ in range(min(self._num_threads, num_threads) - self._num_started):
                try:
                    threading.Thread(target=_work, args=(self._tasks, self._slot_bytes), daemon=True, name="penstock-pread").start()
                except RuntimeError as error:  # too many threads, or no memory
                    if not self._num_started:
                        raise TierError(f"no thread to read from the disk can be started: {error}; raise the limit of threads") from error
                    break
                self._num_started += 1
        count = min(self._num_threads, num_threads)
        for _ in range(count):
            self._tasks.put(channel)
        return count


class _Threads:
    resident_bytes = 0

    def __init__(self, device: PreadDevice) -> None:
        self._device, self._job = device, None
        self._shared, self._over = np.zeros(cpu.NUM_WORDS, np.int64), threading.Event()
        self._lock, self._num_at_work = threading.Lock(), 0

    def begin(self, job: Job) -> None:
        """Put threads to work."""
        self._job, self._shared, self._over = job, np.zeros(cpu.NUM_WORDS, np.int64), threading.Event()
        count = min(job.plan.starts.size, self._device._num_threads)
        self._num_at_work = count
        if count:
            self._device._ask(self, count)
        else:
            self._over.set()

    def work(self, buffer: np.ndarray) -> None:
        """Do requests of the current job, on a thread of the pool."""
        job, shared, over = self._job, self._shared, self._over
        if job is not None:
            cpu.read_pages(shared, buffer, buffer.ctypes.data, *job.arguments)
        with self._lock:
            self._num_at_work -= 1
            if self._num_at_work == 0:
                over.set()

    def go_on(self) -> Outcome:
        """Wait for the threads."""
        assert self._job is not None
        self._over.wait(SLICE_S)
        _, num_done, _, _, _, verdict, read, number = self._shared.tolist()
        if verdict == RUNNING and num_done == self._job.plan.starts.size and self._over.is_set():
            verdict = DONE
        if verdict != RUNNING:
            self._job = None  # and the memory of its batch, which may be freed before the channel is used again
        return Outcome(verdict, num_done, read, number)

    def close(self) -> None:
        """Stop threads from starting to copy, and wait for those that are copying."""
        self._shared[cpu.STOP] = 1
        while self._shared[cpu.COPYING]:
            time.sleep(1e-5)
        self._job = None


def _work(tasks: Tasks, slot_bytes: int) -> None:
    buffer = aligned_bytes(slot_bytes)
    while (channel := tasks.get()) is not None:
        channel.work(buffer)
        del channel


def _end_all(tasks: Tasks, num_threads: int) -> None:
    with contextlib.suppress(RuntimeError):
        for _ in range(num_threads):
            tasks.put(None)
