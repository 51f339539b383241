"""Checking the table that finds nodes by the user's ids.

A row belongs into the cell of its id's hash. So if every entry is in its cell, no cell has a row twice, and there are as many entries as
nodes, then every node occurs exactly once; and all ids are distinct if those within each cell are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.store.idmap import cell_shift
from penstock.store.ids import INTEGER, IdBatch, Strings, from_arrow, hash_ids
from penstock.store.manifest import IdEntry

BLOCK_CELLS = 1 << 18


def check_id_table(entry: IdEntry, arrays: dict[str, np.ndarray]) -> str | None:
    """Return a description of what is wrong with a table whose values are in range, or None."""
    cells, rows = arrays["id_cells"], arrays["id_rows"]
    for first_cell in range(0, cells.size, BLOCK_CELLS):
        ends = cells[first_cell : first_cell + BLOCK_CELLS]
        start = int(cells[first_cell - 1]) if first_cell else 0
        message = _check_block(entry, arrays, first_cell, np.diff(ends, prepend=start), rows[start : int(ends[-1])])
        if message:
            return message
    return None


def _check_block(entry: IdEntry, arrays: dict[str, np.ndarray], first_cell: int, sizes: np.ndarray, rows: np.ndarray) -> str | None:
    batch = _take(entry, arrays, rows)
    hashes = hash_ids(batch, entry.seed)
    cells = (hashes >> np.uint64(cell_shift(arrays["id_cells"].size))).astype(np.int64)
    bad = np.flatnonzero(cells != np.repeat(np.arange(first_cell, first_cell + sizes.size), sizes))
    if bad.size:
        return f"node {rows[bad[0]]} with id {batch[bad[0]]} is in the wrong cell"
    for keys, what in ((rows.astype(np.int64), "node"), (hashes, "id of node")):
        order = np.argsort(keys, kind="stable")
        for at in np.flatnonzero(keys[order[1:]] == keys[order[:-1]]):
            if batch[order[at]] == batch[order[at + 1]]:
                return f"the {what} {rows[order[at]]} is there twice"
    return None


def _take(entry: IdEntry, arrays: dict[str, np.ndarray], rows: np.ndarray) -> IdBatch:
    if entry.kind == INTEGER:
        return arrays["id"][rows]
    return from_arrow(Strings(arrays["id_offsets"], arrays["id_bytes"]).to_arrow().take(pa.array(rows)))
