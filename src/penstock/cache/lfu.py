"""Least frequently used."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import Policy
from penstock.kernels.cache_lfu import cpu as kernels
from penstock.kernels.cache_lfu.reference import MOST


class LFU(Policy):
    """Every miss is inserted; the row with the fewest accesses since its insertion is evicted, among equals the least recently used.

    Counts stop at 255 and are forgotten on eviction. Initial rows start with one access each, the best one as the most recent. Takes 4
    bytes per node and 16 per row.
    """

    name = "lfu"

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._rows = np.full((self.num_slots + MOST + 1, 4), -1, dtype=np.int32)  # no row with a node, and
        self._rows[:, 0] = self._rows[:, 1] = np.arange(len(self._rows))  # every list empty
        self._cursor = np.array([1, 0], dtype=np.int64)

    def _fill(self, ids: np.ndarray) -> None:
        super()._fill(ids)
        self._rows[: ids.size, 2], self._rows[: ids.size, 3] = ids, 1
        end = self.num_slots + 1  # list of the rows with one access: all rows, in this order from the front
        around = np.concatenate([[end], np.arange(ids.size), [end]])
        self._rows[around[1:], 0], self._rows[around[:-1], 1] = around[:-1], around[1:]
        self._cursor[1] = ids.size

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        return kernels.access(ids, self._directory, self._rows.reshape(-1), MOST, self._cursor, hit_slots, inserted, into)
