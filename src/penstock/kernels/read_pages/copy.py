"""Rows out of a page that was read, to their places."""

from __future__ import annotations

from penstock.kernels._compile import helper
from penstock.kernels._memory import WORD_PAIR, address_of, copy_bytes, load, stream_pair

LEAST_STREAMED = 1024
"""Bytes of a row or of the part that a page has of it: with shorter ones nothing was gained."""


@helper
def copy_rows(buffer, at, start, length, first, last, rows, places, row_bytes, data_offset, out, streams):
    """Copy what of rows[first:last] lies in bytes [start, start + length) of the file, which are at buffer[at:], to `out`.

    `streams`: past the caches, where rows are long and lie as the processor wants it. Whoever calls puts a fence behind.
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
