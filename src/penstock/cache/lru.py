"""Least recently used."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import BasePolicy
from penstock.kernels.cache_lru import cpu as kernels


class LRU(BasePolicy):
    """Every miss comes in, the row not asked for during the longest time leaves. 4 bytes a node and 20 a row."""

    name = "lru"

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._rows = np.zeros(2 * self.num_slots, dtype=np.int32)
        self._log = np.zeros(kernels.LOG_ENTRIES * self.num_slots, dtype=np.int32)
        self._cursor = np.zeros(3, dtype=np.int64)

    def _fill(self, ids: np.ndarray) -> None:
        count = ids.size
        self._rows[0 : 2 * count : 2] = ids
        self._rows[1 : 2 * count : 2] = self._log[:count] = np.arange(count)[::-1]
        self._cursor[[kernels.LENGTH, kernels.USED]] = count

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        return kernels.access(ids, self.slots, self._rows, self._log, self._cursor, hit_slots, inserted, into)
