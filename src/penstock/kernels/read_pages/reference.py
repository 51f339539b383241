"""Read pages of a file into buffers and copy the rows in them to their places: the definition."""

from __future__ import annotations

import errno
from typing import Any

from penstock.kernels.read_pages.rules import DONE, ENDED, FAILED, NUM_TRIES


def read_pages(read_at, reads, end, block_bytes, rows, places, row_bytes, data_offset, out):
    """Carry out planned reads.

    Args:
        read_at: function (offset, length) -> bytes; may return fewer, at the end of the file or elsewhere; raises OSError.
        reads: (starts, lengths, firsts, lasts) of `plan_reads`.
        end: where in the file the last row ends; bytes after it may be missing.
        block_bytes: reads begin at multiples of it.
        rows, places: int64[n], ascending rows, and the place of each in `out`.
        row_bytes, data_offset: row r begins at byte data_offset + r * row_bytes.
        out: uint8[m * row_bytes]; its row places[i] receives row rows[i].
    Returns:
        (verdict, read, number): DONE, 0, 0; FAILED, the read, its errno; or ENDED, the read, the number of bytes it got.
    """
    for k, (start, length, first, last) in enumerate(zip(*reads, strict=True)):
        page, verdict = read_one(read_at, start, length, min(length, end - start), block_bytes)
        if verdict != DONE:
            return verdict, k, page
        for i in range(first, last):
            begin = data_offset + rows[i] * row_bytes
            a, b = max(begin, start), min(begin + row_bytes, start + length)
            to = places[i] * row_bytes + a - begin
            out[to : to + b - a] = memoryview(page)[a - start : b - start]
    return DONE, 0, 0


def read_one(read_at, start, length, needed, block_bytes) -> tuple[Any, int]:
    """Read until `needed` bytes have come. Returns (bytes, DONE), (errno, FAILED) or (number of bytes that came, ENDED)."""
    page, tries = b"", 0
    while True:
        try:
            came = read_at(start + len(page), length - len(page))
        except OSError as error:
            if error.errno in (errno.EINTR, errno.EAGAIN) and tries < NUM_TRIES:
                tries += 1
                continue
            return error.errno, FAILED
        if len(page) + len(came) >= needed:
            return page + came, DONE
        whole = (len(page) + len(came)) // block_bytes * block_bytes
        if whole > len(page):
            page, tries = (page + came)[:whole], 0
        elif not came or tries >= NUM_TRIES:
            return len(page) + len(came), ENDED
        else:
            tries += 1
