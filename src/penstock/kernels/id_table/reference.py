"""Look-ups in a table of hashes grouped by their leading bits: the definitions.

The table is a CSC of hashes: the cell of a hash is its leading bits, entries of cell c lie at `ends[c - 1]:ends[c]` (0 for c = 0), in any
order. It is built by the same counting as a graph and needs no empty slots.
"""

from __future__ import annotations

import numpy as np


def look_up(hashes, shift, first_cell, ends, table_hashes, table_rows, rows):
    """Find hashes in one part of the table.

    Args:
        hashes: uint64[n], to find.
        shift: the cell of a hash is `hash >> shift`; at most 63.
        first_cell: cell at index 0 of this part. Hashes of other parts are left alone.
        ends: int64[num_cells], end of each cell of this part.
        table_hashes: uint64[m], table_rows: int32 or int64[m].
        rows: int32 or int64[n], so far.
    Returns:
        rows with those found set.
    """
    rows, cells = rows.copy(), (hashes >> np.uint64(shift)).astype(np.int64) - first_cell
    for i, cell in enumerate(cells):
        if 0 <= cell < ends.size:
            start = ends[cell - 1] if cell else 0
            for j in range(start, ends[cell]):
                if table_hashes[j] == hashes[i]:
                    rows[i] = table_rows[j]
    return rows


def first_repeat(ends, table_hashes, table_rows):
    """Find two equal hashes, which lie in one cell.

    Returns:
        (earlier row, later row) of the pair whose later row is the smallest, then whose earlier row is the largest; (-1, -1) where
        all differ.
    """
    known = {}
    for row, value in sorted(zip(table_rows.tolist(), table_hashes.tolist(), strict=True)):
        if value in known:
            return known[value], row
        known[value] = row
    return -1, -1
