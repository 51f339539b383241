"""SIEVE (Zhang et al., NSDI'24)."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import MarkingPolicy, make_table
from penstock.kernels.cache_sieve import cpu as kernels


class SIEVE(MarkingPolicy):
    """Like CLOCK, but new rows always enter at the end of the queue, not at the hand, so that rows without a second access leave early.

    Takes 4 bytes per node and 8 per row.
    """

    name = "sieve"

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._nodes = make_table(2 * self.num_slots, np.int32)
        self._cursor = np.zeros(5, dtype=np.int64)

    def _fill(self, ids: np.ndarray) -> None:
        super()._fill(ids)
        self._nodes[: ids.size] = ids[::-1]
        self._cursor[[kernels.LENGTH, kernels.USED]] = ids.size

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        return kernels.access(ids, self._directory, self._nodes, self._cursor, hit_slots, inserted, into)
