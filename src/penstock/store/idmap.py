"""The user's ids of an open store, both ways: node -> id, id -> node.

In: the arrays of an `IdEntry`. Out: ids or nodes. Nodes are found by a table in which they are grouped by the leading bits of their ids'
hashes (`id_cells`: int64[num_cells], end of each cell; `id_rows`: int32 or int64[num_nodes]), about four per cell. The table is
memory-mapped: a look-up touches three places, and opening costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InputError, NodeIdError
from penstock.store.ids import INTEGER, Strings, as_arrow, from_arrow, hash_ids
from penstock.store.manifest import IdEntry

CELL_NODES = 4
"""Most nodes per cell, on average."""


def num_cells_for(num_nodes: int) -> int:
    """Return the number of cells of a table: a power of two, at least 2."""
    return 1 << max(1, (-(-num_nodes // CELL_NODES) - 1).bit_length())


def cell_shift(num_cells: int) -> int:
    """Return the shift that turns a 64-bit hash into its cell."""
    return 64 - (num_cells.bit_length() - 1)


class IdMap:
    """Look-ups in the ids of one node type.

    Args:
        entry: of the manifest.
        arrays: its arrays, mapped.
    """

    def __init__(self, entry: IdEntry, arrays: dict[str, np.ndarray]) -> None:
        self._seed, self._arrays = entry.seed, arrays
        self._cells, self._rows = arrays["id_cells"], arrays["id_rows"]
        self._strings = None if entry.kind == INTEGER else Strings(arrays["id_offsets"], arrays["id_bytes"])

    def originals(self, ids: Any) -> Any:
        """Return the user's ids of nodes: int64[n], or a list of n strings."""
        ids = np.asarray(ids)
        if ids.size and ids.dtype.kind not in "iu":
            raise InputError(f"node ids must be integers, got {ids.dtype}")
        ids = ids.astype(np.int64)
        bad = np.flatnonzero((ids < 0) | (ids >= self._rows.size))
        if bad.size:
            raise NodeIdError(
                f"{bad.size} of {ids.size} node ids lie outside [0, {self._rows.size}); first is ids[{bad[0]}] = {ids[bad[0]]}"
            )
        return self._arrays["id"][ids] if self._strings is None else [self._strings[row] for row in ids]

    def find(self, original_ids: Any) -> np.ndarray:
        """Return int64[n]: the node with each id, -1 if there is none."""
        if isinstance(original_ids, (str, bytes)):
            raise InputError(f"find takes a list of ids, got {original_ids!r:.60}: give [{original_ids!r:.60}]")
        if self._strings is None:
            return self._find_integers(original_ids)
        texts = original_ids if isinstance(original_ids, (pa.Array, pa.ChunkedArray)) else list(original_ids)
        if isinstance(texts, list) and not all(isinstance(text, str) for text in texts):
            raise InputError("the ids of this node type are strings: look for strings")
        wanted = from_arrow(as_arrow(texts))
        strings = self._strings
        return self._search(
            hash_ids(wanted, self._seed), lambda i, row: np.array([strings[r] == wanted[k] for k, r in zip(i, row, strict=True)])
        )

    def _find_integers(self, original_ids: Any) -> np.ndarray:
        wanted = np.asarray(original_ids)
        if wanted.size and (wanted.dtype.kind not in "iu" or wanted.ndim != 1):
            raise InputError(f"the ids of this node type are integers: look for a vector of them, not {wanted.dtype} {list(wanted.shape)}")
        wanted = np.ascontiguousarray(wanted, dtype=np.int64)
        return self._search(hash_ids(wanted, self._seed), lambda i, row: self._arrays["id"][row] == wanted[i])

    def _search(self, hashes: np.ndarray, is_equal: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Search the cell of each hash, one entry of all cells at a time."""
        found = np.full(hashes.size, -1, dtype=np.int64)
        cells = (hashes >> np.uint64(cell_shift(self._cells.size))).astype(np.int64)
        at = np.where(cells > 0, self._cells[cells - 1], 0)
        ends = self._cells[cells]
        open_ones = np.flatnonzero(at < ends)
        while open_ones.size:
            rows = self._rows[at[open_ones]].astype(np.int64)
            hit = is_equal(open_ones, rows)
            found[open_ones[hit]] = rows[hit]
            at[open_ones] += 1
            open_ones = open_ones[~hit & (at[open_ones] < ends[open_ones])]
        return found
