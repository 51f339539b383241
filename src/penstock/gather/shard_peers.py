"""The ranks that share a cache, as seen by a reader: which ones to ask, and which ones are gone.

In: a seat, and the shards of this rank. Out: the shards of all ranks, and conversations with their owners. Invariants: every wait ends; if
a rank is gone, the reader gets `Gone`, and continues without it.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from penstock.cache.shard import Shard
from penstock.errors import InputError, TierError
from penstock.gather.seats import Seat
from penstock.gather.shard_owner import Export, NotShown, Owner, here
from penstock.kernels._cuda import identity

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("penstock")

_PATIENCE_S = 60.0
_RETRY_S = 0.02


class Gone(Exception):
    """The rank no longer keeps a shard."""


class Talk:
    """A conversation with an owner, about one batch at a time."""

    def __init__(self, peer: Peer, connection: Connection) -> None:
        self._peer, self._connection = peer, connection

    def say(self, *message: Any) -> None:
        """Send a message."""
        try:
            self._connection.send(message)
        except OSError:
            raise self._gone() from None

    def hear(self) -> Any:
        """Wait for the answer. Raises Gone if the rank has ended, TierError if it does not answer in 60 s."""
        try:
            if self._connection.poll(_PATIENCE_S):
                return self._connection.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        self._connection.close()  # else a late answer would be taken for the answer to the next message
        self._peer.lose("does not answer")
        raise TierError(
            f"the shard of rank {self._peer.rank} has not answered for {_PATIENCE_S:.0f} s: that rank, or one that reads there, hangs; "
            "end it, and the others continue without it"
        )

    def call(self, *message: Any) -> Any:
        """Send a message, and wait for the answer."""
        self.say(*message)
        return self.hear()

    def end(self) -> None:
        """End the conversation, when no answer is outstanding."""
        self._peer.idle.append(self)

    def hang_up(self) -> None:
        """Disconnect, even if an answer is outstanding; the owner notices."""
        self._connection.close()

    def _gone(self) -> Gone:
        self._connection.close()
        self._peer.lose("has ended")
        return Gone()


class Peer:
    """A rank, possibly this process's own.

    Attributes:
        rank: see `Seat`.
        is_gone: the rank no longer keeps rows.
        idle: conversations that can be reused.
    """

    def __init__(self, seat: Seat, rank: int) -> None:
        self._seat, self.rank, self.is_gone = seat, rank, False
        self.idle: list[Talk] = []

    def talk(self) -> Talk:
        """Return a conversation for this caller only. Raises Gone."""
        if self.is_gone:
            raise Gone
        try:
            return self.idle.pop()
        except IndexError:
            pass
        try:
            return Talk(self, self._seat.connect(self.rank))
        except OSError:
            self.lose("has ended")
            raise Gone from None

    def lose(self, why: str) -> None:
        """Treat the peer as gone from now on."""
        if not self.is_gone:
            self.is_gone = True
            logger.warning("rank %d of %d %s: rows of its shard are read from the tier below", self.rank, self._seat.num_ranks, why)


class ShardGroup:
    """The ranks that share a cache, as seen by this rank.

    Args:
        seat: of this rank.
    Attributes:
        seat: of this rank. peers: all ranks, in order.
    """

    def __init__(self, seat: Seat) -> None:
        self.seat, self.peers = seat, [Peer(seat, rank) for rank in range(seat.num_ranks)]

    def open(self, shards: Mapping[Any, Shard], exports: Mapping[Any, Export]) -> list[Mapping[Any, Export]]:
        """Export the shards of this rank, and wait until every rank has exported its own and opened all others. Returns all exports, by
        rank. Raises TierError and InputError, see `open_shards`."""
        deadline = time.monotonic() + self.seat.timeout_s
        owner = Owner(self.seat, shards, exports)
        self.close = weakref.finalize(self, owner.close)
        """Stop keeping shards. It is called when the last user is dropped, and at the end of the program."""
        try:
            found = [exports if peer.rank == self.seat.rank else self._look(peer, deadline, owner) for peer in self.peers]
            if not owner.is_known.wait(max(0.0, deadline - time.monotonic())):
                raise self._missed(owner)
        finally:
            if owner.not_shown is not None:  # the other ranks know it, and may have ended
                raise self._not_shown(self.seat.rank, owner.not_shown) from None
        if errors := [one for one in found if isinstance(one, TierError)]:
            raise errors[0]
        seen = [one for one in found if not isinstance(one, TierError)]
        for rank, others in enumerate(seen):
            self._compare(exports, others, rank)
        return seen

    def _look(self, peer: Peer, deadline: float, owner: Owner) -> Mapping[Any, Export] | TierError:
        """Return the exports of a rank, or the error that they cannot be opened here. The caller raises it later, since other ranks wait
        for this one."""
        while True:
            try:
                talk = Talk(peer, self.seat.connect(peer.rank))
                shown = self._strange(peer.rank, talk.call("where")) or talk.call("look", os.getpid())
                shown = here[self.seat.token, peer.rank] if shown is None else shown
                talk.say("known", self.seat.rank)
            except (OSError, Gone) as error:
                if time.monotonic() > deadline or isinstance(error, Gone) or owner.not_shown is not None:
                    raise TierError(
                        f"rank {peer.rank} of {self.seat.num_ranks} has made no loader with its seat in {self.seat.timeout_s:.0f} s, or "
                        "has ended: make one in every rank, each with a seat of its own, at the same point"
                    ) from None
                time.sleep(_RETRY_S)
            else:
                if isinstance(shown, NotShown):
                    raise self._not_shown(peer.rank, shown)
                talk.end()
                return shown

    def _strange(self, rank: int, places: Mapping[torch.device, str | None]) -> TierError | None:
        """Return an error if a rank keeps rows on a device that has another number in this process, or none; else None. Memory is opened by
        the device's number."""
        for device, name in places.items():
            if identity(device) != name:
                return TierError(
                    f"rank {rank} of {self.seat.num_ranks} keeps rows on its {device}, which is another device or none for rank "
                    f"{self.seat.rank}: let every rank see all devices (the same CUDA_VISIBLE_DEVICES) and take its own by number, or "
                    "leave shards out"
                )
        return None

    def _not_shown(self, rank: int, said: NotShown) -> TierError:
        return TierError(
            f"rank {rank} of {self.seat.num_ranks} cannot give other processes the memory of its device ({said.why}): leave shards out, "
            "each device then has a cache of its own"
        )

    def _missed(self, owner: Owner) -> TierError:
        return TierError(
            f"ranks {sorted(owner._unknown_to)} of {self.seat.num_ranks} have not looked for the shard of rank {self.seat.rank} in "
            f"{self.seat.timeout_s:.0f} s: did they end?"
        )

    def _compare(self, ours: Mapping[Any, Export], theirs: Mapping[Any, Export], rank: int) -> None:
        def told(exports: Mapping[Any, Export]) -> str:
            kinds = (f"{one.num_rows} rows of {sum(one.row_bytes)} bytes of {key!r} by {one.policy}" for key, one in exports.items())
            return ", ".join(kinds) or "nothing"

        if {key: one[:3] for key, one in ours.items()} != {key: one[:3] for key, one in theirs.items()}:
            raise InputError(
                f"rank {self.seat.rank} shares {told(ours)}; rank {rank} shares {told(theirs)}: every rank loads the same graph by the "
                "same plan"
            )
