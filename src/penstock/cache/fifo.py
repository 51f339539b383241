"""First in, first out (BGL 3.2.1)."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import Policy
from penstock.kernels.cache_fifo import cpu as kernels
from penstock.kernels.cache_lookup.cpu import count_anew

MAX_NUMBER = (1 << 31) - 1
"""Most insertions before they are renumbered."""


class FIFO(Policy):
    """Every miss is inserted, and the oldest row is evicted. Takes 4 bytes per node, none per row."""

    name = "fifo"

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._cursor = np.zeros(2, dtype=np.int64)

    @property
    def slots(self) -> np.ndarray:
        """Slot of each resident node; negative for other nodes."""
        found = np.full(self.num_nodes, -1, dtype=np.int32)
        if self.num_slots:
            kernels.look_up_all(self._directory, self.num_slots, self._cursor, found)
        return found

    def _fill(self, ids: np.ndarray) -> None:
        self._directory[ids] = np.arange(ids.size)[::-1]
        self._cursor[kernels.COME] = ids.size

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        gone = int(self._cursor[kernels.COME]) - self.num_slots
        if gone > 0 and self._cursor[kernels.COME] + ids.size > MAX_NUMBER:
            count_anew(self._directory, gone)
            self._cursor[kernels.COME] -= gone
        return kernels.access(ids, self._directory, self.num_slots, self._cursor, hit_slots, inserted, into)
