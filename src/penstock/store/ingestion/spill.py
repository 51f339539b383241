"""Spilling edges to disk, sorted coarsely: one scratch file per column, with a region for each bucket.

In: records in input order, and the number of records in each bucket (a range of destinations). Out: the records bucket by bucket, in input
order within each. Invariant: every record is written once, at an offset known beforehand; the scratch files have no name, so that they do
not outlive the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from penstock.kernels.placement import cpu as kernels
from penstock.store.files import Scratch
from penstock.store.ingestion.histogram import DegreeHistogram
from penstock.store.ingestion.place import Columns, RecordColumn, Records, start_positions

KEYS = "keys"
MAX_BUCKET_KEYS = 1 << 32
"""Most keys of a bucket: keys relative to their bucket are uint32."""
_GUESS_CELLS = 1 << 16


@dataclass(frozen=True, slots=True)
class Buckets:
    """Consecutive ranges of keys.

    Attributes:
        bounds: int64[num_buckets + 1], keys; bucket b is [bounds[b], bounds[b + 1]).
        starts: int64[num_buckets + 1]; bucket b has the records starts[b]:starts[b + 1] of the spill.
    """

    bounds: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return self.bounds.size - 1


def plan_buckets(histogram: DegreeHistogram, record_bytes: int, bucket_bytes: int) -> Buckets:
    """Cut the keys into as few buckets as possible; each takes 8 bytes per key and `record_bytes` per record, at most `bucket_bytes`.

    A cell of the histogram that is larger than that becomes a bucket of its own. The histogram is overwritten; twice as much memory is
    allocated beside it.
    """
    shift, num_keys = histogram.shift, histogram.num_keys
    records, histogram.counts = histogram.counts, np.empty(0, dtype=np.int64)
    np.cumsum(records, out=records)
    cost = np.minimum(np.arange(1, records.size + 1, dtype=np.int64) << shift, num_keys)
    cost *= 8
    cost += records * record_bytes
    ends, spent_bytes = [0], 0
    while ends[-1] < records.size:
        by_bytes = np.searchsorted(cost, spent_bytes + bucket_bytes, side="right")
        by_keys = ends[-1] + (MAX_BUCKET_KEYS >> shift)
        ends.append(min(records.size, max(ends[-1] + 1, int(min(by_bytes, by_keys)))))
        spent_bytes = int(cost[ends[-1] - 1])
    cells = np.array(ends)
    return Buckets(np.minimum(cells << shift, num_keys), np.append(0, records[cells[1:] - 1]))


class Spill:
    """Scratch files for records: one per column, and one for the keys."""

    def __init__(self, scratch: Scratch, columns: Columns) -> None:
        self._columns = {KEYS: RecordColumn("uint32"), **columns}
        self._files = {name: scratch.file() for name in self._columns}

    def close(self) -> None:
        """Close the files, which frees their disk space."""
        for file in self._files.values():
            file.close()

    def write(self, name: str, first: int, rows: np.ndarray) -> None:
        """Write rows of a column from record `first` on."""
        self._files[name].write(rows, first * self._columns[name].row_bytes)

    def read(self, name: str, first: int, count: int, *, is_last_use: bool = True) -> np.ndarray:
        """Read rows of a column."""
        column = self._columns[name]
        return self._files[name].read(column.empty(count), first * column.row_bytes, forget=is_last_use)

    def read_keys(self, first: int, end: int, max_records: int) -> Iterator[np.ndarray]:
        """Yield the keys of records first:end, in pieces, for counting them."""
        for at in range(first, end, max_records):
            yield self.read(KEYS, at, min(max_records, end - at), is_last_use=False)

    def read_records(self, first: int, end: int, max_records: int) -> Iterator[Records]:
        """Yield records first:end, in pieces."""
        for at in range(first, end, max_records):
            rows = {name: self.read(name, at, min(max_records, end - at)) for name in self._columns}
            yield Records(rows.pop(KEYS), rows)


def spill_records(pieces: Iterable[Records], buckets: Buckets, spill: Spill) -> None:
    """Write every record to the region of its bucket, with its key relative to the bucket."""
    num_buckets, next_record = len(buckets), buckets.starts[:-1].copy()
    shift = max(0, int(buckets.bounds[-1] - 1).bit_length() - _GUESS_CELLS.bit_length() + 1)
    guess = np.searchsorted(buckets.bounds[1:], np.arange(_GUESS_CELLS, dtype=np.int64) << shift, side="right")
    guess = np.minimum(guess, num_buckets - 1).astype(np.uint32)
    buffers: dict[str, np.ndarray] = {}
    for piece in pieces:
        size = piece.keys.size
        if not buffers or buffers["positions"].size < size:
            buffers = {name: np.empty(size, dtype=np.uint32) for name in ("bucket", "local")}
            buffers["positions"] = np.empty(size, dtype=np.int64)
        of_bucket, local, positions = (buffers[name][:size] for name in ("bucket", "local", "positions"))
        counts = np.zeros(num_buckets, dtype=np.int64)
        kernels.assign_buckets(piece.keys, buckets.bounds, guess, shift, counts, of_bucket, local)
        first = counts.copy()
        start_positions(first)
        kernels.take_positions(of_bucket, first, positions)
        hit = np.flatnonzero(counts)
        for name, rows in {KEYS: local, **piece.columns}.items():
            together = np.empty_like(rows)
            kernels.scatter_rows(rows, positions, together)
            for bucket in hit:
                end = first[bucket]
                spill.write(name, int(next_record[bucket]), together[end - counts[bucket] : end])
        next_record += counts
