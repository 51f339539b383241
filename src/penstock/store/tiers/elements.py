"""A tier of single numbers that behaves like a vector: code that reads a few elements of an array can use it unchanged.

In: positions, or a slice. Out: the elements, read when they are asked for. Invariant: equal to indexing the array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.store.tiers.tier import Tier

PIECE = 1 << 20
"""Elements of a slice that are read at a time."""


class Elements:
    """A read-only vector over a tier.

    Args:
        tier: of one field whose rows are single elements.
        dtype: of an element.
    """

    def __init__(self, tier: Tier, dtype: Any) -> None:
        self._tier, self.dtype, self.size = tier, np.dtype(dtype), tier.num_rows
        self.shape = (self.size,)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: slice | np.ndarray) -> np.ndarray:
        if isinstance(at, np.ndarray):
            return self._read(at)
        rows = range(self.size)[at]
        found = np.empty(len(rows), self.dtype)
        for first in range(0, len(rows), PIECE):
            piece = rows[first : first + PIECE]
            found[first : first + PIECE] = self._read(np.arange(piece.start, piece.stop, piece.step))
        return found

    def _read(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty(rows.size, self.dtype)
        self._tier.submit(rows, [found.view(np.uint8)], np.arange(rows.size)).wait()
        return found
