"""How many threads make batches at once: no more than help.

In: the numbers of batches, in order, and what each took of a processor. Out: when each may begin. Invariant: the first one that is not over
never waits. Python runs one thread at a time, and threads hand it to each other at every kernel. Batches that are mostly Python, small ones
of many edge types for instance, come three times as slowly by eight threads as by one. So of threads that are asked for, as many work at
once as there is work beside Python, and processors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.feed.turns import Turns
from penstock.store.process_memory import usable_cores

PYTHON_S, PYTHON_S_PER_TYPE = 150e-6, 40e-6
"""Seconds of Python that a batch takes, and for each edge type, as `bench.small_graphs` measures them."""
_NEW = 0.25
"""The weight of the last batch in what batches take."""


class Crowd:
    """Lets threads in.

    Args:
        num_threads: threads that may ask.
        num_edge_types: of the graph.
    Attributes:
        most: threads that work at once.
    """

    def __init__(self, num_threads: int, num_edge_types: int) -> None:
        self._over, self._python_s = Turns(), PYTHON_S + PYTHON_S_PER_TYPE * num_edge_types
        self._limit = self.most = min(num_threads, usable_cores())
        self._taken_s = self.most * self._python_s

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Wait until batch `number` is among the first `most` that are not over, and make it in the block."""
        try:
            self._over.near(number, lambda: self.most)
            started = time.thread_time()
            yield
            self._taken_s += _NEW * (time.thread_time() - started - self._taken_s)
            self.most = max(1, min(self._limit, int(self._taken_s / self._python_s)))  # not rounded: threads that wait take time too
        finally:
            self._over.skip(number)

    def skip(self, number: int) -> None:
        """Nobody will make this batch."""
        self._over.skip(number)
