"""How many edges end in each range of destinations: exact degrees if they fit in memory, else counts of coarser ranges.

In: destinations, chunk by chunk; the number of nodes may be unknown. Out: counts per cell of 2**shift nodes. Invariant: never more than
`max_cells` cells; when ids need more, neighbouring cells are added together.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.placement import cpu as kernels


class DegreeHistogram:
    """Counts of keys.

    Args:
        num_keys: keys lie in [0, num_keys); None if that is not known yet.
        max_cells: at least 2.
    Attributes:
        num_keys: as given, or the largest key seen plus one.
        num_records: number of keys counted.
        shift: cell c counts keys in [c << shift, (c + 1) << shift).
        counts: int64[num_cells].
    """

    def __init__(self, num_keys: int | None, max_cells: int) -> None:
        self._max_cells, self._is_open = max(2, max_cells), num_keys is None
        self.num_keys, self.num_records, self.shift = num_keys or 0, 0, 0
        while self._cells_for(self.num_keys) > self._max_cells:
            self.shift += 1
        self.counts = np.zeros(self._cells_for(self.num_keys), dtype=np.int64)

    def _cells_for(self, num_keys: int) -> int:
        return -(-num_keys >> self.shift)

    @property
    def is_exact(self) -> bool:
        """Whether a cell is one node."""
        return self.shift == 0

    def add(self, keys: np.ndarray, largest: int) -> None:
        """Count keys: int64 or uint32[n], not negative, none above `largest`."""
        if keys.size == 0:
            return
        if self._is_open and largest >= self.num_keys:
            self._grow(largest + 1)
        kernels.count_keys(keys, self.shift, self.counts)
        self.num_records += keys.size

    def _grow(self, num_keys: int) -> None:
        self.num_keys = num_keys
        self.coarsen(self._max_cells)
        needed = self._cells_for(num_keys)
        if needed > self.counts.size:
            grown = np.zeros(min(self._max_cells, max(needed, 2 * self.counts.size)), dtype=np.int64)
            grown[: self.counts.size] = self.counts
            self.counts = grown

    def coarsen(self, max_cells: int) -> None:
        """Add neighbouring cells together until at most `max_cells` (or two) are left, for work that needs a multiple of their memory."""
        while self._cells_for(self.num_keys) > max(2, max_cells):
            even, odd = self.counts[0::2], self.counts[1::2]
            folded = even.copy()
            folded[: odd.size] += odd
            self.counts, self.shift = folded, self.shift + 1

    def finish(self) -> None:
        """Cut the counts to the number of keys."""
        self.counts = self.counts[: self._cells_for(self.num_keys)]
