"""Plan which pages of a file to read for given rows: the definition."""

from __future__ import annotations

import numpy as np

PAGE_BYTES = 4096
"""Bytes of a counted page, whatever the blocks of the file are."""


def plan_reads(rows, row_bytes, data_offset, block_bytes, gap_bytes, max_bytes):
    """Cover the blocks that contain the rows by reads.

    Blocks are added in ascending order. A block joins the read before it if the hole between them is at most `gap_bytes` and the read stays
    within `max_bytes`; otherwise it begins a new read.

    Args:
        rows: int64[n], ascending, repetitions allowed.
        row_bytes: bytes of a row, at least 1; row r begins at byte data_offset + r * row_bytes.
        data_offset: where in the file row 0 begins, any number from 0 on.
        block_bytes: reads begin and end at multiples of it.
        gap_bytes: holes up to this size are read and discarded.
        max_bytes: most bytes of a read; a multiple of block_bytes.
    Returns:
        (starts, lengths, firsts, lasts, num_pages), the first four int64[num_reads]: read k is bytes [starts[k], starts[k] + lengths[k])
        of the file and holds rows[firsts[k]:lasts[k]], the first and the last of them perhaps in part. num_pages: how many pages of
        PAGE_BYTES the rows lie on.
    """
    begins = data_offset + np.asarray(rows, np.int64) * row_bytes
    ends = begins + row_bytes
    blocks = sorted({block for a, b in zip(begins, ends, strict=True) for block in range(a // block_bytes, (b - 1) // block_bytes + 1)})
    reads = []
    for block in blocks:
        start, end = block * block_bytes, (block + 1) * block_bytes
        if reads and start - reads[-1][1] <= gap_bytes and end - reads[-1][0] <= max_bytes:
            reads[-1][1] = end
        else:
            reads.append([start, end])
    starts, stops = np.array(reads, np.int64).reshape(-1, 2).T
    firsts = np.searchsorted(ends, starts, side="right")
    lasts = np.searchsorted(begins, stops, side="left")
    pages = {page for a, b in zip(begins, ends, strict=True) for page in range(a // PAGE_BYTES, (b - 1) // PAGE_BYTES + 1)}
    return starts, stops - starts, firsts.astype(np.int64), lasts.astype(np.int64), len(pages)
