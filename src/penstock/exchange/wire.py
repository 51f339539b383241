"""The protocol between the processes of a partition, over a stream: introductions, requests for rows, and rows.

In: numbers and buffers. Out: bytes, and back. Invariant: received bytes are only interpreted as numbers of a fixed size, rows of a known
size, or the text of an error. All numbers are little-endian.

    hello     magic, token, rank, part, digest of the partition, session; answered in the same form
    request   table, number of rows; their ids, int32 or int64 as in the table
    answer    in pieces, so that gathering, sending and placing rows overlap: status, number of bytes; then the next rows, field by field,
              or the text of an error, which ends the answer
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

MAGIC = b"penstk04"
TOKEN_BYTES, SESSION_BYTES = 32, 8
BYE = -1
"""In place of a table number: this process sends no more requests."""

PIECE_BYTES = 1 << 19
"""Bytes of an answer that are sent at once, at least one row: a piece fits the processor's caches."""

DONE, FAILED = 0, 1
_HELLO, _HEADER = struct.Struct(f"<8s{TOKEN_BYTES}sqq16s{SESSION_BYTES}s"), struct.Struct("<qq")
_MOST_TEXT = 1 << 16


class Hello(NamedTuple):
    """The introduction of a process. `token`: a secret of the processes of one run; `digest`: of the partition, 16 hex digits; `session`:
    another one each time that the process joins."""

    token: bytes
    rank: int
    part: int
    digest: str
    session: bytes = bytes(SESSION_BYTES)

    def to_bytes(self) -> bytes:
        """Encode it for sending."""
        return _HELLO.pack(MAGIC, self.token, self.rank, self.part, self.digest.encode(), self.session)


class Strange(Exception):
    """Received data that no process of a partition would send."""


def rows_of_a_piece(row_bytes: int) -> int:
    """Return the rows per piece of an answer; the last piece may have fewer."""
    return max(1, PIECE_BYTES // max(row_bytes, 1))


def send(end: socket.socket, first: int, second: int, *buffers: Any) -> None:
    """Send a header of two numbers, then the buffers."""
    end.sendall(_HEADER.pack(first, second))
    for buffer in buffers:
        end.sendall(buffer)


def receive(end: socket.socket, goes_on: Callable[[], bool] = lambda: False) -> tuple[int, int]:
    """Wait for a header; raises EOFError if the stream ends first. `goes_on`: says after each timeout whether to wait again."""
    found = bytearray(_HEADER.size)
    receive_into(end, memoryview(found), goes_on)
    return _HEADER.unpack(found)


def receive_hello(end: socket.socket) -> Hello:
    """Wait for a hello."""
    found = bytearray(_HELLO.size)
    receive_into(end, memoryview(found))
    magic, token, rank, part, digest, session = _HELLO.unpack(found)
    if magic != MAGIC:
        raise Strange
    return Hello(token, rank, part, digest.decode("ascii", "replace"), session)


def receive_text(end: socket.socket, num_bytes: int) -> str:
    """Wait for the text of an error."""
    if not 0 <= num_bytes <= _MOST_TEXT:
        raise Strange
    found = bytearray(num_bytes)
    receive_into(end, memoryview(found))
    return found.decode("utf-8", "replace")


def send_error(end: socket.socket, message: str) -> None:
    """Answer with the text of an error."""
    text = message.encode(errors="replace")[:_MOST_TEXT]
    send(end, FAILED, len(text), text)


def receive_into(end: socket.socket, buffer: Any, goes_on: Callable[[], bool] = lambda: False) -> None:
    """Fill a buffer of bytes; raises EOFError if the stream ends first. `goes_on`: as of `receive`."""
    view, done = memoryview(buffer), 0
    while done < len(view):
        try:
            count = end.recv_into(view[done:])
        except TimeoutError:
            if goes_on():
                continue
            raise
        if count == 0:
            raise EOFError
        done += count


def prepare(end: socket.socket) -> None:
    """Set options of a socket: small messages are sent at once, and a peer whose machine is gone is noticed eventually."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
