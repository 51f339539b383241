"""Records -> in-neighbour lists, in memory, by counting.

In: the edges of a range of destinations, in input order, and how many end at each destination. Out: the lists and every column, in list
order. Invariant: each list keeps the order of the input; each record is read once and written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from penstock.kernels.duplicates import cpu as duplicate_kernels
from penstock.kernels.placement import cpu as kernels
from penstock.store.format import DTYPES, row_bytes
from penstock.store.ingestion.prefetch import prefetch

INDICES = "indices"
"""Name of the column that holds the source nodes."""


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """One column of the records: logical dtype and row shape."""

    dtype: str
    row_shape: tuple[int, ...] = ()

    @property
    def storage(self) -> np.dtype:
        """The NumPy dtype in which it is stored."""
        return DTYPES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return row_bytes(self.storage, self.row_shape)

    def empty(self, num_rows: int) -> np.ndarray:
        """Return an uninitialised array of `num_rows` rows."""
        return np.empty((num_rows, *self.row_shape), dtype=self.storage)


Columns = dict[str, RecordColumn]


@dataclass(slots=True)
class Records:
    """Consecutive edges.

    Attributes:
        keys: int64 or uint32[n], destinations relative to the first of the range.
        columns: name -> array[n, *row_shape], C-contiguous, in storage dtype.
    """

    keys: np.ndarray
    columns: dict[str, np.ndarray]


@dataclass(slots=True)
class PlacedLists:
    """Finished lists of consecutive destinations.

    Attributes:
        ends: int64[num_keys], where each list ends in the columns.
        columns: name -> array[ends[-1], *row_shape].
    """

    ends: np.ndarray
    columns: dict[str, np.ndarray]


def place_records(pieces: Iterable[Records], counts: np.ndarray, columns: Columns, *, on_two_threads: bool = False) -> PlacedLists:
    """Place all records of a range.

    Args:
        pieces: the records in input order.
        counts: int64[num_keys], number of records of each key; overwritten.
        columns: of a record.
        on_two_threads: compute the positions of the next piece while the columns of this one are moved.
    """
    cursor = counts
    num_records = start_positions(cursor)
    out = {name: column.empty(num_records) for name, column in columns.items()}
    with_positions = _take_positions(pieces, cursor)
    for piece, positions in prefetch(with_positions) if on_two_threads else with_positions:
        for name, rows in piece.columns.items():
            kernels.scatter_rows(rows, positions, out[name])
    return PlacedLists(cursor, out)


def _take_positions(pieces: Iterable[Records], cursor: np.ndarray) -> Iterator[tuple[Records, np.ndarray]]:
    for piece in pieces:
        positions = np.empty(piece.keys.size, dtype=np.int64)
        kernels.take_positions(piece.keys, cursor, positions)
        yield piece, positions


def start_positions(counts: np.ndarray) -> int:
    """Replace counts, in place, by the position where each key's records start; returns the sum of the counts."""
    if counts.size == 0:
        return 0
    last = int(counts[-1])
    np.cumsum(counts[:-1], out=counts[1:])
    counts[0] = 0
    return int(counts[-1]) + last


def drop_repeats(lists: PlacedLists, bitmap: np.ndarray) -> PlacedLists:
    """Keep the first of equal (source, destination) pairs.

    Args:
        lists: modified in place.
        bitmap: uint64[ceil(num_src / 64)], zeros; zeros again afterwards.
    """
    keep = np.empty(lists.columns[INDICES].size, dtype=np.uint8)
    duplicate_kernels.mark_first(lists.ends, lists.columns[INDICES], bitmap, keep)
    if lists.ends.size and lists.ends[-1] < keep.size:
        lists.columns = {name: kernels.compact_rows(rows, keep) for name, rows in lists.columns.items()}
    return lists
