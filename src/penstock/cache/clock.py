"""CLOCK, also called second chance."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import MarkingPolicy, make_table
from penstock.kernels.cache_clock import cpu as kernels


class CLOCK(MarkingPolicy):
    """FIFO that spares a row if it was hit since it was inserted or last spared. Takes 4 bytes per node and 4 per row."""

    name = "clock"

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._owners = make_table(self.num_slots, np.int32)
        self._cursor = np.array([self.num_slots - 1, 0], dtype=np.int64)

    def _fill(self, ids: np.ndarray) -> None:
        super()._fill(ids)
        self._owners[: ids.size] = ids
        self._cursor[kernels.USED] = ids.size

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        return kernels.access(ids, self._directory, self._owners, self._cursor, hit_slots, inserted, into)
