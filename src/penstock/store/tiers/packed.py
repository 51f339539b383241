"""Rows behind a mapping: a tier whose rows lie in another order than their numbers say.

In: row numbers as everybody knows them. Out: their rows. Invariant: equals the tier beneath with its rows put back into place. It counts
nothing of its own: what is asked of it is asked of the tier beneath, whose statistics and name it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.store.tiers.tier import Read, Tier, TierStats, check_rows


class PackedTier:
    """Rows of another tier by other numbers.

    Args:
        tier: where the rows are.
        rows: int32 or int64[num_rows]: where row i is in `tier`; kept as it is, so give it in memory.
    Attributes:
        tier: see above.
    """

    def __init__(self, tier: Tier, rows: np.ndarray) -> None:
        if rows.ndim != 1 or rows.dtype.kind != "i" or rows.size != tier.num_rows:
            raise InputError(f"packed {tier.name}: a mapping is one row for each of {tier.num_rows}, got {rows.dtype} {list(rows.shape)}")
        if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= tier.num_rows):
            raise InputError(f"packed {tier.name}: the mapping leads out of the {tier.num_rows} rows: from {rows.min()} to {rows.max()}")
        self.name, self.device, self.num_rows, self.row_bytes = f"packed {tier.name}", tier.device, tier.num_rows, tier.row_bytes
        self.tier, self._rows = tier, rows  # not `slow`: whoever reads around a cache must not read around the mapping

    @property
    def resident_bytes(self) -> int:
        """The mapping, and what the tier beneath takes."""
        return self._rows.nbytes + self.tier.resident_bytes

    def most_bytes(self, num_readers: int) -> int:
        """Return the most that `resident_bytes` may become with `num_readers` reading threads."""
        beneath: Any = self.tier
        return self._rows.nbytes + beneath.most_bytes(num_readers)

    @property
    def stats(self) -> TierStats:
        """Counts of the tier beneath."""
        return self.tier.stats

    def describe(self) -> str:
        """Describe how the rows are read, in a few words."""
        beneath: Any = getattr(self.tier, "describe", lambda: self.tier.name)
        return f"{beneath()}, rows packed"

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read."""
        check_rows(self, rows)
        return self.tier.submit(self._rows[rows].astype(np.int64, copy=False), outs, places)
