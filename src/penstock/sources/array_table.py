"""Tables over arrays on disk: rows along either axis, dense or as sparse rows that are made dense chunk by chunk.

In: `ArrayFile`s. Out: tables. Invariant: a chunk takes the memory of its rows, in either memory order of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import InputError
from penstock.sources.array_file import AnyArray, ArrayFile, stream_of
from penstock.sources.source import DST, SRC, Chunk, Column, Table

MAX_STREAMS = 4096
"""Most columns of a deflated array in Fortran order; each needs its own decompressor."""


@dataclass(frozen=True, slots=True)
class ArrayRows:
    """How the rows of a table are laid out in an array.

    Attributes:
        file: the array.
        axis: axis of the rows: 0, or 1 for an `edge_index` of shape [2, E].
        pick: index on the other axis, if a row is that one element; None for the whole row.
        is_matrix: rows of shape [n, 1] keep it; otherwise they become scalars.
    """

    file: ArrayFile
    axis: int = 0
    pick: int | None = None
    is_matrix: bool = False

    @property
    def num_rows(self) -> int:
        """Length of the row axis."""
        return self.file.shape[self.axis]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        if self.pick is not None:
            return ()
        shape = self.file.shape[: self.axis] + self.file.shape[self.axis + 1 :]
        return () if shape == (1,) and not self.is_matrix else shape

    def open(self, stack: ExitStack) -> Callable[[int], np.ndarray]:
        """Return a function that reads the next rows: count -> array[count, *row_shape]."""
        shape = self.file.shape
        if len(shape) == 1 or (self.axis == 0) != self.file.is_fortran:
            row_dims = shape[: self.axis] + shape[self.axis + 1 :]
            row_size = int(np.prod(row_dims, dtype=np.int64))
            stream = stack.enter_context(self.file.stream())
            if self.pick is not None:
                return lambda count: stream.take(count * row_size).reshape(count, row_size)[:, self.pick]
            return lambda count: stream.take(count * row_size).reshape(count, *self.row_shape)
        wanted = range(shape[1 - self.axis]) if self.pick is None else [self.pick]
        if self.file.data_offset is None and len(wanted) > MAX_STREAMS:
            raise InputError(f"{self.file.name}: compressed and column by column with {len(wanted)} columns; save it row by row")
        streams = [stack.enter_context(self.file.stream(j * self.num_rows)) for j in wanted]
        if self.row_shape == ():
            return streams[0].take
        return lambda count: np.stack([stream.take(count) for stream in streams], axis=1)


def array_rows(file: ArrayFile, axis: int = 0, pick: int | None = None) -> ArrayRows:
    """Check that an array can be read by rows, and describe its layout."""
    if file.dtype.kind not in "biuf":
        raise InputError(f"{file.name}: holds {file.dtype}; fields are numbers")
    if len(file.shape) == 0 or (len(file.shape) > 2 and (file.is_fortran or axis > 0)):
        raise InputError(
            f"{file.name}: has shape {list(file.shape)}{' in column order' if file.is_fortran else ''}; expected one row per thing"
        )
    return ArrayRows(file, axis, pick)


def edge_columns(file: ArrayFile, *, or_pairs: bool = False) -> dict[str, ArrayRows]:
    """Read an `edge_index` of shape [2, E]: row 0 the sources, row 1 the destinations; `or_pairs`: or pairs, of shape [E, 2]."""
    axis = 0 if or_pairs and file.shape[:1] != (2,) else 1
    if len(file.shape) != 2 or file.shape[1 - axis] != 2:
        raise InputError(f"{file.name}: has shape {list(file.shape)}; an edge_index has shape [2, number of edges]")
    if file.dtype.kind not in "iu" or file.is_bfloat16:
        raise InputError(f"{file.name}: holds {'bfloat16' if file.is_bfloat16 else file.dtype}; node ids are integers")
    return {SRC: array_rows(file, axis, 0), DST: array_rows(file, axis, 1)}


class ArrayFileTable(Table):
    """Columns from arrays on disk, all with the same number of rows. Rows of a single column become scalars, except for features `x`."""

    def __init__(self, rows: Mapping[str, ArrayRows], name: str) -> None:
        self.name, self._rows = name, {key: replace(each, is_matrix=key == "x") for key, each in rows.items()}
        self.columns = {
            key: Column(name=key, dtype=each.file.dtype, row_shape=each.row_shape, is_bfloat16=each.file.is_bfloat16)
            for key, each in self._rows.items()
        }
        first = next(iter(self._rows.values()))
        for each in self._rows.values():
            if each.num_rows != first.num_rows:
                raise InputError(
                    f"{each.file.name} has {each.num_rows} rows and {first.file.name} has {first.num_rows}; "
                    "both have one row for each of the same things"
                )
        self.num_rows = first.num_rows

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Read all wanted arrays in step."""
        with ExitStack() as stack:
            readers = {key: self._rows[key].open(stack) for key in (self._rows if names is None else names)}
            for first in range(0, self.num_rows or 0, max_rows):
                count = min(max_rows, (self.num_rows or 0) - first)
                yield Chunk(first, {key: read(count) for key, read in readers.items()})


class SparseRowsTable(Table):
    """One column of feature rows that are stored as CSR and delivered dense."""

    def __init__(self, key: str, indptr: AnyArray, indices: AnyArray, data: AnyArray | None, num_columns: int, name: str) -> None:
        """Describe the matrix.

        Args:
            key: name of the column.
            indptr: [num_rows + 1]. indices: [nnz], in [0, num_columns).
            data: [nnz], or None if every stored value is 1 (then rows are float32).
            num_columns: width of the dense rows.
            name: for messages.
        """
        self.name, self._key, self._width = name, key, num_columns
        self._indptr, self._indices, self._data = indptr, indices, data
        self._dtype = np.dtype(np.float32) if data is None else data.dtype
        self.columns = {key: Column(name=key, dtype=self._dtype, row_shape=(num_columns,))}
        self._num_rows = indptr.shape[0] - 1
        self.num_rows = self._num_rows
        if data is not None and data.shape != indices.shape:
            raise InputError(f"{name}: {data.shape[0]} values for {indices.shape[0]} column numbers in sparse {key!r}")

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Yield at most `max_rows` dense rows at a time."""
        with ExitStack() as stack:
            indptr, indices = (stack.enter_context(stream_of(array)) for array in (self._indptr, self._indices))
            data = None if self._data is None else stack.enter_context(stream_of(self._data))
            last = indptr.take(1)
            if last[0] != 0:
                raise InputError(f"{self.name}: row offsets of sparse {self._key!r} start at {last[0]}, not at 0")
            for first in range(0, self._num_rows, max_rows):
                ends = indptr.take(min(max_rows, self._num_rows - first))
                counts = np.diff(ends, prepend=last)
                if counts.min() < 0 or ends[-1] > self._indices.shape[0]:
                    row = int(np.flatnonzero((counts < 0) | (ends > self._indices.shape[0]))[0]) + first
                    raise InputError(f"{self.where(row)}: row offsets of sparse {self._key!r} decrease or pass the end")
                columns = indices.take(int(ends[-1] - last[0]))
                values = np.ones(columns.size, self._dtype) if data is None else data.take(columns.size)
                last = ends[-1:]
                yield Chunk(first, {self._key: self._densify(first, counts, columns, values)})

    def _densify(self, first: int, counts: np.ndarray, columns: np.ndarray, values) -> np.ndarray:
        rows = np.repeat(np.arange(counts.size), counts)
        outside = (columns < 0) | (columns >= self._width)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise InputError(
                f"{self.where(first + int(rows[at]))}: sparse {self._key!r} has column {columns[at]}, outside [0, {self._width})"
            )
        dense = np.zeros(counts.size * self._width, dtype=self._dtype)
        np.add.at(dense, rows * self._width + columns.astype(np.int64), values)  # both of a column that comes twice, as in SciPy
        return dense.reshape(counts.size, self._width)
