"""Rows of an array rewritten in another order, in bounded memory.

In: an array of a store, and the new row of each row. Out: the rows in their new order, appended to a writer. Invariant: what goes in comes
out, each row once; beside the mapping no more than `work_bytes` are held. What fits is placed in memory and read once; else each row goes
to the region of its bucket (a range of new rows that fits in memory) in a scratch file, and bucket by bucket comes back: everything is
read and written twice, always in long runs, never row by row.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.move_rows import cpu as kernels
from penstock.store.arrays import ArrayFile, ArrayWriter
from penstock.store.files import Scratch
from penstock.store.progress import Progress

BLOCK_BYTES = 4 << 20
"""Read at a time, at most; an eighth of the memory if that is less."""


def plan_bucket_rows(num_rows: int, row_bytes: int, work_bytes: int) -> int:
    """Rows of a bucket: all of them where they fit. Beside a bucket, blocks on their way take up to half of the memory."""
    return max(1, min(num_rows, work_bytes // 2 // max(1, row_bytes)))


def scratch_bytes(num_rows: int, row_bytes: int, work_bytes: int) -> int:
    """Bytes on disk that `reorder` takes beside the result."""
    return 0 if plan_bucket_rows(num_rows, row_bytes, work_bytes) == num_rows else num_rows * (row_bytes + 8)


def reorder(source: ArrayFile, rows: np.ndarray, out: ArrayWriter, scratch: Scratch, work_bytes: int, progress: Progress) -> None:
    """Append the rows of `source` to `out` in a new order.

    Args:
        source: what is read, once from front to back.
        rows: int32 or int64[num_rows], the new row of each; a permutation.
        out: of the same dtype and row shape.
        scratch: where a file is made if need be.
        work_bytes: to be held at most, beside `rows`.
        progress: told of bytes read and written.
    """
    spec = source.spec
    bucket_rows = plan_bucket_rows(rows.size, spec.row_bytes, work_bytes)
    block_bytes = max(spec.row_bytes, min(BLOCK_BYTES, work_bytes // 8))
    if bucket_rows == rows.size:
        target = np.empty(spec.shape, spec.storage_dtype)
        for first, block in source.blocks(block_bytes):
            _place(block, rows[first : first + len(block)].astype(np.int64), target)
            progress.advance(block.nbytes)
        out.append(target)
        progress.advance(target.nbytes)
        return
    spill = _Spill(scratch, spec.row_bytes, bucket_rows, rows.size)
    for first, block in source.blocks(block_bytes):
        spill.add(block, rows[first : first + len(block)])
        progress.advance(block.nbytes)
    for first in range(0, rows.size, bucket_rows):
        target = np.empty((min(bucket_rows, rows.size - first), *spec.shape[1:]), spec.storage_dtype)
        for block, places in spill.bucket(first, len(target), max(1, block_bytes // max(1, spec.row_bytes)), spec):
            _place(block, places - first, target)
        out.append(target)
        progress.advance(target.nbytes)
    spill.close()


def _place(block: np.ndarray, places: np.ndarray, target: np.ndarray) -> None:
    """target[places] = block."""
    if block.size:
        row_bytes = block.nbytes // len(block)
        flat = (each.reshape(-1).view(np.uint8) for each in (block, target))
        kernels.move_rows(next(flat), np.arange(len(block)), next(flat), places, row_bytes)


class _Spill:
    """Rows by bucket in a scratch file, and the place of each in another."""

    def __init__(self, scratch: Scratch, row_bytes: int, bucket_rows: int, num_rows: int) -> None:
        self._rows, self._places = scratch.file(), scratch.file()
        self._row_bytes, self._bucket_rows = row_bytes, bucket_rows
        self._cursor = np.arange(-(-num_rows // bucket_rows), dtype=np.int64) * bucket_rows

    def add(self, block: np.ndarray, places: np.ndarray) -> None:
        """Write each row to the region of its bucket."""
        places = places.astype(np.int64)
        buckets = places // self._bucket_rows
        order = np.argsort(buckets, kind="stable")
        block, places, buckets = block[order], places[order], buckets[order]
        starts = np.flatnonzero(np.diff(buckets, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], buckets.size], strict=True):
            at = int(self._cursor[buckets[start]])
            self._rows.write(block[start:stop], at * self._row_bytes)
            self._places.write(places[start:stop], at * 8)
            self._cursor[buckets[start]] += stop - start

    def bucket(self, first: int, num_rows: int, step: int, spec):
        """Yield (rows, places) of a bucket, some rows at a time."""
        for start in range(first, first + num_rows, step):
            count = min(step, first + num_rows - start)
            rows = np.empty((count, *spec.shape[1:]), spec.storage_dtype)
            self._rows.read(rows, start * self._row_bytes, forget=True)
            yield rows, self._places.read(np.empty(count, np.int64), start * 8, forget=True)

    def close(self) -> None:
        """Give the disk space back."""
        self._rows.close()
        self._places.close()
