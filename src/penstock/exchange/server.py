"""The threads that serve rows of this process's part to other processes.

In: connections, over each of which a process sends one request after another. Out: rows, or an error message. Invariants: each connection
has a thread, so that a slow one delays no other; an error is reported to the process that sent the request, and affects no other
connection.
"""

from __future__ import annotations

import hmac
import logging
import socket
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

import numpy as np

from penstock.errors import TierError
from penstock.exchange import wire
from penstock.exchange.draws import DrawTable
from penstock.exchange.tables import Table

logger = logging.getLogger("penstock")

HELLO_S = 10.0
"""Seconds within which a new connection must send its hello."""
_AGAIN_S = 1.0
MOST_ROWS = 1 << 31
"""Most rows per request; no batch needs more. A sample may request a row many times, so more rows than the table has are allowed."""


class Server:
    """Serves the tables of a part.

    Args:
        door: the listening socket.
        us: the answer to a hello.
        tables: of this part.
    """

    def __init__(self, door: socket.socket, us: wire.Hello, tables: Sequence[Table | DrawTable]) -> None:
        self._door, self._us, self._tables = door, us, tables
        self._ends: set[socket.socket] = set()
        self._lock, self._is_over = threading.Lock(), False
        self._goodbyes, self._heard = set[int](), threading.Condition()
        self._sessions = dict[int, bytes]()
        threading.Thread(target=self._accept, name="penstock-exchange-door", daemon=True).start()

    def close(self) -> None:
        """Stop serving. May be called several times."""
        with self._lock:
            self._is_over, ends = True, list(self._ends)
        for end in (self._door, *ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def wait_for_goodbyes(self, ranks: Collection[int], timeout_s: float) -> set[int]:
        """Wait until all of these processes have said goodbye; returns those that have not within `timeout_s`."""
        with self._heard:
            self._heard.wait_for(lambda: self._goodbyes.issuperset(ranks), timeout_s)
            return set(ranks) - self._goodbyes

    def _accept(self) -> None:
        while not self._is_over:
            try:
                self._begin(self._door.accept()[0])
            except (OSError, RuntimeError) as error:  # too many open files, or threads
                if not self._is_over:
                    logger.warning("rank %d lets nobody in for now: %s", self._us.rank, error)
                    time.sleep(_AGAIN_S)

    def _begin(self, end: socket.socket) -> None:
        with self._lock:
            if not self._is_over:
                threading.Thread(target=self._serve, args=(end,), name="penstock-exchange", daemon=True).start()
                self._ends.add(end)
                return
        end.close()

    def _serve(self, end: socket.socket) -> None:
        try:
            wire.prepare(end)
            end.settimeout(HELLO_S)
            hello = wire.receive_hello(end)
            if not hmac.compare_digest(hello.token, self._us.token):
                return
            with self._lock:
                if self._sessions.setdefault(hello.rank, hello.session) != hello.session:
                    return  # it joins again, by the same addresses: this process does not yet, or never will
            end.sendall(self._us.to_bytes())
            end.settimeout(None)
            while True:
                self._answer(end, hello.rank)
        except (EOFError, OSError, wire.Strange):
            pass  # gone, or not a process of this partition
        except Exception:
            logger.exception("a thread that gives rows to other processes failed")
        finally:
            with self._lock:
                self._ends.discard(end)
            end.close()

    def _answer(self, end: socket.socket, rank: int) -> None:
        number, count = wire.receive(end)
        if number == wire.BYE:
            with self._heard:
                self._goodbyes.add(rank)
                self._heard.notify_all()
            return
        if not (0 <= number < len(self._tables) and 0 <= count <= MOST_ROWS):
            raise wire.Strange
        table = self._tables[number]
        ids = np.empty(count, table.id_dtype)
        wire.receive_into(end, ids.view(np.uint8))
        pieces = table.answer(ids.astype(np.int64, copy=False), self._us.part)
        while True:
            try:
                rows = next(pieces, None)
            except Exception as error:
                told = str(error) if isinstance(error, TierError) else f"{type(error).__name__}: {error}"
                wire.send_error(end, told)
                return
            if rows is None:
                return
            wire.send(end, wire.DONE, sum(each.nbytes for each in rows), *rows)
