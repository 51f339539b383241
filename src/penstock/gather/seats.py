"""Seats, by which the ranks that share a cache find each other. Each rank passes its seat to its loader.

In: the number of ranks, in the process that starts them, or a `torch.distributed` group. Out: seats, small and picklable. A seat names a
socket without a file, so that no file is left behind. It also has a secret: since messages are pickled, every connection must present it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import socket
import struct
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from penstock.errors import UsageError

_NUM_WAITING = 64


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank's place among the ranks that share a cache, for one loader. Made by `shard_seats` or `shard_seat_of_group`.

    Attributes:
        rank, num_ranks: rank r keeps rows v with v % num_ranks = r.
        token: a secret of the ranks.
        timeout_s: seconds that a loader waits for the loaders of the other ranks.
    """

    rank: int
    num_ranks: int
    token: bytes = field(repr=False)
    timeout_s: float

    def open_door(self) -> socket.socket:
        """Return the socket to which other ranks connect. Raises UsageError if the seat is taken."""
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            door.bind(self._address(self.rank))
        except OSError as error:
            door.close()
            if error.errno != errno.EADDRINUSE:
                raise
            raise UsageError(
                f"shards: seat {self.rank} of {self.num_ranks} is taken: every rank has a seat of its own, and every loader "
                "of a rank too; make more by shard_seats"
            ) from None
        door.listen(_NUM_WAITING)
        return door

    def connect(self, rank: int) -> Connection:
        """Return a connection to a rank's door; OSError if it has none."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            end.connect(self._address(rank))
            if not is_ours(end):  # another user took the name after the rank had ended: send nothing, accept nothing
                raise ConnectionRefusedError(errno.ECONNREFUSED, "another user listens there")
            connection = Connection(end.detach())
        finally:
            end.close()
        connection.send_bytes(self.token)
        return connection

    def _address(self, rank: int) -> bytes:
        """Return a name that does not reveal the token, since all users of the machine can list such names."""
        return b"\0penstock-shard-" + hashlib.sha256(self.token + b"%d" % rank).hexdigest()[:24].encode()


def is_ours(end: socket.socket) -> bool:
    """Whether the process at the other end belongs to the same user, according to the system; checked before anything is sent."""
    _, user, _ = struct.unpack("iII", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    return user == os.geteuid()


def shard_seats(num_ranks: int, *, timeout_s: float = 300.0) -> list[Seat]:
    """Return a seat per rank, for one loader in each of `num_ranks` processes of this machine. The loaders must be made at the same time.

    Args:
        num_ranks: number of processes, at least 1. Give seat r to rank r.
        timeout_s: seconds that a loader waits for the loaders of the other ranks.
    Raises:
        UsageError: `num_ranks` is below 1.
    """
    if num_ranks < 1:
        raise UsageError(f"a cache is shared by 1 rank or more, got {num_ranks}")
    token = secrets.token_bytes(32)
    return [Seat(rank, num_ranks, token, timeout_s) for rank in range(num_ranks)]


def shard_seat_of_group(group: Any = None, *, timeout_s: float = 300.0) -> Seat:
    """Return this rank's seat, for one loader: the ranks of a `torch.distributed` group that are on this machine share a cache.

    All ranks of the group must call it at the same point.

    Args:
        group: the group; None: the default group.
        timeout_s: seconds that a loader waits for the loaders of the other ranks.
    Raises:
        UsageError: `torch.distributed` is not initialised.
    """
    import torch.distributed as dist

    from penstock.exchange.aside import gather_objects

    if not dist.is_available() or not dist.is_initialized():
        raise UsageError(
            "shard_seat_of_group is for ranks of torch.distributed: call init_process_group first, or pass seats from shard_seats"
        )
    said = gather_objects((socket.gethostname(), secrets.token_bytes(32)), group)
    here = [rank for rank, (name, _) in enumerate(said) if name == socket.gethostname()]
    return Seat(here.index(dist.get_rank(group)), len(here), said[here[0]][1], timeout_s)
