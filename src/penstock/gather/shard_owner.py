"""The thread that owns a rank's shards: only this thread decides what they hold, in the order in which readers ask.

In: connections of readers, of this rank and others. Out: the decisions and verdicts of `penstock.cache.shard`. A connection is one reader,
which asks about one batch after another. If a reader disconnects or its process ends, the owner notices at once, and the shard continues
without it.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import threading
import time
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.cache.shard import Shard, Verdicts
from penstock.gather.seats import Seat, is_ours
from penstock.kernels._cuda import identity

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("penstock")

_END_S = 2.0
"""Seconds that working readers have to finish when the owner ends."""


class NotShown(NamedTuple):
    """The reason why a rank cannot share its memory."""

    why: str


class Export(NamedTuple):
    """The description of a shard for other ranks.

    Attributes:
        num_rows, row_bytes: of the whole type; the same on every rank.
        policy: name of the policy.
        buffers: per field uint8[num_slots * row_bytes], memory of the owner's device; other ranks open it, too.
        slots: int32[num_ids] for a static policy; None if readers must ask.
    """

    num_rows: int
    row_bytes: tuple[int, ...]
    policy: str
    buffers: list[torch.Tensor]
    slots: np.ndarray | None


here: dict[tuple[bytes, int], Mapping[Any, Export]] = {}
"""Exports of owners in this process, by (token, rank): a device cannot open memory of its own process a second time."""


class Owner:
    """The owner of a rank's shards.

    Args:
        seat: readers connect to it.
        shards, exports: by node type.
    Attributes:
        is_known: set when all other ranks have opened the exports, or this rank cannot share its memory.
        not_shown: why it cannot share its memory; else None.
    """

    def __init__(self, seat: Seat, shards: Mapping[Any, Shard], exports: Mapping[Any, Export]) -> None:
        self._shards, self._exports, self._token = shards, exports, seat.token
        self._asked: dict[Connection, Shard | None] = {}  # the shard that each reader asked last
        self._strangers: set[Connection] = set()
        self._unknown_to = set(range(seat.num_ranks)) - {seat.rank}
        self.not_shown: NotShown | None = None
        self.is_known, self._pid, self._closing_at = threading.Event(), os.getpid(), 0.0
        if not self._unknown_to:
            self.is_known.set()
        self._door, self._place = seat.open_door(), (seat.token, seat.rank)
        here[self._place] = exports
        self._bell, self._ring = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, name="penstock-shard-owner", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Disconnect all readers, and end. May be called several times, and in a forked child."""
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                self._ring.send_bytes(b"x")
            if threading.current_thread() is not self._thread:
                self._thread.join(2 * _END_S)

    def _run(self) -> None:
        try:
            while not self._is_over():
                for one in wait([self._door, self._bell, *self._asked, *self._strangers], 0.1 if self._closing_at else None):
                    self._take(one)
        except Exception:
            logger.exception("a shard's owner failed: its rows are read from the tier below")
        finally:
            here.pop(self._place)
            for end in (self._door, self._bell, self._ring, *self._asked, *self._strangers):
                end.close()

    def _is_over(self) -> bool:
        if not self._closing_at:
            return False
        return time.monotonic() > self._closing_at + _END_S or not any(shard.is_at_work for shard in self._shards.values())

    def _take(self, one: Any) -> None:
        if one is self._door:
            with self._door.accept()[0] as end:
                if is_ours(end):  # other users could make this thread wait for the rest of a token
                    self._strangers.add(Connection(end.detach()))
        elif one is self._bell:
            self._bell.recv_bytes()
            self._closing_at = time.monotonic()
            for shard in self._shards.values():
                self._tell(shard.close())
        else:
            try:
                self._hear(one)
            except (EOFError, OSError):
                self._leave(one)

    def _hear(self, reader: Connection) -> None:
        if reader in self._strangers:
            if not hmac.compare_digest(reader.recv_bytes(len(self._token)), self._token):
                raise EOFError
            self._strangers.remove(reader)
            self._asked[reader] = None
            return
        verb, *said = reader.recv()
        shard = self._asked[reader]
        if verb == "where":
            reader.send({buffer.device: identity(buffer.device) for export in self._exports.values() for buffer in export.buffers})
        elif verb == "look":
            self._show(reader, None if said[0] == os.getpid() else self._exports)
        elif verb == "known":
            self._unknown_to.discard(said[0])
            if not self._unknown_to:
                self.is_known.set()
        elif verb == "decide":
            self._asked[reader] = shard = self._shards[said[0]]
            reader.send(shard.decide(reader, said[1]))
        elif verb == "ready" and shard is not None:
            self._tell(shard.ready(reader))
        elif verb == "lost" and shard is not None:
            self._tell(shard.lost(reader))
        elif verb == "done":  # the answer confirms that the rows were there while they were read; readers of static shards send only this
            reader.send(True)
            self._tell([] if shard is None else shard.done(reader))

    def _show(self, reader: Connection, exports: Mapping[Any, Export] | None) -> None:
        try:
            reader.send(exports)
        except OSError:
            raise
        except Exception as error:  # the driver does not share the device's memory with other processes
            self.not_shown = NotShown(f"{type(error).__name__}: {error}")
            self.is_known.set()
            reader.send(self.not_shown)

    def _leave(self, reader: Connection) -> None:
        """Forget a reader that is gone."""
        self._strangers.discard(reader)
        shard = self._asked.pop(reader, None)
        reader.close()
        if shard is not None:
            self._tell(shard.left(reader))

    def _tell(self, verdicts: Verdicts) -> None:
        for reader, may_go in verdicts:
            with contextlib.suppress(OSError):  # a disconnection is handled elsewhere
                assert isinstance(reader, Connection)
                reader.send(may_go)
