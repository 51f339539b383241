"""One device's shard of a cache that several readers share: what it decides, and whose turn it is. Without threads, clocks or bytes.

In: what readers say, one after the other. Out: changes, and verdicts: (reader, whether it may go). Invariants: readers are at work one at a
time, in the order of their decisions, so that each finds the content as its decision assumed it; nobody whose decision rests on rows that
never came is let go. A reader has one decision under way at most; it says `ready` once it has read what it missed, waits for its verdict,
and then says `done`. Source: BGL 3.2.3, one thread per cache that takes queries and updates in order, in the place of locks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum, auto

import numpy as np

from penstock.cache.policy import Change, Policy

Verdicts = list[tuple[Hashable, bool]]


class _State(Enum):
    READING, READY, WORKING, LOST = auto(), auto(), auto(), auto()


def needs_turn(change: Change) -> bool:
    """Whether a decision is about anything that is here, or that shall be."""
    return bool(change.inserted.size or (change.hit_slots >= 0).any())


def num_ids_of(num_rows: int, rank: int, num_ranks: int) -> int:
    """Return how many of the rows are a rank's."""
    return len(range(rank, num_rows, num_ranks))


def plan_shards(ranked: np.ndarray, capacity: int, num_ranks: int) -> np.ndarray:
    """Choose what shards of `capacity` rows each begin with, of int64 rows `ranked` best first: the best of each, in the same order."""
    is_kept = np.zeros(ranked.size, bool)
    for rank in range(num_ranks):
        is_kept[np.flatnonzero(ranked % num_ranks == rank)[:capacity]] = True
    return ranked[is_kept]


class Shard:
    """See above.

    Args:
        make_policy: makes an empty policy over the ids of this shard; called again where the content is lost.
        policy: to begin with.
    Attributes:
        policy: the present one.
        is_closed: nothing is decided any more.
    """

    def __init__(self, make_policy: Callable[[], Policy], policy: Policy | None = None) -> None:
        self._make_policy, self.policy = make_policy, policy or make_policy()
        self.is_closed = False
        self._states: dict[Hashable, _State] = {}  # of those who have a turn to come, in the order of their decisions

    @property
    def is_at_work(self) -> bool:
        """A reader was let go, and has not said that it is done."""
        return _State.WORKING in self._states.values()

    def decide(self, reader: Hashable, ids: np.ndarray) -> Change | None:
        """A reader asks for distinct ids of this shard. None: it is closed. A change about nothing has no turn (see `needs_turn`)."""
        if self.is_closed:
            return None
        change = self.policy.access(ids)
        if needs_turn(change):
            self._states[reader] = _State.READING
        return change

    def ready(self, reader: Hashable) -> Verdicts:
        """A reader has read what it missed. One whose content is gone is told so at once."""
        if reader not in self._states:
            return [(reader, False)]
        self._states[reader] = _State.READY
        return self._advance()

    def done(self, reader: Hashable) -> Verdicts:
        """A reader has copied its hits out, and what is to be kept in."""
        self._states.pop(reader, None)
        return self._advance()

    def lost(self, reader: Hashable) -> Verdicts:
        """What a reader missed never comes. When its turn comes the shard begins again empty, and later decisions so far are void."""
        if reader in self._states:
            self._states[reader] = _State.LOST
        return self._advance()

    def left(self, reader: Hashable) -> Verdicts:
        """A reader is gone. One that was at work may be writing still, for all we know: nothing is kept here from now on."""
        if self._states.get(reader) is not _State.WORKING:
            return self.lost(reader)
        del self._states[reader]
        return self.close()

    def close(self) -> Verdicts:
        """Nothing is decided any more, and what was decided is void; who is at work may end it."""
        self.is_closed = True
        return self._void()

    def _advance(self) -> Verdicts:
        for reader, state in self._states.items():  # the first of them
            if state is _State.LOST:
                if not self.is_closed:
                    self.policy = self._make_policy()
                return self._void()
            if state is _State.READY:
                self._states[reader] = _State.WORKING
                return [(reader, True)]
            break
        return []

    def _void(self) -> Verdicts:
        waiting: Verdicts = [(reader, False) for reader, state in self._states.items() if state is _State.READY]
        self._states = {reader: state for reader, state in self._states.items() if state is _State.WORKING}
        return waiting
