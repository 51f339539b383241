"""Least recently used."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import Policy, make_table
from penstock.kernels.cache_lru import cpu as kernels


class LRU(Policy):
    """Every miss is inserted, and the least recently used row is evicted. Takes 8 bytes per node and 16 per row."""

    name = "lru"
    node_numbers = 2
    most_rows = (1 << 31) // kernels.LOG_ENTRIES  # places in the log are int32

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._log = make_table(kernels.LOG_ENTRIES * self.num_slots, np.int32)
        self._cursor = np.zeros(6, dtype=np.int64)

    @property
    def is_squeezed(self) -> bool:
        """Whether outdated entries are being removed from the log."""
        return bool(self._cursor[kernels.IS_SQUEEZED])

    def _fill(self, ids: np.ndarray) -> None:
        super()._fill(ids)
        self._log[: ids.size] = ids[::-1]
        self._directory[2 * ids + 1] = np.arange(ids.size)[::-1]
        self._cursor[[kernels.REST, kernels.USED]] = ids.size

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        return kernels.access(ids, self._directory, self._log, self.num_slots, self._cursor, hit_slots, inserted, into)
