"""Rewriting the rows of an array in another order, in bounded memory.

In: an array of a store, and the new row of each row. Out: the rows in their new order, appended to a writer. Invariants: each row is
written exactly once; beside the mapping no more than `work_bytes` are held. If the array fits, it is placed in memory and read once.
Otherwise each row is written to its bucket's region of a scratch file (a bucket is a range of new rows that fits in memory), and the
buckets are read back one by one: everything is read and written twice, always in long runs, never row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise

import numpy as np

from penstock.kernels.placement import cpu as kernels
from penstock.store.arrays import ArrayFile, ArrayWriter
from penstock.store.files import Scratch
from penstock.store.ingestion.place import RecordColumn, Records
from penstock.store.ingestion.spill import MAX_BUCKET_KEYS, Buckets, Spill, spill_records
from penstock.store.progress import Progress

BLOCK_BYTES = 4 << 20
"""Most bytes read at a time; an eighth of the memory if that is less."""
RECORD_BYTES = 24
"""Per row at work, beside the row: its new row, its bucket, its position there, and its position in the scratch file."""
_ROWS = "rows"


def plan_bucket_rows(num_rows: int, row_bytes: int, work_bytes: int) -> int:
    """Return the rows per bucket; all rows if they fit. Beside a bucket, blocks being read or written take up to half of the memory."""
    return max(1, min(num_rows, work_bytes // 2 // max(1, row_bytes), MAX_BUCKET_KEYS))


def scratch_bytes(num_rows: int, row_bytes: int, work_bytes: int) -> int:
    """Return the bytes of scratch disk space that `reorder` takes beside the result."""
    return 0 if plan_bucket_rows(num_rows, row_bytes, work_bytes) == num_rows else num_rows * (row_bytes + 4)


def reorder(source: ArrayFile, rows: np.ndarray, out: ArrayWriter, scratch: Scratch, work_bytes: int, progress: Progress) -> None:
    """Append the rows of `source` to `out` in a new order.

    Args:
        source: read once, from front to back.
        rows: int32 or int64[num_rows], the new row of each row; a permutation.
        out: of the same dtype and row shape.
        scratch: makes the scratch file, if one is needed.
        work_bytes: most memory to use, beside `rows`.
        progress: receives bytes read and written.
    """
    spec, num_rows = source.spec, rows.size
    column = RecordColumn(spec.dtype, spec.shape[1:])
    bucket_rows = plan_bucket_rows(num_rows, spec.row_bytes, work_bytes)
    block_rows = max(1, min(BLOCK_BYTES, work_bytes // 8) // (spec.row_bytes + RECORD_BYTES))

    def records() -> Iterator[Records]:
        for first, block in source.blocks(block_rows * spec.row_bytes):
            yield Records(rows[first : first + len(block)].astype(np.int64), {_ROWS: block})
            progress.advance(block.nbytes)

    def append(pieces: Iterable[Records], count: int) -> None:
        target = column.empty(count)
        for piece in pieces:
            kernels.scatter_rows(piece.columns[_ROWS], piece.keys.astype(np.int64), target)
        out.append(target)
        progress.advance(target.nbytes)

    if bucket_rows == num_rows:
        append(records(), num_rows)
        return
    bounds = np.append(np.arange(0, num_rows, bucket_rows), num_rows)
    with closing(Spill(scratch, {_ROWS: column})) as spill:
        spill_records(records(), Buckets(bounds, bounds), spill)  # keys are new rows, so each occurs once
        for first, end in pairwise(bounds.tolist()):
            append(spill.read_records(first, end, block_rows), end - first)
