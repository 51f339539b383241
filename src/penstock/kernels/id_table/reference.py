"""Look-ups in a table of hashes grouped by their leading bits: the definitions.

The table is a CSC of hashes: the cell of a hash is its leading bits; the entries of cell c are at `ends[c - 1]:ends[c]` (from 0 for c = 0),
in any order. It is built by the same counting sort as a graph and needs no empty slots.
"""

from __future__ import annotations

import numpy as np


def look_up(hashes, shift, first_cell, ends, table_hashes, table_rows, rows):
    """Find hashes in one part of the table.

    Args:
        hashes: uint64[n], the hashes to find.
        shift: the cell of a hash is `hash >> shift`; at most 63.
        first_cell: the first cell of this part. Hashes of other parts are skipped.
        ends: int64[num_cells], end of each cell of this part.
        table_hashes: uint64[m], table_rows: int32 or int64[m].
        rows: int32 or int64[n], the rows found in other parts.
    Returns:
        `rows`, with the rows found in this part set.
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
    """Find two equal hashes; they lie in the same cell.

    Returns:
        (earlier row, later row): of all pairs, the one with the smallest later row, then the largest earlier row; (-1, -1) if all hashes
        differ.
    """
    known = {}
    for row, value in sorted(zip(table_rows.tolist(), table_hashes.tolist(), strict=True)):
        if value in known:
            return known[value], row
        known[value] = row
    return -1, -1
