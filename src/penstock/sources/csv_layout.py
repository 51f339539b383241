"""The layout of a CSV file: comment lines, delimiter, header. Detected from its first lines; if they are ambiguous, an error asks the user.

Leading lines that start with # or % are comments (edge lists of SNAP and the Network Repository have them). A first line of numbers is not
a header; one that contains a requested name is. A file of one column, a list of ids, has a header only if it contains the requested name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import InputError, MissingFieldError, UsageError, argument, first_line
from penstock.sources.columns import Request, resolve

COMPRESSED = (".gz", ".bz2", ".zst")
MAX_LINE_BYTES = 64 << 20
_DELIMITERS = "\t,;| "
_COMMENTS = ("#", "%")
NUMBER = re.compile(r"\s*([+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf(inity)?)|)\s*", re.IGNORECASE)
"""A number, or nothing."""


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """The layout of a CSV file.

    Attributes:
        delimiter: one character.
        has_header: whether the first line names the columns, or, of a part file, that of another part.
        column_names: from the header, or "0", "1", ... without one.
        skipped_lines: before the first row: comments and the header.
    """

    delimiter: str
    has_header: bool
    column_names: tuple[str, ...]
    skipped_lines: int


def compression_of(path: Path) -> str | None:
    """Return Arrow's name of the compression for a file's suffix, in lower or upper case."""
    return pa.Codec.detect(str(path).lower()).name if path.suffix.lower() in COMPRESSED else None


def open_bytes(path: Path) -> pa.NativeFile:
    """Open a file, decompressed by its suffix (.gz, .bz2, .zst)."""
    return pa.input_stream(str(path), compression=compression_of(path), buffer_size=1 << 20)


@contextmanager
def read_errors_said(path: Path) -> Iterator[None]:
    """While a file is read: raise InputError, which names it, for whatever reading and decompressing raise."""
    try:
        yield
    except (OSError, EOFError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)}); fetch or write the file again") from error


def count_rows_roughly(path: Path, num_bytes: int) -> int:
    """Estimate the rows of a file from the lines in its first `num_bytes` and the share of the file that they take.

    A decompressor reads ahead, so a compressed file needs 16 times as many bytes for the same precision.
    """
    with read_errors_said(path), pa.OSFile(str(path)) as raw:
        compression = compression_of(path)
        opened = raw if compression is None else pa.CompressedInputStream(raw, compression)
        num_lines = opened.read(num_bytes if compression is None else 16 * num_bytes).count(b"\n")
        return num_lines * raw.size() // max(raw.tell(), 1)


def read_lines(path: Path) -> Iterator[str]:
    """Read a file line by line, decompressed; bytes that are not UTF-8 become question marks."""
    with (
        read_errors_said(path),
        open_bytes(path) as file,
        io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline=None) as text,
    ):
        while line := text.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES:
                raise InputError(f"{path}: has a line of more than {MAX_LINE_BYTES} bytes")
            yield line


def is_blank(path: Path) -> bool:
    """Whether a file has only blank lines; False if it cannot be read, which its reader will report."""
    try:
        return not any(line.strip() for line in read_lines(path))
    except InputError:
        return False


def split_line(line: str, delimiter: str) -> list[str]:
    """Split one line at its delimiters, quotes removed."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a cell of more than 128 KiB, or with a carriage return
        return line.split(delimiter)


def find_layout(path: Path, requests: Sequence[Request], delimiter: str | None, has_header: bool | None) -> CsvLayout:
    """Detect the layout of a file.

    Args:
        path: the file.
        requests: the requested fields; a header is recognised by their names.
        delimiter: None: detect it.
        has_header: None: detect it.
    """
    num_comments, first = 0, ""
    for line in read_lines(path):
        if line.strip() and not line.startswith(_COMMENTS):
            first = line
            break
        num_comments += 1
    if not first:
        raise InputError(f"{path}: empty, it has no rows")
    if delimiter is None:
        delimiter = next((sign for sign in _DELIMITERS if sign in first.rstrip("\n")), ",")
    cells = [cell.strip() for cell in split_line(first.rstrip("\r\n"), delimiter)]
    if has_header is None:
        has_header = _looks_like_header(path, cells, requests, first.strip())
    names = cells if has_header else [str(i) for i in range(len(cells))]
    return CsvLayout(delimiter, has_header, tuple(names), num_comments + has_header)


def _looks_like_header(path: Path, cells: list[str], requests: Sequence[Request], line: str) -> bool:
    if all(NUMBER.fullmatch(cell) for cell in cells):
        return False
    positions = [str(i) for i in range(len(cells))]
    is_named = False
    for request in requests:
        try:
            by_name = resolve(request, cells, str(path))
        except MissingFieldError:
            is_named = is_named or not (request.is_default or request.is_optional)
            continue
        try:
            is_named = is_named or by_name != tuple(cells[int(position)] for position in resolve(request, positions, str(path)))
        except MissingFieldError:
            is_named = True
    if not is_named and (len(cells) == 1 or all(request.is_optional for request in requests)):
        return False
    if not is_named:
        raise UsageError(
            f"{path}: cannot tell whether the first line ({line[:60]!r}) is a header. "
            f"Say {argument('header', True)} and name the columns, or {argument('header', False)} and give their positions"
        )
    return True
