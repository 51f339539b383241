"""Rows behind a mapping: a tier whose rows are stored in another order than that of their numbers.

In: the usual row numbers. Out: their rows. Invariant: equals the tier below with its rows in the usual order. It has no counts of its own:
reads are passed to the tier below, whose statistics and name it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.store.tiers.tier import Read, Tier, TierStats, check_rows


class PackedTier:
    """Rows of another tier, by the usual numbers.

    Args:
        tier: has the rows in their stored order.
        rows: int32 or int64[num_rows]: where row i is in `tier`. Kept without a copy, so it should be in memory.
    Attributes:
        tier: the tier below.
    """

    def __init__(self, tier: Tier, rows: np.ndarray) -> None:
        if rows.ndim != 1 or rows.dtype.kind != "i" or rows.size != tier.num_rows:
            raise InputError(f"packed {tier.name}: a mapping is one row for each of {tier.num_rows}, got {rows.dtype} {list(rows.shape)}")
        if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= tier.num_rows):
            raise InputError(f"packed {tier.name}: the mapping leads out of the {tier.num_rows} rows: from {rows.min()} to {rows.max()}")
        self.name = f"packed {tier.name}"
        self.device = tier.device
        self.num_rows = tier.num_rows
        self.row_bytes = tier.row_bytes
        self.tier, self._rows = tier, rows  # not called `slow`: reads around a cache must not go around the mapping

    @property
    def resident_bytes(self) -> int:
        """Memory of the mapping and of the tier below."""
        return self._rows.nbytes + self.tier.resident_bytes

    def most_bytes(self, num_readers: int) -> int:
        """Return the most that `resident_bytes` may become with `num_readers` reading threads."""
        beneath: Any = self.tier
        return self._rows.nbytes + beneath.most_bytes(num_readers)

    @property
    def stats(self) -> TierStats:
        """Counts of the tier below."""
        return self.tier.stats

    def describe(self) -> str:
        """Describe how the rows are read, in a few words."""
        beneath: Any = getattr(self.tier, "describe", lambda: self.tier.name)
        return f"{beneath()}, rows packed"

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read."""
        check_rows(self, rows)
        return self.tier.submit(self._rows[rows].astype(np.int64, copy=False), outs, places)
