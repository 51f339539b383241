"""Turns: work that several threads do in the order of the batches.

In: the number of a batch, counted from the first of the iterator. Invariant: number n has its turn when all numbers before it are over,
whether they succeeded, failed or were skipped; so nobody waits for a batch that will not come. A batch may hold its turn for long, as the
first does while the window fills: that is logged, and waited for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("penstock")

_PATIENCE_S = 60.0
"""How often a wait that goes on is reported."""


class Turns:
    """A counter that threads wait for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = 0
        self._over: set[int] = set()

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Wait for the turn of `number`, hold it within the block, and pass it on."""
        try:
            with self._changed:
                while self._next != number:
                    if not self._changed.wait(_PATIENCE_S) and self._next != number:
                        logger.warning("batch %d of this pass still waits for batch %d, whose turn it is", number, self._next)
            yield
        finally:
            self.skip(number)

    def near(self, number: int, most: Callable[[], int]) -> None:
        """Wait until `number` is one of the first `most()` that are not over. It may change at each end of a turn."""
        with self._changed:
            while number >= self._next + most():
                self._changed.wait()

    def skip(self, number: int) -> None:
        """End the turn of `number`, whether it has had it or not. May be called again."""
        with self._changed:
            if number >= self._next:
                self._over.add(number)
            while self._next in self._over:
                self._over.remove(self._next)
                self._next += 1
            self._changed.notify_all()
