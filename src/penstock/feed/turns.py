"""Turns: work that several threads do in the order of the batches.

In: the number of a batch, counted from the first of the iterator. Invariant: number n has its turn after all before it have passed
theirs on, whether they succeeded, failed or never came to it; so nobody waits for a batch that is over. A batch may hold its turn for long:
the first one while the window fills. That is reported, and waited for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
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

    def skip(self, number: int) -> None:
        """The batch is over, whether it had its turn or not. Harmless when repeated."""
        with self._changed:
            if number >= self._next:
                self._over.add(number)
            while self._next in self._over:
                self._over.remove(self._next)
                self._next += 1
            self._changed.notify_all()
