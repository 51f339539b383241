"""The table that finds a node by the user's id: built from the ids on disk, in as many parts as the memory bound requires.

In: the ids of a type in node order, as files of the store being written. Out: `id_cells` and `id_rows` (see `penstock.store.idmap`), and
each part while it is in memory, to look up the ends of edges. Built by counting: hashes of one cell are contiguous, in any order.
Invariant: equal integers are the same id; strings with equal hashes are compared, and if they differ the build fails for this seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from penstock.errors import InputError, PenstockError
from penstock.kernels.id_table import cpu as kernels
from penstock.kernels.placement import cpu as placement
from penstock.records import index_dtype
from penstock.store.arrays import ArrayFile, ArrayWriter
from penstock.store.idmap import CELL_NODES, cell_shift, num_cells_for
from penstock.store.ids import IdBatch, Strings, hash_ids
from penstock.store.ingestion.place import start_positions

_ENTRY_BYTES = 8 + 8 + 8 // CELL_NODES + 1
"""Per node: hash, row (at most 8 bytes), and its share of the cells' ends."""


class HashCollisionError(PenstockError):
    """Two different strings have the same hash under this seed."""


class IdColumn:
    """The ids of one type in node order, on disk.

    Args:
        files: `id`, or `id_offsets` and `id_bytes`.
        chunk_bytes: size of one batch.
    """

    def __init__(self, files: dict[str, ArrayFile], chunk_bytes: int) -> None:
        self._files, self._chunk_bytes = files, chunk_bytes
        self.num_nodes = files["id"].spec.shape[0] if "id" in files else files["id_offsets"].spec.shape[0] - 1

    def batch(self, first: int, count: int) -> IdBatch:
        """Read ids first:first + count."""
        if "id" in self._files:
            return self._files["id"].read(first, count)
        offsets = self._files["id_offsets"].read(first, count + 1)
        data = self._files["id_bytes"].read(int(offsets[0]), int(offsets[-1] - offsets[0]))
        return Strings(offsets - offsets[0], data)

    def batches(self) -> Iterator[tuple[int, IdBatch]]:
        """Yield (first node, ids) in order."""
        row_bytes = 8
        if "id" not in self._files:
            row_bytes += -(-self._files["id_bytes"].spec.data_bytes // max(1, self.num_nodes))
        step = max(1, self._chunk_bytes // row_bytes)
        for first in range(0, self.num_nodes, step):
            yield first, self.batch(first, min(step, self.num_nodes - first))


@dataclass(frozen=True, slots=True)
class TablePart:
    """Consecutive cells of a table.

    Attributes:
        shift: cell of a hash = hash >> shift.
        first_cell: the first of this part.
        ends: int64[num_cells], end of each cell within this part.
        hashes: uint64[n]; rows: int32 or int64[n].
        seed: of the hash.
    """

    shift: int
    first_cell: int
    ends: np.ndarray
    hashes: np.ndarray
    rows: np.ndarray
    seed: int

    def look_up(self, batch: IdBatch, rows: np.ndarray) -> None:
        """Set rows[i] to the node with id batch[i] if this part has it."""
        hashes, scratch = hash_ids(batch, self.seed), np.empty(len(batch), dtype=np.int64)
        kernels.look_up(hashes, self.shift, self.first_cell, self.ends, self.hashes, self.rows, scratch, rows)


def build_parts(
    ids: IdColumn, seed: int, max_bytes: int, cells: ArrayWriter, rows: ArrayWriter, where: Callable[[int], str]
) -> Iterator[TablePart]:
    """Build the table part by part and write it.

    Args:
        ids: in node order.
        seed: of the hash.
        max_bytes: size of one part.
        cells, rows: receive the table; int64, and int32 or int64.
        where: describes where a node's id is in the input.
    Yields:
        Each part, in order; valid until the next one.
    Raises:
        InputError: two nodes have the same id.
        HashCollisionError: retry with another seed.
    """
    num_cells = num_cells_for(ids.num_nodes)
    num_parts = min(num_cells, max(1, -(-ids.num_nodes * _ENTRY_BYTES // max_bytes)))
    bounds = np.linspace(0, num_cells, num_parts + 1).astype(np.int64)
    shift, num_rows = cell_shift(num_cells), 0
    for first_cell, end_cell in itertools.pairwise(bounds):
        part = _build_part(ids, seed, shift, int(first_cell), int(end_cell - first_cell))
        _refuse_repeats(ids, part, where)
        cells.append(part.ends + num_rows)
        rows.append(part.rows)
        num_rows += part.rows.size
        yield part


def _build_part(ids: IdColumn, seed: int, shift: int, first_cell: int, num_cells: int) -> TablePart:
    ends = np.zeros(num_cells, dtype=np.int64)
    for _, _, cells in _hashes_of_part(ids, seed, shift, first_cell, num_cells):
        placement.count_keys(cells, 0, ends)
    size = start_positions(ends)
    hashes = np.empty(size, dtype=np.uint64)
    rows = np.empty(size, index_dtype(ids.num_nodes))
    for chosen_rows, chosen_hashes, cells in _hashes_of_part(ids, seed, shift, first_cell, num_cells):
        positions = np.empty(cells.size, dtype=np.int64)
        placement.take_positions(cells, ends, positions)
        placement.scatter_rows(chosen_hashes, positions, hashes)
        placement.scatter_rows(chosen_rows.astype(rows.dtype), positions, rows)
    return TablePart(shift, first_cell, ends, hashes, rows, seed)


def _hashes_of_part(
    ids: IdColumn, seed: int, shift: int, first_cell: int, num_cells: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (rows, hashes, cells within the part) of the ids that belong to a part."""
    for first, batch in ids.batches():
        hashes = hash_ids(batch, seed)
        rows = np.arange(first, first + hashes.size)
        cells = (hashes >> np.uint64(shift)).astype(np.int64) - first_cell
        inside = (cells >= 0) & (cells < num_cells)
        yield (rows, hashes, cells) if inside.all() else (rows[inside], hashes[inside], cells[inside])


def _refuse_repeats(ids: IdColumn, part: TablePart, where: Callable[[int], str]) -> None:
    earlier, later = kernels.first_repeat(part.ends, part.hashes, part.rows)
    if later < 0:
        return
    one, other = ids.batch(earlier, 1)[0], ids.batch(later, 1)[0]
    if one != other:
        raise HashCollisionError(f"{one!r} and {other!r} have one hash under seed {part.seed}")
    text = repr(other) if isinstance(other, str) else str(int(other))
    raise InputError(f"{where(later)}: the id {text} was there before ({where(earlier)}): every node needs an id of its own")
