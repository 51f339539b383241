"""Copy rows from a page that was read to their places."""

from __future__ import annotations

from penstock.kernels._compile import helper
from penstock.kernels._memory import WORD_PAIR, address_of, copy_bytes, load, stream_pair

LEAST_STREAMED = 1024
"""Least bytes of a row, or of its part on a page, that are copied past the caches: shorter ones gained nothing."""


@helper
def copy_rows(buffer, at, start, length, first, last, rows, places, row_bytes, data_offset, out, streams):
    """Copy the parts of rows[first:last] that lie in bytes [start, start + length) of the file from buffer[at:], which holds these bytes,
    to `out`.

    `streams`: copy long, aligned rows past the processor's caches. Then the caller must call `fence` afterwards.
    """
    stop = start + length
    for i in range(first, last):
        begin = data_offset + load(rows, i) * row_bytes
        a, b = max(begin, start), min(begin + row_bytes, stop)
        to, come_from, count = load(places, i) * row_bytes + a - begin, at + a - start, b - a
        if streams and count >= LEAST_STREAMED and (address_of(out) + to) % WORD_PAIR == 0:
            whole = count - count % WORD_PAIR
            for k in range(0, whole, WORD_PAIR):
                stream_pair(out, to + k, buffer, come_from + k)
            to, come_from, count = to + whole, come_from + whole, count - whole
        if count:
            copy_bytes(out, to, buffer, come_from, count)
