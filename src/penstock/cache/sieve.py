"""SIEVE (Zhang et al., NSDI'24)."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import BasePolicy, queue_entries
from penstock.kernels.cache_sieve import cpu as kernels


class SIEVE(BasePolicy):
    """CLOCK in which new rows queue up at the end, not behind the hand: those that nobody asks for again leave early.

    4 bytes a node and 16 and a bit a row.
    """

    name = "sieve"

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._marks = np.zeros((self.num_slots + 7) // 8, dtype=np.uint8)
        self._entries = np.zeros(2 * self.num_slots, dtype=np.int64)
        self._cursor = np.zeros(5, dtype=np.int64)

    def _fill(self, ids: np.ndarray) -> None:
        self._entries[: ids.size] = queue_entries(ids)
        self._cursor[[kernels.LENGTH, kernels.USED]] = ids.size

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        return kernels.access(ids, self.slots, self._marks, self._entries, self._cursor, hit_slots, inserted, into)
