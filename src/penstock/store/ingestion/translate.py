"""Edges whose ends are the user's ids are translated to node numbers 0..n-1, once, on disk.

In: an edge table and the parts of the id table. Out: the same table with node numbers as `src` and `dst`. Each part fills in the ends that
it has, and an end that no part has is -1; with several parts, the ids are read several times. The result is written to a scratch file, so
that counting and placing edges, which each read it once, need not parse and hash again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.errors import InputError, argument
from penstock.records import index_dtype
from penstock.sources.source import ChangedTable, Chunk, Column, Table
from penstock.store.files import Scratch, ScratchFile
from penstock.store.ids import memory_row_bytes, read_ids
from penstock.store.ingestion.idtable import TablePart
from penstock.store.ingestion.prefetch import prefetch
from penstock.store.progress import Progress, stage


class TranslatedTable(ChangedTable):
    """A table whose ids are translated, column by column, into a scratch file.

    Args:
        table: the original.
        label: for progress and messages.
        scratch: receives the translated columns.
        chunk_bytes: size of one piece.
    Attributes:
        num_rows: known after the first pass.
    """

    def __init__(self, table: Table, label: str, scratch: Scratch, chunk_bytes: int) -> None:
        self._columns = dict(table.columns)
        super().__init__(table, self._columns)
        self._label, self._scratch, self._chunk_bytes = label, scratch, chunk_bytes
        self._files: dict[str, ScratchFile] = {}

    def begin(self, names: tuple[str, ...], num_nodes: int) -> None:
        """Prepare to translate the columns that name nodes of one type."""
        for name in names:
            if name in self._files:
                self._files[name].close()
            self._files[name] = self._scratch.file()
            self._columns[name] = Column(name=name, dtype=np.dtype(index_dtype(num_nodes)))

    def apply(self, part: TablePart, names: tuple[str, ...], progress: Progress, *, is_first: bool) -> None:
        """Fill in the node numbers of all ids that are in this part of the id table."""
        max_rows = max(1, self._chunk_bytes // memory_row_bytes(self._table.columns[name] for name in names))
        num_rows = 0
        with stage(progress, f"map ids of {self._label}", self.num_rows):
            for chunk in prefetch(self._table.chunks(max_rows, names)):
                for name in names:
                    ids = read_ids(self._table, chunk.columns[name], chunk.first_row, name)
                    rows = (
                        np.full(len(ids), -1, dtype=self._columns[name].dtype) if is_first else self._read(name, chunk.first_row, len(ids))
                    )
                    part.look_up(ids, rows)
                    self._files[name].write(rows, chunk.first_row * rows.itemsize)
                num_rows += chunk.num_rows
                progress.advance(chunk.num_rows)
        if self._table.num_rows not in (None, num_rows):
            raise InputError(f"{self._label}: announced {self._table.num_rows} rows and delivered {num_rows}: did the file change?")
        self.num_rows = num_rows

    def refuse_unknown(self, names: tuple[str, ...], node_type: str) -> None:
        """Raise InputError if an id was in no part."""
        for name in names:
            step = self._chunk_bytes // 8
            for first in range(0, self.num_rows or 0, step):
                rows = self._read(name, first, min(step, (self.num_rows or 0) - first))
                if rows.size and rows.min() < 0:
                    row = first + int(np.argmax(rows < 0))
                    raise InputError(
                        f"{self._table.where(row)}: '{name}' is {self._original(name, row)}, which no node of type '{node_type}' has as "
                        f"its id ({np.count_nonzero(rows < 0)} of the {rows.size} ids around are unknown): add it to the table of "
                        f"nodes, or leave such edges out ({argument('dangling', 'drop')})"
                    )

    def _original(self, name: str, row: int) -> str:
        for chunk in self._table.chunks(1 << 16, (name,)):
            if chunk.first_row <= row < chunk.first_row + chunk.num_rows:
                value = read_ids(self._table, chunk.columns[name], chunk.first_row, name)[row - chunk.first_row]
                return repr(value) if isinstance(value, str) else str(int(value))
        return "unknown"

    def _read(self, name: str, first: int, count: int) -> np.ndarray:
        rows = np.empty(count, dtype=self._columns[name].dtype)
        return self._files[name].read(rows, first * rows.itemsize)

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Read rows, translated columns from the scratch files and the others from the table."""
        names = tuple(self._columns) if names is None else names
        others = tuple(name for name in names if name not in self._files)
        if others:
            for chunk in self._table.chunks(max_rows, others):
                yield self._complete(chunk.first_row, chunk.num_rows, names, chunk)
        else:
            num_rows = self.num_rows or 0
            for first in range(0, num_rows, max_rows):
                yield self._complete(first, min(max_rows, num_rows - first), names, None)

    def _complete(self, first: int, count: int, names: tuple[str, ...], chunk: Chunk | None) -> Chunk:
        return Chunk(
            first,
            {name: self._read(name, first, count) if name in self._files or chunk is None else chunk.columns[name] for name in names},
        )

    def close(self) -> None:
        """Close the scratch files."""
        for file in self._files.values():
            file.close()
