"""The processes of a partition, as one that asks sees them.

In: addresses. Out: connections, each for one read at a time, kept for the next. Invariant: no wait is without an end, and who is gone or
silent is named.
"""

from __future__ import annotations

import os
import queue
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np

from penstock.errors import InputError, TierError, reason_of
from penstock.exchange import wire

_RETRY_S = 0.05


class Address(NamedTuple):
    """Host and port of a process."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Asked:
    """A question under way."""

    def __init__(self, peer: Peer, end: socket.socket) -> None:
        self._peer, self._end = peer, end

    def pieces(self, num_rows: int, row_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        """Wait for so many rows: yield (number of the first, uint8[n * row_bytes]) as they come, field by field of each piece; memory that
        the next piece takes again. To the end, once."""
        step = wire.rows_of_a_piece(row_bytes)
        room = np.empty(min(step, num_rows) * row_bytes, np.uint8)
        for first in range(0, num_rows, step):
            piece = room[: min(step, num_rows - first) * row_bytes]
            with self._peer.naming(self._end):
                status, size = wire.receive(self._end)
                if status == wire.FAILED:
                    message = wire.receive_text(self._end, size)
                    self._peer.keep(self._end)
                    raise TierError(f"{self._peer} could not give rows of its part: {message}")
                if (status, size) != (wire.DONE, piece.size):
                    raise wire.Strange
                wire.receive_into(self._end, piece)
            yield first, piece
        self._peer.keep(self._end)

    def drop(self) -> None:
        """Do not wait for the answer."""
        self._end.close()


class Peer:
    """A process that has a part.

    Args:
        address: where it answers.
        us: what this process says to it.
        rank, part: of it.
        timeout_s: how long it may take to answer.
    """

    def __init__(self, address: Address, us: wire.Hello, rank: int, part: int, timeout_s: float) -> None:
        self.address, self.rank, self.part, self._us, self._timeout_s = address, rank, part, us, timeout_s
        self._idle: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._is_over, self._pid = False, os.getpid()

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.address})"

    def ask(self, table: int, ids: np.ndarray) -> Asked:
        """Ask for rows of a table; `ids`: as it travels."""
        end = self._take()
        with self.naming(end):
            wire.send(end, table, ids.size, ids.view(np.uint8))
        return Asked(self, end)

    def say_goodbye(self) -> bool:
        """Tell it that nothing more will be asked for; returns whether it is there."""
        try:
            end = self._take()
            with self.naming(end):
                wire.send(end, wire.BYE, 0)
        except TierError:
            return False
        self.keep(end)
        return True

    def connect(self, deadline: float) -> None:
        """Connect for the first time, and wait for it to be there until `deadline` (of the monotonic clock)."""
        while True:
            try:
                self.keep(self._open())
            except ConnectionError as error:
                if time.monotonic() > deadline:
                    raise TierError(
                        f"{self} has not answered ({reason_of(error)}): every process joins the same partition at the same point, by "
                        "the same addresses in the same order; is it running, and reached by this address and port?"
                    ) from None
                time.sleep(_RETRY_S)
            except OSError as error:
                if isinstance(error, TierError):
                    raise
                raise TierError(f"{self} is not reached: {reason_of(error)}") from None
            else:
                return

    def keep(self, end: socket.socket) -> None:
        """Keep a connection that is at rest."""
        if self._is_over:
            end.close()
        else:
            self._idle.put(end)

    def close(self) -> None:
        """Let go of all connections at rest, and keep none from now on."""
        self._is_over = True
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    @contextmanager
    def naming(self, end: socket.socket) -> Iterator[None]:
        """Around what is said over a connection: what goes wrong ends it, and is said of this process."""
        try:
            yield
        except TierError:
            raise
        except BaseException as error:
            end.close()
            if isinstance(error, TimeoutError):
                raise TierError(f"{self} has not answered for {self._timeout_s:g} s: it stands still, or is not reached") from None
            if isinstance(error, (EOFError, OSError)):
                raise TierError(f"{self} has ended: its part is gone; start all processes again, and resume") from None
            if isinstance(error, wire.Strange):
                raise InputError(f"{self} answers what was not asked: are all processes of one version?") from None
            raise

    def _take(self) -> socket.socket:
        if self._is_over:
            raise TierError(f"{self} is asked for nothing more: the graph was closed")
        if self._pid != os.getpid():  # a forked child: these connections are its parent's
            self._idle, self._pid = queue.SimpleQueue(), os.getpid()
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        try:
            return self._open()
        except TierError:
            raise
        except OSError as error:
            raise TierError(f"{self} is gone: {reason_of(error)}") from None

    def _open(self) -> socket.socket:
        """Connect and say hello; OSError where nobody answers."""
        end = socket.create_connection(self.address, self._timeout_s)
        try:
            wire.prepare(end)
            end.sendall(self._us.to_bytes())
            found = wire.receive_hello(end)
        except (EOFError, wire.Strange):
            end.close()
            raise ConnectionRefusedError("somebody else is there, or it joined otherwise") from None
        except BaseException:
            end.close()
            raise
        wanted = self.rank, self.part, self._us.digest
        if (found.rank, found.part, found.digest) != wanted:
            end.close()
            theirs = f"part {found.part} of partition {found.digest} as rank {found.rank}"
            raise TierError(
                f"{self} has {theirs}, and part {self.part} of {self._us.digest} is looked for: join the same partition everywhere, by the "
                "same addresses in the same order"
            )
        return end
