"""The processes of a partition, as seen by a process that sends requests.

In: addresses. Out: connections, each for one read at a time, kept for later reads. Invariant: every wait has a timeout, and errors name the
process that is gone or silent. One that is silent, but answers a hello, is at work, and waited for longer: before its first answer it may
have to read all its edges.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np

from penstock.errors import InputError, TierError, reason_of
from penstock.exchange import wire

logger = logging.getLogger("penstock")

MOST_WAITS = 10
"""Times `timeout_s` that a process that is there may take for an answer."""
LOOK_S = 10.0
"""Seconds within which a process that is there answers a hello."""
_RETRY_S = 0.05
_SAY_S = 10.0


class Address(NamedTuple):
    """Host and port of a process."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _HangsError(Exception):
    """A process that is there has not answered for too long."""


class Asked:
    """A request under way."""

    def __init__(self, peer: Peer, end: socket.socket) -> None:
        self._peer, self._end = peer, end

    def pieces(self, num_rows: int, row_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the rows of the answer in pieces as they arrive: (number of the first row, uint8[n * row_bytes]), field by field within a
        piece. The next piece reuses the memory. Must be consumed to the end, once."""
        step = wire.rows_of_a_piece(row_bytes)
        room = np.empty(min(step, num_rows) * row_bytes, np.uint8)
        goes_on = self._peer.patience()
        for first in range(0, num_rows, step):
            piece = room[: min(step, num_rows - first) * row_bytes]
            with self._peer.naming(self._end):
                status, size = wire.receive(self._end, goes_on)
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
        """Close the connection without waiting for the answer."""
        self._end.close()


class Peer:
    """A process that has a part.

    Args:
        address: at which it listens.
        us: the introduction of this process.
        rank, part: of the peer.
        timeout_s: how long it may take to answer.
    """

    def __init__(self, address: Address, us: wire.Hello, rank: int, part: int, timeout_s: float) -> None:
        self.address = address
        self.rank = rank
        self.part = part
        self._us = us
        self._timeout_s = timeout_s
        self._idle: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._is_over, self._pid = False, os.getpid()

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.address})"

    def ask(self, table: int, ids: np.ndarray) -> Asked:
        """Request rows of a table; `ids`: in the dtype in which they are sent."""
        end = self._take()
        with self.naming(end):
            wire.send(end, table, ids.size, ids.view(np.uint8))
        return Asked(self, end)

    def say_goodbye(self) -> bool:
        """Tell the peer that this process sends no more requests; returns whether the peer is there."""
        try:
            end = self._take()
            with self.naming(end):
                wire.send(end, wire.BYE, 0)
        except TierError:
            return False
        self.keep(end)
        return True

    def connect(self, deadline: float) -> None:
        """Connect for the first time; waits for the peer to appear until `deadline` (monotonic clock): its machine may still be starting,
        and its name unknown until then."""
        said = time.monotonic() + _SAY_S
        while True:
            try:
                self.keep(self._open())
                return
            except TierError:
                raise
            except OSError as error:
                if time.monotonic() > deadline:
                    raise TierError(
                        f"{self} has not answered ({reason_of(error)}): every process joins the same partition at the same point, by "
                        "the same addresses in the same order; is it running, and reached by this address and port?"
                    ) from None
                if time.monotonic() > said:
                    logger.warning("rank %d waits for %s: %s", self._us.rank, self, reason_of(error))
                    said = math.inf
                time.sleep(_RETRY_S)

    def patience(self) -> Callable[[], bool]:
        """Return what says, each time that an answer has not come within the timeout, whether to wait on: the process is there, as it
        answers a hello, so that it is at work. `_HangsError` after `MOST_WAITS` times."""
        num_waits = 0

        def goes_on() -> bool:
            nonlocal num_waits
            num_waits += 1
            if not self._is_there():
                return False
            if num_waits == MOST_WAITS:
                raise _HangsError
            logger.warning("%s has not answered for %g s; it is there, and waited for", self, num_waits * self._timeout_s)
            return True

        return goes_on

    def _is_there(self) -> bool:
        try:
            self._open(min(self._timeout_s, LOOK_S)).close()
        except (OSError, TierError):
            return False
        return True

    def keep(self, end: socket.socket) -> None:
        """Keep an idle connection for later requests."""
        if self._is_over:
            end.close()
        else:
            self._idle.put(end)

    def close(self) -> None:
        """Close all idle connections, and keep none from now on."""
        self._is_over = True
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    @contextmanager
    def naming(self, end: socket.socket) -> Iterator[None]:
        """Context for communication over a connection: an error closes it, and is raised as one that names the peer."""
        try:
            yield
        except TierError:
            raise
        except BaseException as error:
            end.close()
            if isinstance(error, _HangsError):
                raise TierError(
                    f"{self} is there, and has not answered for {MOST_WAITS * self._timeout_s:g} s: its disk hangs, or it needs longer; "
                    "join with a larger timeout_s then"
                ) from None
            if isinstance(error, TimeoutError):
                raise TierError(
                    f"{self} has not answered for {self._timeout_s:g} s: it has stopped, or the network does not reach it"
                ) from None
            if isinstance(error, (EOFError, OSError)):
                raise TierError(f"{self} has ended: its part is gone; start all processes again, and resume") from None
            if isinstance(error, wire.Strange):
                raise InputError(f"{self} answers what was not asked: are all processes of one version?") from None
            raise

    def _take(self) -> socket.socket:
        if self._is_over:
            raise TierError(f"{self} is asked for nothing more: the graph was closed")
        if self._pid != os.getpid():  # a forked child: these connections belong to its parent
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

    def _open(self, timeout_s: float | None = None) -> socket.socket:
        """Connect and exchange hellos; OSError if nobody answers."""
        end = socket.create_connection(self.address, timeout_s or self._timeout_s)
        try:
            if end.getsockname() == end.getpeername():  # the system gave it the port that it looked for, where nobody listens
                raise EOFError
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
