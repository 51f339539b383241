"""Rows out of a page that was read, to their places."""

from __future__ import annotations

from penstock.kernels._compile import helper
from penstock.kernels._memory import copy_bytes, load


@helper
def copy_rows(buffer, at, start, length, first, last, rows, places, row_bytes, data_offset, out):
    """Copy what of rows[first:last] lies in bytes [start, start + length) of the file, which are at buffer[at:], to `out`."""
    stop = start + length
    for i in range(first, last):
        begin = data_offset + load(rows, i) * row_bytes
        a, b = max(begin, start), min(begin + row_bytes, stop)
        copy_bytes(out, load(places, i) * row_bytes + a - begin, buffer, at + a - start, b - a)  # pyright: ignore[reportCallIssue]
