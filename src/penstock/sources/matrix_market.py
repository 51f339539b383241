"""Sparse matrices in Matrix Market files (`.mtx`), plain or compressed, as tables of edges.

In: a file in coordinate format: real, integer or pattern; general or symmetric. Out: a table with the columns row, column and value of the
file, of which row and column are counted from 0. Invariant: an entry outside the matrix is an error, and so are more or fewer entries than
the file announces. A symmetric matrix has only one half of its entries, in the file and here.
Source: Boisvert, Pozo and Remington 1996, "The Matrix Market Exchange Formats".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from penstock.errors import InputError, UsageError, argument
from penstock.sources.columns import Request
from penstock.sources.csv_layout import CsvLayout, read_lines
from penstock.sources.csv_table import CsvTable
from penstock.sources.source import DST, SRC, Chunk

_BANNER = "%%MatrixMarket matrix coordinate"
_PADDING = (b"  ", b"\t", b"\n ", b" \n", b" \r")
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Header:
    """What the first lines of a file say.

    Attributes:
        shape: rows and columns of the matrix.
        num_entries: in the file.
        has_values: whether entries have a value.
        is_symmetric: whether each entry off the diagonal stands for its mirror image too.
        num_lines: before the first entry.
    """

    shape: tuple[int, int]
    num_entries: int
    has_values: bool
    is_symmetric: bool
    num_lines: int


class MatrixTable(CsvTable):
    """The entries of one matrix.

    Attributes:
        header: of the file.
    """

    def __init__(self, path: Path, requests: Sequence[Request]) -> None:
        if any(request.as_string for request in requests):
            raise UsageError(f"{path}: a matrix numbers its rows and columns: leave {argument('ids', 'string')} out")
        self.header = read_header(path)
        names = ("row", "column", "value") if self.header.has_values else ("row", "column")
        ends = [replace(each, dtype=np.dtype(np.int64)) if each.name in (SRC, DST) else each for each in requests]
        super().__init__(path, ends, layout=CsvLayout(" ", False, names, self.header.num_lines))
        self.num_rows = self.header.num_entries

    def _blocks(self) -> Iterator[bytes]:
        """Yield blocks in which one space is between two cells."""
        for block in super()._blocks():
            is_padded = b" " in (block[:1], block[-1:]) or any(sign in block for sign in _PADDING)
            yield b"\n".join(b" ".join(line.split()) for line in block.split(b"\n")) if is_padded else block

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Yield the entries, counted from 0."""
        num_rows = 0
        for chunk in super().chunks(max_rows, names):
            num_rows += chunk.num_rows
            if num_rows > self.header.num_entries:
                break
            for end in (SRC, DST):
                if end in chunk.columns:
                    chunk.columns[end] = self._from_zero(end, chunk.columns[end], chunk.first_row)
            yield chunk
        if num_rows != self.header.num_entries:
            found = "more" if num_rows > self.header.num_entries else f"{num_rows}"
            raise InputError(f"{self.name}: announces {self.header.num_entries} entries and has {found}; fetch or write the file again")

    def _from_zero(self, end: str, numbers: np.ndarray, first_row: int) -> np.ndarray:
        [column] = self._columns[end]
        size = self.header.shape[column == "column"]
        bad = np.flatnonzero((numbers < 1) | (numbers > size))
        if bad.size:
            raise InputError(f"{self.where(first_row + int(bad[0]))}: {column} {numbers[bad[0]]}, and the matrix has 1 to {size}")
        return numbers - 1


def read_header(path: Path) -> Header:
    """Read the lines before the entries; raises InputError for anything but a sparse matrix of real numbers or of none."""
    number, words, line = 0, [], ""
    for number, line in enumerate(read_lines(path), start=1):
        if number == 1:
            words = line.lower().split()
            if words[:3] != _BANNER.lower().split() or len(words) != 5:
                raise InputError(f"{path}, line 1: {line.strip()[:_SHOWN_CHARACTERS]!r} is not the beginning of a graph: {_BANNER} ...")
            if words[3] not in ("real", "integer", "pattern") or words[4] not in ("general", "symmetric"):
                known = "known are real, integer and pattern, general and symmetric"
                raise InputError(f"{path}, line 1: a matrix that is {words[3]} and {words[4]} is no graph; {known}")
        elif line.strip() and not line.startswith("%"):
            break
    sizes = line.split()
    if number < 2 or len(sizes) != 3 or not all(size.isascii() and size.isdecimal() for size in sizes):
        raise InputError(
            f"{path}, line {number}: the numbers of rows, columns and entries are expected, got {line.strip()[:_SHOWN_CHARACTERS]!r}"
        )
    num_rows, num_columns, num_entries = map(int, sizes)
    return Header((num_rows, num_columns), num_entries, words[3] != "pattern", words[4] == "symmetric", number)
