"""Tables in CSV files (any delimiter, plain or compressed).

In: a path and the requested fields. Out: a table. Invariants: memory is one block of the file and its columns, for any file size; types are
determined when the file is opened, so that every reading gives the same; an error about a cell names its line.

The file is cut into blocks here, and Arrow parses one at a time. If Arrow cuts the file itself, it reads ahead on its own threads: 57 MB
with blocks of 1 MiB, rather than 10, which is too much for a budget of the whole process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from penstock.errors import InputError, argument, first_line
from penstock.sources.columns import ColumnsTable, Field, Request, make_chunk, make_field, pc, resolve
from penstock.sources.csv_layout import (
    MAX_LINE_BYTES,
    NUMBER,
    CsvLayout,
    count_rows_roughly,
    find_layout,
    open_bytes,
    read_errors_said,
    read_lines,
    split_line,
)
from penstock.sources.source import DST, ID, LABELS, SRC, Chunk
from penstock.sources.time_units import unit_of

_BLOCK_BYTES = 1 << 20
_SHOWN_CHARACTERS = 60
_MAX_DIGITS = 1000
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_DEFAULT_POSITIONS = {SRC: "0", DST: "1", ID: "0"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CsvTable(ColumnsTable):
    """Fields of one CSV file."""

    def __init__(
        self,
        path: Path,
        requests: Sequence[Request],
        delimiter: str | None = None,
        has_header: bool | None = None,
        *,
        layout: CsvLayout | None = None,
    ) -> None:
        """Open the file; see `find_layout` for the arguments. `layout`: what it would find."""
        self.name, self._path = str(path), path
        self.num_rows = None
        self._layout = layout or find_layout(path, requests, delimiter, has_header)
        names = self._layout.column_names
        self._columns: dict[str, tuple[str, ...]] = {}
        wanted = [_with_default_dtype(each) for each in requests if not (each.is_optional and each.columns not in names)]
        for request in wanted:
            if request.is_default and not self._layout.has_header:
                request = replace(request, columns=_DEFAULT_POSITIONS[request.name])
            self._columns[request.name] = resolve(request, names, self.name)
        self._types: dict[str, pa.DataType] = {}
        self._guessed: set[str] = set()
        self._settle_types(wanted)
        self._fields: dict[str, Field] = {
            request.name: make_field(request, self._columns[request.name], self._types, self.name, lambda _: 0) for request in wanted
        }
        self.columns = {name: replace(field.column, is_parsed=True) for name, field in self._fields.items()}

    def _settle_types(self, requests: Sequence[Request]) -> None:
        """Choose the type of every requested column: that of its field, or by the first block; for labels, which may be empty, by the first
        block that has any."""
        asked: dict[str, set[pa.DataType | None]] = {}
        for request in requests:
            for column in self._columns[request.name]:
                asked.setdefault(column, set()).add(_asked_type(request))
        for column, types in asked.items():
            if len(types) == 1 and (chosen := types.pop()) is not None:
                self._types[column] = chosen
        guessed = [column for column in asked if column not in self._types]
        if not guessed:
            return
        types, wanted, first_row = dict.fromkeys(guessed, pa.null()), guessed, 0
        labels = [self._columns[request.name][0] for request in requests if request.name == LABELS]
        for block in self._blocks():
            batch = self._parse(block, first_row, wanted)
            types |= {column: batch.schema.field(column).type for column in wanted}
            if any(pa.types.is_binary(types[column]) for column in wanted):
                raise InputError(self._not_utf8(block, first_row))
            wanted = [column for column in labels if column in types and pa.types.is_null(types[column])]  # no value so far
            if not wanted:
                break
            first_row += batch.num_rows
        self._types |= types
        self._guessed = set(guessed)
        for request in requests:
            column = self._columns[request.name][0]
            if request.kind == "id" and (pa.types.is_temporal(self._types[column]) or pa.types.is_boolean(self._types[column])):
                self._types[column] = pa.string()

    def _blocks(self) -> Iterator[bytes]:
        """Yield blocks of whole lines, without comments, header and blocks of blank lines."""
        rest, to_skip, is_start, is_after_blank = b"", self._layout.skipped_lines, True, False
        with read_errors_said(self._path), open_bytes(self._path) as file:
            while data := file.read(_BLOCK_BYTES):
                data, is_start = rest + (data.removeprefix(_BYTE_ORDER_MARK) if is_start else data), False
                cut = data.rfind(b"\n") + 1
                block, rest = data[:cut], data[cut:]
                while to_skip and block:
                    block, to_skip = block.partition(b"\n")[2], to_skip - 1
                is_after_blank = self._refuse_blank_lines(block, is_after_blank)
                if block and not block.isspace():
                    yield block
                if len(rest) > MAX_LINE_BYTES:
                    raise InputError(f"{self.name}: has a line of more than {MAX_LINE_BYTES} bytes")
        if to_skip and b"\r" in rest:
            raise InputError(f"{self.name}: its lines end in a carriage return alone: write them with newlines")
        self._refuse_blank_lines(rest, is_after_blank)
        if rest and not rest.isspace() and not to_skip:
            yield rest

    def _refuse_blank_lines(self, block: bytes, is_after_blank: bool) -> bool:
        """Raise InputError for a blank line between rows of a file of one column, in which it may be an empty cell or nothing. Returns
        whether one is at the end of the block, or was before it."""
        rows = block.rstrip()
        if len(self._layout.column_names) > 1 or not block:
            return is_after_blank
        if rows and (is_after_blank or rows.startswith((b"\n", b"\r\n")) or b"\n\n" in rows or b"\n\r\n" in rows):
            raise InputError(
                f'{self.name}: has a blank line between rows, which may be an empty cell in a file of one column: write "" for that, or '
                "remove the line"
            )
        return is_after_blank or not rows or block.count(b"\n", len(rows)) > 1

    def _parse(self, block: bytes, first_row: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Parse one block."""
        try:
            return self._convert(block, columns)
        except pa.ArrowInvalid as error:
            raise InputError(self._find_fault(block, first_row, columns, first_line(error))) from error

    def _convert(self, block: bytes, columns: Sequence[str]) -> pa.RecordBatch:
        wanted = list(dict.fromkeys(columns))
        reader = pyarrow.csv.open_csv(
            pa.BufferReader(block),
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=self._layout.column_names),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self._layout.delimiter),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=wanted,
                column_types={column: self._types[column] for column in wanted if column in self._types},
                null_values=[""],
            ),
        )
        return reader.read_next_batch()

    @property
    def expected_rows(self) -> int:
        """The estimated number of rows, by the lines of the first block."""
        return max(0, count_rows_roughly(self._path, _BLOCK_BYTES) - self._layout.skipped_lines)

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Read block by block, and cut blocks of more than `max_rows` rows."""
        fields = [self._fields[name] for name in (self._fields if names is None else names)]
        columns = [column for field in fields for column in field.columns]
        first = 0
        for block in self._blocks():
            batch = self._parse(block, first, columns)
            for field in fields:
                if field.is_text and field.name in (ID, SRC, DST):
                    is_empty = pc.equal(batch.column(field.columns[0]), "")
                    if (bad := pc.index(is_empty, True).as_py()) >= 0:
                        raise InputError(f"{self.where(first + bad)}: '{field.name}' has no value: every node needs an id")
            for start in range(0, batch.num_rows, max_rows):
                piece = batch.slice(start, max_rows)
                yield make_chunk(fields, piece, first, self.where)
                first += piece.num_rows

    def where(self, row: int) -> str:
        """Return the file and line of a row, for messages."""
        return f"{self.name}, line {self._line_of(row)}"

    def _line_of(self, row: int) -> int:
        """Return the line of a row, counted from 1. Reads the file up to there, so it is only used for messages."""
        number = 0
        for number, line in enumerate(read_lines(self._path), start=1):
            if number > self._layout.skipped_lines and line.strip():
                row -= 1
                if row < 0:
                    break
        return number

    def _find_fault(self, block: bytes, first_row: int, columns: Sequence[str], message: str) -> str:
        """Find the first invalid line of a block; `first_row`: the row of its first line that is not blank."""
        if "UTF8" in message:
            return self._not_utf8(block, first_row)
        width = len(self._layout.column_names)
        lines = block.decode("utf-8", "replace").lstrip("\r\n").split("\n")
        first_number = self._line_of(first_row)
        for number, line in enumerate(lines, start=first_number):
            line = line.rstrip("\r")
            cells = split_line(line, self._layout.delimiter)
            if line and len(cells) != width:
                return f"{self.name}, line {number}: {len(cells)} fields where {width} are expected ({line[:_SHOWN_CHARACTERS]!r})"
            for column, cell in zip(self._layout.column_names, cells, strict=False):
                if column in self._types and not _fits(cell, self._types[column]):
                    return self._does_not_fit(number, column, cell)
        at, column = self._search(lines, columns)
        if column is None:
            return f"{self.name}: {message}"
        cells = split_line(lines[at].rstrip("\r"), self._layout.delimiter)
        return self._does_not_fit(first_number + at, column, cells[self._layout.column_names.index(column)])

    def _search(self, lines: Sequence[str], columns: Sequence[str]) -> tuple[int, str | None]:
        """Find the first line that Arrow does not convert, and the column; for values that only Arrow can judge, such as dates."""

        def is_fine(part: Sequence[str], columns: Sequence[str]) -> bool:
            text = "\n".join(part)
            try:
                return text == "" or text.isspace() or self._convert(text.encode(), columns) is not None
            except pa.ArrowInvalid:
                return False

        first, end = 0, len(lines)
        while end - first > 1:
            middle = (first + end) // 2
            first, end = (middle, end) if is_fine(lines[first:middle], columns) else (first, middle)
        return first, next((column for column in columns if column in self._types and not is_fine(lines[first:end], [column])), None)

    def _does_not_fit(self, number: int, column: str, cell: str) -> str:
        shown = f"column {column!r} holds {cell[:_SHOWN_CHARACTERS]!r}"
        return f"{self.name}, line {number}: {shown}, which is not of type {self._types[column]}{self._hint(column)}"

    def _hint(self, column: str) -> str:
        """Return advice for a column whose type was guessed."""
        if column not in self._guessed:
            return ""
        if unit_of(self._types[column]) is not None:
            return " as those in the first MiB: correct it, or write the first one with as much: its time of day, fraction or zone"
        if pa.types.is_boolean(self._types[column]):
            return " as those in the first MiB"
        if any(self._columns.get(name) == (column,) for name in (ID, SRC, DST)):
            return f" as those before: say {argument('ids', 'string')} if ids are text"
        return " as those in the first MiB: write the first one like 1.0, or say its dtype in a description (dtypes) or from Python"

    def _not_utf8(self, block: bytes, first_row: int) -> str:
        """Return the error for the first line of a block that is not UTF-8."""
        block = block.lstrip(b"\r\n")
        try:
            block.decode("utf-8")
            line = self._line_of(first_row)
        except UnicodeDecodeError as error:
            line = self._line_of(first_row) + block.count(b"\n", 0, error.start)
        return f"{self.name}, line {line}: not UTF-8 text; write the file as UTF-8 (for instance by iconv -f latin1 -t utf-8)"


def _with_default_dtype(request: Request) -> Request:
    """Add a default dtype: weights may be integers for a million rows and then fractions, so their type is not guessed; nor is that of
    vectors."""
    if request.kind != "number" or request.dtype is not None:
        return request
    if request.name == "weight":
        return replace(request, dtype=np.dtype(np.float64))
    return replace(request, dtype=np.dtype(np.float32)) if request.is_vector else request


def _asked_type(request: Request) -> pa.DataType | None:
    if request.kind == "text" or request.as_string:
        return pa.string()
    if request.dtype == np.float16:  # which Arrow does not read
        return pa.float32()
    return None if request.dtype is None else pa.from_numpy_dtype(request.dtype)


def _fits(cell: str, arrow_type: pa.DataType) -> bool:
    if cell == "" or pa.types.is_string(arrow_type):
        return True
    if pa.types.is_integer(arrow_type):
        limit = 1 << (arrow_type.bit_width - pa.types.is_signed_integer(arrow_type))
        is_whole = len(cell) <= _MAX_DIGITS and _INTEGER.fullmatch(cell) is not None
        return is_whole and -limit * pa.types.is_signed_integer(arrow_type) <= int(cell) < limit
    if pa.types.is_floating(arrow_type):
        return NUMBER.fullmatch(cell) is not None
    return True
