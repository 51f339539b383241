"""First in, first out (BGL 3.2.1)."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import BasePolicy
from penstock.kernels.cache_fifo import cpu as kernels


class FIFO(BasePolicy):
    """Every miss comes in, the oldest row leaves. 4 bytes a node and 4 a row."""

    name = "fifo"

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._owners = np.full(self.num_slots, -1, dtype=np.int32)
        self._cursor = np.array([self.num_slots - 1], dtype=np.int64)

    def _fill(self, ids: np.ndarray) -> None:
        self._owners[: ids.size] = ids

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        return kernels.access(ids, self.slots, self._owners, self._cursor, hit_slots, inserted, into)
