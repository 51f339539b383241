"""S3-FIFO (Yang et al., SOSP'23)."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import Policy, make_table, queue_entries
from penstock.kernels.cache_s3fifo import cpu as kernels
from penstock.kernels.cache_s3fifo.reference import share_out

MAX_MARK = (1 << 31) - 4
"""Most rows that may have left the small queue before the marks in the directory are renewed."""


class S3FIFO(Policy):
    """New rows enter a small queue, a tenth of the cache; those hit twice there move to the main queue, which spares rows that are hit.

    Ids that left the small queue recently enter the main queue directly. The directory remembers as many of them as the main queue has
    rows. Takes 4 bytes per node and 17 per row.
    """

    name = "s3-fifo"

    def __init__(self, num_nodes: int, capacity: int) -> None:
        super().__init__(num_nodes, capacity)
        self._small_size, self._ghost_size = share_out(self.num_slots)
        self._hits = make_table(self.num_slots, np.uint8)
        self._small, self._main = make_table(self.num_slots, np.int64), make_table(self.num_slots, np.int64)
        self._cursor = np.zeros(6, dtype=np.int64)

    def _fill(self, ids: np.ndarray) -> None:
        super()._fill(ids)
        main, small = ids[: self._ghost_size], ids[self._ghost_size :]
        self._main[: main.size], self._small[: small.size] = queue_entries(main), queue_entries(small, main.size)
        self._cursor[[kernels.MAIN_LENGTH, kernels.SMALL_LENGTH, kernels.USED]] = main.size, small.size, ids.size

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        excess = int(self._cursor[kernels.LEFT]) - self._ghost_size
        if excess > 0 and self._cursor[kernels.LEFT] + ids.size > MAX_MARK:
            kernels.renew_marks(self._directory, excess)
            self._cursor[kernels.LEFT] -= excess
        return kernels.access(
            ids, self._directory, self._hits, self._small, self._main, self._small_size, self._cursor, hit_slots, inserted, into
        )
