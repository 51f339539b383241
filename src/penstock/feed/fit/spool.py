"""What rows cost that are read through a spool, in requests of the disk: those of many batches lie near each other, and bytes cost too.

In: visits of a short profile, and what the disk is like. Out: requests a batch, with all that takes as long as so many. Pure functions.
A request and a hole that is just worth reading along take the same time, so bytes are counted as so many holes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.gather.spool_file import piece_rows_of
from penstock.gather.spooled import NUM_BUFFERS, PIECE_BYTES
from penstock.store.tiers import DiskOptions

GROUPS = (4, 8, 16, 24, 32, 48, 64)
"""Batches that are spooled together; no more than the profile had, which is as far ahead as it tells of."""
MOST_BYTES = DiskOptions().max_read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledRows:
    """Rows of one type, and their spool.

    Attributes:
        num_rows, row_bytes: of the file.
        gap_bytes: a hole that takes as long as a request.
        half_bytes: of the spool, for one group.
    """

    num_rows: int
    row_bytes: int
    gap_bytes: int
    half_bytes: int

    def requests(self, group: int, missed: float, distinct: float) -> float:
        """Per batch.

        Args:
            group: batches that are spooled together.
            missed: rows that each wants and no cache has. distinct: of all of them.
        """
        if missed <= 0:
            return 0.0
        alone = missed * (1 + self.row_bytes / self._hole)
        share = min(1.0, self.half_bytes / (group * missed * self.row_bytes))
        num_pieces = share * group * missed * self.row_bytes / PIECE_BYTES
        written_and_read = 2 * missed * self.row_bytes * (1 / self._hole + 1 / MOST_BYTES) + num_pieces
        return share * (self.in_order(distinct) / group + written_and_read) + (1 - share) * alone

    def in_order(self, wanted: float) -> float:
        """Of a read of so many rows that lie anywhere in the file, in its order."""
        if wanted <= 0:
            return 0.0
        density = min(1.0, wanted / self.num_rows)
        other, along = 1 - density, self._hole // max(self.row_bytes, 1)  # holes have j rows with probability density * other^j
        is_far = other ** (along + 1)
        between = other * (1 - (along + 1) * other**along + along * is_far) / density
        num_bytes = wanted * (1 + between) * self.row_bytes
        return max(wanted * is_far, num_bytes / MOST_BYTES) + num_bytes / self._hole

    @property
    def _hole(self) -> int:
        return max(self.gap_bytes, 512)


def distinct_rows(visits: np.ndarray, times: float) -> float:
    """Rows to expect in `times` as many batches as `visits` were counted in, 0 to 2 times.

    Good and Toulmin 1956. Up to once it is what a part of the batches would have seen; beyond, a guess from the rows seen once, twice, ...,
    whose terms take turns in sign: no less than was seen, and no more than that for each time.
    """
    counts = np.bincount(visits)
    guess, seen = float(counts @ (1 - (1 - times) ** np.arange(counts.size))), float(counts[1:].sum())
    return min(max(guess, seen), times * seen) if times > 1 else guess


def spool_bytes(row_bytes: Sequence[int], group: int, num_readers: int, bytes_per_row: int) -> int:
    """What a spool takes at most: pieces and the plans of reading them, the buffers of who makes it and of who reads it.

    Args:
        row_bytes: of each field. group: batches. num_readers: threads. bytes_per_row: of the plan of a read.
    """
    rows, options = piece_rows_of(row_bytes, PIECE_BYTES, 4 * group), DiskOptions()
    channel = int(1.25 * options.depth * options.max_read_bytes)
    return NUM_BUFFERS * rows * sum(row_bytes) + 2 * rows * bytes_per_row + (num_readers + 1) * channel
