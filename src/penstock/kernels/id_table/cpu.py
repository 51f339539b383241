"""Look-ups in a table of hashes grouped by their leading bits. Same results as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store

AHEAD = 32
WINDOW = 8
"""Entries compared at once; cells have about four."""


@helper
def _find(wanted, first, last, table_hashes):
    """Return the position of a hash among some entries, or -1."""
    found = np.int64(-1)
    for j in range(first, last):
        if load(table_hashes, j) == wanted:
            found = j
    return found


@helper
def _find_in_cell(wanted, start, cell, ends, table_hashes):
    """Return the position of a hash, or -1. Compares a whole window whatever the cell's length, so that no branch depends on the data; a
    match past the end of the cell is valid too."""
    window = min(start, table_hashes.size - WINDOW)
    found = _find(wanted, window, window + WINDOW, table_hashes)
    if found < 0 and load(ends, cell) > start + WINDOW:
        found = _find(wanted, start + WINDOW, load(ends, cell), table_hashes)
    return found


@kernel
def look_up(hashes, shift, first_cell, ends, table_hashes, table_rows, positions, rows):
    """Find hashes in one part of the table; write `rows` for those found. See `reference.look_up`.

    Three passes find the begin of the cell, the entry, and its row. Each prefetches for itself or for the next pass.

    Args:
        positions: int64[n], scratch.
    """
    shift = np.uint64(shift)
    for i in range(hashes.size):
        if i + AHEAD < hashes.size:
            prefetch_read(ends, np.int64(load(hashes, i + AHEAD) >> shift) - first_cell)
        cell = np.int64(load(hashes, i) >> shift) - first_cell
        start = np.int64(-1)
        if 0 <= cell < ends.size:
            start = np.int64(0)
            if cell > 0:
                start = load(ends, cell - 1)
        store(positions, i, start)
    for i in range(hashes.size):
        if i + AHEAD < hashes.size:
            start = load(positions, i + AHEAD)
            prefetch_read(table_hashes, start)
            prefetch_read(table_hashes, start + WINDOW - 1)
        start = load(positions, i)
        if start >= 0:
            cell = np.int64(load(hashes, i) >> shift) - first_cell
            if table_hashes.size >= WINDOW:
                start = _find_in_cell(load(hashes, i), start, cell, ends, table_hashes)
            else:
                start = _find(load(hashes, i), 0, table_hashes.size, table_hashes)
            store(positions, i, start)
    for i in range(hashes.size):
        if i + AHEAD < hashes.size:
            prefetch_read(table_rows, load(positions, i + AHEAD))
        if load(positions, i) >= 0:
            store(rows, i, load(table_rows, load(positions, i)))


@kernel
def first_repeat(ends, table_hashes, table_rows):
    """Find two equal hashes: (earlier row, later row), or (-1, -1). See `reference.first_repeat`."""
    later, earlier = np.int64(-1), np.int64(-1)
    start = np.int64(0)
    for cell in range(ends.size):
        end = load(ends, cell)
        for j in range(start, end):
            for k in range(start, j):
                if load(table_hashes, j) == load(table_hashes, k):
                    one, other = np.int64(load(table_rows, j)), np.int64(load(table_rows, k))
                    low, high = min(one, other), max(one, other)
                    if later < 0 or high < later or (high == later and low > earlier):
                        later, earlier = high, low
        start = end
    return earlier, later
