"""What is said between the processes of a partition, over a stream: who is there, which rows are wanted, and the rows.

In: numbers and buffers. Out: bytes, and back. Invariant: nothing that arrives is interpreted but as numbers of a fixed size, rows of a
known size, and the text of an error. All numbers are little-endian.

    hello     magic, token, rank, part, digest of the partition; answered in the same form
    request   table, number of rows; their ids, int32 or int64 as the table has them
    answer    in pieces, so that rows are gathered, on their way and put in place at the same time: status, number of bytes; the next rows,
              field by field of the table, or the text of an error, which ends it
"""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

MAGIC = b"penstk02"
TOKEN_BYTES = 32
BYE = -1
"""In place of a table: this process will ask for nothing more."""

PIECE_BYTES = 1 << 19
"""Of an answer, that are sent at once, one row at least: what caches of processors hold."""

DONE, FAILED = 0, 1
_HELLO, _HEADER = struct.Struct(f"<8s{TOKEN_BYTES}sqq16s"), struct.Struct("<qq")
_MOST_TEXT = 1 << 16


class Hello(NamedTuple):
    """The introduction of a process. `token`: a secret of the processes of one run; `digest`: of the partition, 16 hex digits."""

    token: bytes
    rank: int
    part: int
    digest: str

    def to_bytes(self) -> bytes:
        """Encode it for sending."""
        return _HELLO.pack(MAGIC, self.token, self.rank, self.part, self.digest.encode())


class Strange(Exception):
    """What arrived is not what a process of a partition says."""


def rows_of_a_piece(row_bytes: int) -> int:
    """Rows that a piece of an answer has, if there are so many."""
    return max(1, PIECE_BYTES // max(row_bytes, 1))


def send(end: socket.socket, first: int, second: int, *buffers: Any) -> None:
    """Send a header of two numbers, and what belongs to it."""
    end.sendall(_HEADER.pack(first, second))
    for buffer in buffers:
        end.sendall(buffer)


def receive(end: socket.socket) -> tuple[int, int]:
    """Wait for a header; raises EOFError where the stream ends before it."""
    found = bytearray(_HEADER.size)
    receive_into(end, memoryview(found))
    return _HEADER.unpack(found)


def receive_hello(end: socket.socket) -> Hello:
    """Wait for a hello."""
    found = bytearray(_HELLO.size)
    receive_into(end, memoryview(found))
    magic, token, rank, part, digest = _HELLO.unpack(found)
    if magic != MAGIC:
        raise Strange
    return Hello(token, rank, part, digest.decode("ascii", "replace"))


def receive_text(end: socket.socket, num_bytes: int) -> str:
    """Wait for the text of an error."""
    if not 0 <= num_bytes <= _MOST_TEXT:
        raise Strange
    found = bytearray(num_bytes)
    receive_into(end, memoryview(found))
    return found.decode("utf-8", "replace")


def send_error(end: socket.socket, message: str) -> None:
    """Answer with the text of an error."""
    text = message.encode()[:_MOST_TEXT]
    send(end, FAILED, len(text), text)


def receive_into(end: socket.socket, buffer: Any) -> None:
    """Fill a buffer of bytes; raises EOFError where the stream ends before that."""
    view, done = memoryview(buffer), 0
    while done < len(view):
        count = end.recv_into(view[done:])
        if count == 0:
            raise EOFError
        done += count


def prepare(end: socket.socket) -> None:
    """Have small messages go out at once, and a peer whose machine is gone noticed in the end."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
