"""Batches made ahead by threads, delivered in order.

In: a function from a batch's place to the batch, and the places. Out: an iterator. Invariants: at most `max_in_flight` batches are in the
making or waiting at any time, or one more once the caller has dropped the batch before; the first exception is raised in the caller's
thread in place of its batch; dropping the iterator at any moment stops the work after the batches in the making.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty
from typing import Any, Generic, TypeVar

from penstock.errors import PipelineError
from penstock.threads import Pending, Threads, are_ending

logger = logging.getLogger("penstock")

P = TypeVar("P")
T = TypeVar("T")
_PATIENCE_S = 60.0
"""How often a wait that goes on is reported."""


class OrderedAhead(Generic[P, T]):
    """Results of `make(place)` in the order of the places, made ahead on threads.

    Args:
        make: called on the threads; must be safe to call from several at once.
        places: of the batches, in order.
        workers: the threads.
        max_in_flight: batches in the making or waiting, at most.
        is_first_alone: begin no other batch before the first is there.
        is_given_up: asked at each `next`: is the memory of the batch delivered last free again? If so, one more batch is begun.
        skipped: called, on a thread, with each place that was handed to a thread and will not be made.
        timeout_s: raise when a batch takes longer; 0 waits as long as its thread lives.
        name: place -> the number of its batch, for messages.
    """

    def __init__(
        self,
        make: Callable[[P], T],
        places: Iterator[P],
        workers: Threads,
        max_in_flight: int,
        timeout_s: float = 0.0,
        *,
        is_first_alone: bool = False,
        is_given_up: Callable[[], bool] | None = None,
        skipped: Callable[[P], object] = lambda place: None,
        name: Callable[[P], Any] = lambda place: place,
    ) -> None:
        self._making = _Making(make, skipped, name)
        self._places = places
        self._workers = workers
        self._timeout_s = timeout_s
        self._pending: deque[tuple[P, Pending[T]]] = deque()
        self._name = name
        self._max_in_flight, self._room = max_in_flight, 1 if is_first_alone else max_in_flight
        self._is_given_up, self.wait_s, self._pid = is_given_up, 0.0, os.getpid()
        weakref.finalize(self, self._making.end)

    def __iter__(self) -> OrderedAhead[P, T]:
        return self

    def __next__(self) -> T:
        if self._pid != os.getpid():
            raise PipelineError(
                "this iterator belongs to the process that was forked, and its threads are not here: begin one, iter(loader)"
            )
        try:
            self._fill(self._room + (self._is_given_up is not None and self._is_given_up()))
            if not self._pending:
                raise StopIteration
            started = time.perf_counter()
            result = self._await(*self._pending[0])
            self.wait_s += time.perf_counter() - started
            self._pending.popleft()
            self._room = self._max_in_flight
            self._fill(self._room)
        except BaseException:
            self.close()
            raise
        return result

    def close(self) -> None:
        """Give up everything that is not yet delivered."""
        self._places = iter(())
        self._making.end()
        self._pending.clear()

    def _fill(self, room: int) -> None:
        while len(self._pending) < room:
            place = next(self._places, None)
            if place is None:
                return
            self._pending.append((place, self._workers.submit(partial(self._making.make, place))))

    def _await(self, place: P, pending: Pending[T]) -> T:
        waited_s = 0.0
        while True:
            patience_s = min(_PATIENCE_S, self._timeout_s - waited_s) if self._timeout_s else _PATIENCE_S
            try:
                return pending.result(patience_s)
            except Empty:
                waited_s += patience_s
                index = self._name(place)
                if self._timeout_s and waited_s >= self._timeout_s:
                    raise PipelineError(
                        f"batch {index} was not ready after {waited_s:.3g} s (timeout={self._timeout_s:g})", stage="wait", batch=index
                    ) from None
                logger.warning("still waiting for batch %d after %.0f s", index, waited_s)


class _Making(Generic[P, T]):
    """What the threads do, without a reference to the iterator, which may be dropped. Each place begun is made or skipped, in order."""

    def __init__(self, make: Callable[[P], T], skipped: Callable[[P], object], name: Callable[[P], Any]) -> None:
        self._make = make
        self._skipped = skipped
        self._name = name
        self._is_over = False

    def make(self, place: P) -> T:
        """Make the batch, on a thread; or skip it, where nobody waits any more."""
        if self._is_over or are_ending():
            self._skipped(place)
            raise PipelineError("nobody waits for it any more", stage="wait", batch=self._name(place))
        return self._make(place)

    def end(self) -> None:
        """From now on, skip."""
        self._is_over = True
