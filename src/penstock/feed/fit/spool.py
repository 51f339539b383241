"""The cost of reading rows through a spool, in disk requests: rows of many batches are near each other, and bytes cost time too.

In: visits of a short profile, and properties of the disk. Out: the cost per batch, in units of a request. Pure functions.
A request takes as long as transferring the largest hole that is worth reading along, so bytes are converted to requests by its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.gather.spool_file import piece_rows_of
from penstock.gather.spooled import NUM_BUFFERS, PIECE_BYTES
from penstock.store.tiers import DiskOptions

GROUPS = (4, 8, 16, 24, 32, 48, 64)
"""Numbers of batches spooled together that are tried; at most as many as the profile had, since it says nothing beyond."""
MOST_BYTES = DiskOptions().max_read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledRows:
    """Rows of one type, and their spool.

    Attributes:
        num_rows, row_bytes: of the file.
        gap_bytes: size of a hole whose transfer takes as long as a request.
        half_bytes: of the spool, for one group.
    """

    num_rows: int
    row_bytes: int
    gap_bytes: int
    half_bytes: int

    def requests(self, group: int, missed: float, distinct: float) -> float:
        """Return the cost per batch, in requests.

        Args:
            group: batches that are spooled together.
            missed: rows per batch that no cache has. distinct: distinct ones among those of the group.
        """
        if missed <= 0 or not self.row_bytes:  # rows without bytes are not read
            return 0.0
        alone = missed * (1 + self.row_bytes / self._hole)
        share = min(1.0, self.half_bytes / (group * missed * self.row_bytes))
        num_pieces = share * group * missed * self.row_bytes / PIECE_BYTES
        written_and_read = 2 * missed * self.row_bytes * (1 / self._hole + 1 / MOST_BYTES) + num_pieces
        return share * (self.in_order(distinct) / group + written_and_read) + (1 - share) * alone

    def in_order(self, wanted: float) -> float:
        """Return the cost of reading `wanted` random rows in the order of the file, in requests."""
        if wanted <= 0:
            return 0.0
        density = min(1.0, wanted / self.num_rows)
        other, along = 1 - density, self._hole // max(self.row_bytes, 1)  # a hole has j rows with probability density * other^j
        is_far = other ** (along + 1)
        between = other * (1 - (along + 1) * other**along + along * is_far) / density
        num_bytes = wanted * (1 + between) * self.row_bytes
        return max(wanted * is_far, num_bytes / MOST_BYTES) + num_bytes / self._hole

    @property
    def _hole(self) -> int:
        return max(self.gap_bytes, 512)


def distinct_rows(visits: np.ndarray, times: float) -> float:
    """Return the expected distinct rows in `times` (0 to 2) as many batches as those in which `visits` were counted.

    Good and Toulmin 1956. Up to 1 it is what a part of the batches would have seen; beyond, an extrapolation from the numbers of rows seen
    once, twice, ..., with terms of alternating sign, limited to between what was seen and `times` as much.
    """
    counts = np.bincount(visits)
    guess, seen = float(counts @ (1 - (1 - times) ** np.arange(counts.size))), float(counts[1:].sum())
    return min(max(guess, seen), times * seen) if times > 1 else guess


def spool_bytes(row_bytes: Sequence[int], group: int, num_readers: int, bytes_per_row: int) -> int:
    """Return the most memory that a spool takes: pieces, plans of reads, and buffers for writing and reading it.

    Args:
        row_bytes: of each field. group: batches. num_readers: threads. bytes_per_row: of the plan of a read.
    """
    rows, options = piece_rows_of(row_bytes, PIECE_BYTES, 4 * group), DiskOptions()
    channel = int(1.25 * options.depth * options.max_read_bytes)
    return NUM_BUFFERS * rows * sum(row_bytes) + 2 * rows * bytes_per_row + (num_readers + 1) * channel
