"""Tables made of other tables: parts concatenated, columns joined, rows computed on demand.

Invariant: rows do not depend on the chunk boundaries of the parts; in a join, row i consists of row i of every part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock.sources.source import LABELS, ChangedTable, Chunk, Column, Table


class ComputedTable(Table):
    """Rows that are a pure function of their number, so that any thread can compute any range, any number of times."""

    def __init__(
        self,
        columns: Sequence[Column],
        num_rows: int,
        compute: Callable[[int, int, tuple[str, ...]], dict[str, Any]],
        name: str,
        class_names: Sequence[str] = (),
    ) -> None:
        """Describe the table.

        Args:
            columns: what `compute` can make.
            num_rows: length.
            compute: (first row, number of rows, names of columns) -> column name -> array.
            name: for messages.
            class_names: the word of each class, if labels are words.
        """
        self.columns = {column.name: column for column in columns}
        self.num_rows = num_rows
        self.name = name
        self._num_rows = num_rows
        self._compute = compute
        self.class_names = class_names

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Compute `max_rows` rows at a time."""
        for first in range(0, self._num_rows, max_rows):
            yield self.read(first, min(max_rows, self._num_rows - first), names)

    def read(self, first_row: int, num_rows: int, names: tuple[str, ...] | None = None) -> Chunk:
        """Compute `num_rows` rows from `first_row` on."""
        return Chunk(first_row, self._compute(first_row, num_rows, tuple(self.columns) if names is None else names))


def has_rows(table: Table) -> bool:
    """Whether there is a row; reads the first."""
    return next(iter(table.chunks(1)), None) is not None


class _WithoutLabels(ChangedTable):
    """Nodes without any label, concatenated with others whose labels are like `column`."""

    def __init__(self, table: Table, column: Column) -> None:
        super().__init__(table, {**table.columns, LABELS: column})

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Yield chunks with "no label" values of the other parts' kind."""
        for chunk in self._table.chunks(max_rows, names):
            if LABELS in chunk.columns:
                chunk.columns[LABELS] = _no_labels(self.columns[LABELS].dtype, chunk.num_rows)
            yield chunk


def _no_labels(dtype: np.dtype, count: int) -> Any:
    if dtype.kind == "O":
        return pa.nulls(count, pa.string())
    return np.full(count, np.nan if dtype.kind == "f" else -1, dtype)


def _with_labels_alike(parts: Sequence[Table]) -> list[Table]:
    """Give parts without any label the kind of labels of the other parts."""
    labels = next((part.columns[LABELS] for part in parts if LABELS in part.columns and not part.columns[LABELS].is_empty), None)
    if labels is None or labels.row_shape != () or labels.dtype.kind not in "Oif":
        return [*parts]
    return [_WithoutLabels(part, labels) if LABELS in part.columns and part.columns[LABELS].is_empty else part for part in parts]


class ConcatenatedTable(Table):
    """Part files of one table, one after the other. Columns of a part without rows need not agree with those of the others, nor need
    the labels of a part without any label."""

    def __init__(self, parts: Sequence[Table], name: str) -> None:
        if any(part.columns != parts[0].columns for part in parts):
            parts = _with_labels_alike([part for part in parts if has_rows(part)] or parts[:1])
        self.name, self._parts = name, parts
        self.columns = parts[0].columns
        for part in parts[1:]:
            if set(part.columns) != set(self.columns):
                theirs, ours = (", ".join(each.columns) for each in (part, parts[0]))
                raise InputError(f"{part.name} has {theirs} where {parts[0].name} has {ours}; parts of one table must agree")
            for key, column in self.columns.items():
                other = part.columns[key]
                if other.units != column.units:
                    theirs, ours = (str(each.unit or "numbers") for each in (other, column))
                    raise InputError(
                        f"{part.name}: column {key!r} holds {theirs} here and {ours} in {parts[0].name}; parts of one table must agree"
                    )
                if other != column:
                    raise InputError(
                        f"{part.name}: column {key!r} is {other.dtype}{list(other.row_shape)} here and "
                        f"{column.dtype}{list(column.row_shape)} in {parts[0].name}; parts of one table must agree"
                    )
        counts = [part.num_rows for part in parts]
        self.num_rows = None if None in counts else sum(count for count in counts if count is not None)

    @property
    def expected_rows(self) -> int | None:
        """The estimated number of rows."""
        counts = [part.expected_rows for part in self._parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def reader_bytes(self) -> int:
        """That of one part."""
        return max(part.reader_bytes for part in self._parts)

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Read part after part."""
        first = 0
        for part in self._parts:
            for chunk in part.chunks(max_rows, names):
                yield Chunk(first, chunk.columns)
                first += chunk.num_rows

    def where(self, row: int) -> str:
        """Return the part and the place in it. Parts of unknown length are read to count their rows, so this is only used for messages."""
        for part in self._parts:
            count = part.num_rows
            if count is None:
                count = sum(chunk.num_rows for chunk in part.chunks(1 << 16))
            if row < count:
                return part.where(row)
            row -= count
        return f"{self.name}, {row} rows past the end"


class _Reader:
    """The rest of a table, taken in pieces of any size up to what the current chunk still has."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._columns = {}
        self._used = 0
        self._size = 0

    def available(self) -> int:
        """Return how many rows can be taken now; 0 at the end."""
        while self._used == self._size:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._columns, self._used, self._size = chunk.columns, 0, chunk.num_rows
        return self._size - self._used

    def take(self, count: int) -> dict[str, Any]:
        """Return the next `count` rows, at most `available()`."""
        first, self._used = self._used, self._used + count
        return {name: column[first : self._used] for name, column in self._columns.items()}


class JoinedTable(Table):
    """Columns of several tables, joined; all must have the same number of rows."""

    def __init__(self, parts: Sequence[Table], name: str) -> None:
        self.name, self._parts = name, parts
        self.columns = {key: column for part in parts for key, column in part.columns.items()}
        known = [(part.num_rows, part.name) for part in parts if part.num_rows is not None]
        for count, other in known[1:]:
            if count != known[0][0]:
                raise InputError(
                    f"{other} has {count} rows and {known[0][1]} has {known[0][0]}; both have one row for each of the same things"
                )
        self.num_rows = known[0][0] if known else None

    @property
    def expected_rows(self) -> int | None:
        """The estimated number of rows, by the first part that knows."""
        if self.num_rows is not None:
            return self.num_rows
        return next((count for part in self._parts if (count := part.expected_rows) is not None), None)

    @property
    def reader_bytes(self) -> int:
        """That of all parts."""
        return sum(part.reader_bytes for part in self._parts)

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Read all parts in step."""
        names = tuple(self.columns) if names is None else names
        parts = [(part, tuple(key for key in names if key in part.columns)) for part in self._parts]
        parts = [(part, keys) for part, keys in parts if keys]
        readers = [_Reader(part.chunks(max_rows, keys)) for part, keys in parts]
        first = 0
        while True:
            sizes = [reader.available() for reader in readers]
            count = min(sizes, default=0)
            if count == 0:
                for (part, _), size in zip(parts, sizes, strict=True):
                    if size > 0:
                        short = parts[sizes.index(0)][0].name
                        raise InputError(
                            f"{short} ends after {first} rows and {part.name} has more; both have one row for each of the same things"
                        )
                return
            yield Chunk(first, {key: column for reader in readers for key, column in reader.take(count).items()})
            first += count

    def where(self, row: int) -> str:
        """Return where the row is in the first part."""
        return self._parts[0].where(row)

    def holding(self, column: str) -> Table:
        """The part that has the column."""
        return next((part.holding(column) for part in self._parts if column in part.columns), self)


def join(tables: Sequence[Table], name: str) -> Table | None:
    """Join tables; None if there are none."""
    return JoinedTable(tables, name) if len(tables) > 1 else tables[0] if tables else None
