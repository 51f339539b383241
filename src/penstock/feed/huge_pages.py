"""Which maps of a loader are moved into huge pages, and when: beside the batches, once it is seen that there will be many.

In: the arrays that batches are read from. Out: the same batches, bit for bit, in less time. Invariant: all that is moved takes at most
`SHARE` of the memory that is free at that moment; the topology comes first, since it is read most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np

from penstock.feed.fields import TensorRows
from penstock.feed.maker import BatchMaker
from penstock.plan import Plan
from penstock.store.huge_pages import are_available, can_move, move_to_huge_pages
from penstock.store.process_memory import free_bytes

SHARE = 1 / 8
"""Of the free memory: other processes on the machine may do the same."""
AFTER_BATCHES = 8
"""Batches delivered before anything is moved, so that whoever looks at a few batches does not pay for it."""


class HugePages:
    """Moves maps, in a thread that ends with its work, or by `stop`.

    Args:
        arrays: returns the arrays that batches are read from, the most important first.
    Attributes:
        num_bytes: bytes moved so far.
        is_moving: whether the thread is at work.
    """

    def __init__(self, arrays: Callable[[], Iterable[np.ndarray]]) -> None:
        self.num_bytes = 0
        self.is_moving = False
        self._num_batches = 0
        self._arrays = arrays
        self._is_over = threading.Event()

    def stop(self) -> None:
        """Move nothing more."""
        self._is_over.set()

    def batch_delivered(self) -> None:
        """Count a batch; starts the thread at batch number `AFTER_BATCHES`."""
        self._num_batches += 1
        if self._num_batches == AFTER_BATCHES and are_available():
            arrays = [array for array in self._arrays() if can_move(array)]
            if arrays:
                self.is_moving = True
                threading.Thread(target=self._move, args=(arrays,), name="penstock-huge-pages", daemon=True).start()

    def _move(self, arrays: list[np.ndarray]) -> None:
        try:
            left = free_bytes() * SHARE
            for array in arrays:
                if array.nbytes <= left:
                    left -= array.nbytes
                    self.num_bytes += move_to_huge_pages(array, lambda: not self._is_over.is_set())
        finally:
            self.is_moving = False


def read_at_random(plan: Plan, maker: BatchMaker) -> list[np.ndarray]:
    """The arrays that a loader with this plan reads as they are: topology, then fields of nodes and edges, unless a device reads them, and
    what its process has of a partition."""
    arrays: list[np.ndarray | None] = []
    source = maker.source
    if plan.has_plain_topology and maker.device_sampler is None:
        arrays += [array for csc in source.graph.adjacency.values() for array in (csc.indices, csc.indptr, csc.edge_ids)]
    if plan.has_plain_features and maker.delivery.device is None:
        arrays += [field.source.array for part in source.fields() for field in part if isinstance(field.source, TensorRows)]
    return [array for array in (*arrays, *source.own_rows()) if array is not None]
