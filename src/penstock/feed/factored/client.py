"""A trainer's end of the exchange: requests samples from any thread, and waits for them.

In: a connection to the process that steers (`group.py`), and the slots. Out: samples. Invariants: no call waits for a process that is gone;
the first error, in any process, is raised by every later call.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import numpy as np

import penstock.errors
from penstock.errors import PenstockError, PipelineError
from penstock.records import Graph
from penstock.sample.factored.marks import Directories, publish
from penstock.sample.factored.messages import Ask, Begin, Broken, Do, Done, Job, Keeps, Over, Release, Taken
from penstock.sample.factored.slots import Slots

logger = logging.getLogger("penstock")

T = TypeVar("T")
_PATIENCE_S = 60.0
_ORPHAN_S = 1.0
"""Seconds in which a trainer whose parent is gone may end by itself."""


def revive(kind: str, message: str, index: int) -> Exception:
    """Return an exception that another process raised; Penstock's errors keep their type."""
    found = getattr(penstock.errors, kind, None)
    if isinstance(found, type) and issubclass(found, PenstockError) and found is not PipelineError:
        return found(message)
    return PipelineError(f"{kind} in a sampler: {message}", stage="sample", batch=index)


class Client:
    """A connection to the process that steers, for all threads of this process.

    Args:
        connection: to the process that steers.
        slots: shared memory with the samples.
        is_child: end this process if the one that steers ends.
    Attributes:
        connection, slots: see above.
    """

    def __init__(self, connection: Connection, slots: Slots, *, is_child: bool = False) -> None:
        self.connection, self.slots, self._is_child = connection, slots, is_child
        self._lock, self._waiting = threading.Lock(), dict[tuple[int, int], "Future[Any]"]()
        self._broken: Broken | None = None
        self._number, self._pid = 0, os.getpid()
        threading.Thread(target=self._receive, name="penstock-exchange", daemon=True).start()

    def begin(self, epoch: int, first: int) -> int:
        """Begin a pass over an epoch at this trainer's batch `first`. Returns the number of the pass; the pass before it gets no more
        samples."""
        with self._lock:
            self._number += 1
            self._say(Begin(self._number, epoch, first))
            return self._number

    def ask(self, number: int, index: int, train_s: float = 0.0) -> Taken | Do | Over:
        """Request batch `index` of a pass (-1: any work), and wait for the answer."""
        if self._pid != os.getpid():
            raise PipelineError(
                "this loader belongs to the process that was forked: who hears the answers is there", stage="sample", batch=index
            )
        with self._lock:
            future: Future[Any] = Future()
            self._waiting[number, index] = future
            self._say(Ask(number, index, train_s))
        waited_s = 0.0
        while True:
            try:
                return future.result(_PATIENCE_S)
            except FutureTimeoutError:
                waited_s += _PATIENCE_S
                logger.warning("still waiting for a sample of batch %d after %.0f s", index, waited_s)

    def read(self, taken: Taken, use: Callable[[np.ndarray], T]) -> T:
        """Call `use` with the bytes of a sample, then release its slot. Raises the error of the sampler if sampling failed."""
        job = taken.job
        try:
            if taken.error is not None:
                raise revive(*taken.error, job.index)
            return use(self.slots.readable(job.slot, taken.num_bytes))
        finally:
            with self._lock, contextlib.suppress(PipelineError):
                self._say(Release(job.stream, job.slot))

    def publish(self, directories: Directories, graph: Graph) -> None:
        """Tell samplers which rows the static caches here keep; call it once, before the first pass."""
        with self._lock:
            if self._broken is None:
                publish(directories, graph, self.slots, self.slots.last)
                self._say(Keeps())

    def done(self, job: Job, num_bytes: int, seconds: float, error: tuple[str, str] | None = None) -> None:
        """Report that this process sampled a batch, or failed to."""
        with self._lock:
            self._say(Done(job, num_bytes, seconds, error))

    def tell(self, message: Any) -> None:
        """Send any message; ignored if the connection is broken."""
        with self._lock, contextlib.suppress(PipelineError):
            self._say(message)

    def close(self) -> None:
        """End; raise an error in all waiting calls."""
        self.fail(Broken("the loader was closed"))

    def fail(self, broken: Broken) -> None:
        """End with an error; all waiting calls and all later requests raise it."""
        with self._lock:
            self._broken = self._broken or broken
            waiting, self._waiting = self._waiting, {}
        for (_, index), future in waiting.items():
            future.set_exception(self._error(index))

    def _say(self, message: Any) -> None:
        if self._broken is not None:
            raise self._error()
        try:
            self.connection.send(message)
        except OSError:
            raise PipelineError("the process that started the samplers and trainers is gone", stage="sample") from None

    def _error(self, index: int = -1) -> PipelineError:
        """Return the error that broke the exchange; `index`: of the requested batch, named if the error names none."""
        assert self._broken is not None
        batch = self._broken.batch if self._broken.batch is not None or index < 0 else index
        return PipelineError(self._broken.message, stage="sample", batch=batch)

    def _receive(self) -> None:
        """Pass answers to the waiting calls as they arrive, until the other end is gone."""
        while True:
            try:
                message = self.connection.recv()
            except (EOFError, OSError):
                break
            if isinstance(message, Broken):
                self.fail(message)
                continue
            asked = (message.number, -1 if isinstance(message, Do) else message.asked)
            with self._lock:
                future = self._waiting.pop(asked, None)
            if future is not None:
                future.set_result(message)
        self.fail(Broken("the process that started the samplers and trainers is gone"))
        if self._is_child:
            time.sleep(_ORPHAN_S)
            os._exit(1)
        self.connection.close()
