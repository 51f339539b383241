"""Batches made ahead by threads, delivered in order.

In: a function from a batch's index to the batch, and the indices. Out: an iterator. Invariants: at most `max_in_flight` batches are made
or waiting at any time, or one more once the caller has let go of its own; the first exception arrives in the caller's
thread at the batch that raised it; dropping the iterator at any moment stops the work after the batches in the making.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Generic, TypeVar

from penstock.errors import PipelineError

logger = logging.getLogger("penstock")

T = TypeVar("T")
_PATIENCE_S = 60.0
"""How often a wait that goes on is reported."""


class Workers:
    """Threads that live as long as their owner; started at the first use and again in a forked child."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self._executor: ThreadPoolExecutor | None = None
        self._pid = 0

    def submit(self, function: Callable[[int], T], index: int) -> Future[T]:
        """Run function(index) on one of the threads."""
        if self._executor is None or self._pid != os.getpid():
            self._executor, self._pid = ThreadPoolExecutor(self.num_workers, thread_name_prefix="penstock"), os.getpid()
            weakref.finalize(self, self._executor.shutdown, wait=False, cancel_futures=True)
        return self._executor.submit(function, index)


class OrderedAhead(Generic[T]):
    """Results of `make(index)` in the order of the indices, made ahead on threads.

    Args:
        make: called on the threads; must be safe to call from several at once.
        indices: of the batches, in order.
        workers: the threads.
        max_in_flight: batches in the making or waiting, at most.
        is_first_alone: no other is begun before the first batch is there.
        is_given_up: whether the memory of the batch delivered last is free again, asked when the next is asked for: one more is begun then.
        timeout_s: raise when a batch takes longer; 0 waits as long as its thread lives.
    """

    def __init__(
        self,
        make: Callable[[int], T],
        indices: Iterator[int],
        workers: Workers,
        max_in_flight: int,
        timeout_s: float = 0.0,
        *,
        is_first_alone: bool = False,
        is_given_up: Callable[[], bool] | None = None,
    ) -> None:
        self._make, self._indices, self._workers, self._timeout_s = make, indices, workers, timeout_s
        self._pending: deque[tuple[int, Future[T]]] = deque()
        self._max_in_flight, self._room = max_in_flight, 1 if is_first_alone else max_in_flight
        self._is_given_up, self.wait_s = is_given_up, 0.0
        weakref.finalize(self, _cancel_all, self._pending)

    def __iter__(self) -> OrderedAhead[T]:
        return self

    def __next__(self) -> T:
        self._fill(self._room + (self._is_given_up is not None and self._is_given_up()))
        if not self._pending:
            raise StopIteration
        index, future = self._pending[0]
        started = time.perf_counter()
        try:
            result = self._await(index, future)
        except BaseException:
            self.close()
            raise
        self.wait_s += time.perf_counter() - started
        self._pending.popleft()
        self._room = self._max_in_flight
        self._fill(self._room)
        return result

    def close(self) -> None:
        """Give up everything that is not yet delivered."""
        self._indices = iter(())
        _cancel_all(self._pending)

    def _fill(self, room: int) -> None:
        while len(self._pending) < room:
            index = next(self._indices, None)
            if index is None:
                return
            self._pending.append((index, self._workers.submit(self._make, index)))

    def _await(self, index: int, future: Future[T]) -> T:
        waited_s = 0.0
        while True:
            patience_s = min(_PATIENCE_S, self._timeout_s - waited_s) if self._timeout_s else _PATIENCE_S
            try:
                return future.result(timeout=patience_s)
            except FutureTimeoutError:
                if future.done():  # the batch itself raised a TimeoutError
                    return future.result()
                waited_s += patience_s
                if self._timeout_s and waited_s >= self._timeout_s:
                    raise PipelineError(
                        f"batch {index} was not ready after {waited_s:.3g} s (timeout={self._timeout_s:g})", stage="wait", batch=index
                    ) from None
                logger.warning("still waiting for batch %d after %.0f s", index, waited_s)


def _cancel_all(pending: deque[tuple[int, Future[T]]]) -> None:
    for _, future in pending:
        future.cancel()
    pending.clear()
