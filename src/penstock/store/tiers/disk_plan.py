"""Planning reads from a file: rows -> pages. Pure functions; properties of the device are arguments.

In: row numbers and the layout of a file. Out: a `ReadPlan`. Invariants: every byte of every row is in exactly one read (a row may be cut
between two); no block is read twice; reads begin and end at blocks; a read is never longer than a buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.kernels.plan_reads import cpu


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Reads of one file, in the order of the file.

    Attributes:
        order: int64[n]: the rows asked for, in ascending order, are rows[order].
        rows: int64[n], ascending.
        starts, lengths: int64[num_reads], bytes.
        firsts, lasts: int64[num_reads]: a read holds rows[first:last] of the ascending rows.
        num_pages: pages of 4 KiB that hold the rows: the least that could be read.
    """

    order: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    num_pages: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes that the device is asked for."""
        return int(self.lengths.sum())


def plan_reads(rows: np.ndarray, row_bytes: int, data_offset: int, *, block_bytes: int, gap_bytes: int, max_bytes: int) -> ReadPlan:
    """Plan the reads for rows of a file.

    Args:
        rows: int64[n], any order, repetitions allowed.
        row_bytes: at least 1; data_offset: where row 0 begins, any number.
        block_bytes: reads begin and end at multiples of this.
        gap_bytes: holes of up to this size are read along and discarded.
        max_bytes: largest read, a multiple of block_bytes.
    """
    rows = np.ascontiguousarray(rows, np.int64)
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    most = cpu.max_reads(rows.size, row_bytes, block_bytes, max_bytes)
    starts, lengths, firsts, lasts = np.empty((4, most), np.int64)
    count, num_pages = cpu.plan_reads(ascending, row_bytes, data_offset, block_bytes, gap_bytes, max_bytes, starts, lengths, firsts, lasts)
    return ReadPlan(order, ascending, starts[:count], lengths[:count], firsts[:count], lasts[:count], num_pages)
