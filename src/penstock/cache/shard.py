"""One device's shard of a cache that several readers share: its decisions, and whose turn it is. Without threads, clocks or bytes.

In: the calls of readers, one after the other. Out: changes, and verdicts: (reader, whether it may proceed). Invariants: one reader works at
a time, in the order of the decisions, so that each finds the content as its decision assumed it; no reader proceeds whose decision rests on
rows that never came. A reader has at most one decision under way: it calls `ready` when it has read its misses, waits for its verdict,
works, and then calls `done`. Source: BGL 3.2.3, one thread per cache that takes queries and updates in order, in place of locks.
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
    """Whether a decision has hits, or misses to keep."""
    return bool(change.inserted.size or (change.hit_slots >= 0).any())


def num_ids_of(num_rows: int, rank: int, num_ranks: int) -> int:
    """Return the number of rows whose shard is a rank's."""
    return len(range(rank, num_rows, num_ranks))


def plan_shards(ranked: np.ndarray, capacity: int, num_ranks: int) -> np.ndarray:
    """Choose the initial content of shards of `capacity` rows each: for each the best of int64 rows `ranked`, best first."""
    is_kept = np.zeros(ranked.size, bool)
    for rank in range(num_ranks):
        is_kept[np.flatnonzero(ranked % num_ranks == rank)[:capacity]] = True
    return ranked[is_kept]


class Shard:
    """A shard; see the head of this file.

    Args:
        make_policy: makes an empty policy over the ids of this shard; called again where the content is lost.
        policy: the first one; None: an empty one.
    Attributes:
        policy: the current one.
        is_closed: whether it decides nothing any more.
    """

    def __init__(self, make_policy: Callable[[], Policy], policy: Policy | None = None) -> None:
        self._make_policy, self.policy = make_policy, policy or make_policy()
        self.is_closed = False
        self._states: dict[Hashable, _State] = {}  # of readers that have a turn to come, in the order of their decisions

    @property
    def is_at_work(self) -> bool:
        """Whether a reader is working: it may proceed, and is not done."""
        return _State.WORKING in self._states.values()

    def decide(self, reader: Hashable, ids: np.ndarray) -> Change | None:
        """Decide about distinct ids of this shard for a reader; None if it is closed. Without `needs_turn`, no turn follows."""
        if self.is_closed:
            return None
        change = self.policy.access(ids)
        if needs_turn(change):
            self._states[reader] = _State.READING
        return change

    def ready(self, reader: Hashable) -> Verdicts:
        """A reader has read its misses. If the content that it was promised is gone, its verdict comes at once."""
        if reader not in self._states:
            return [(reader, False)]
        self._states[reader] = _State.READY
        return self._advance()

    def done(self, reader: Hashable) -> Verdicts:
        """A reader has copied its hits out, and its kept misses in."""
        self._states.pop(reader, None)
        return self._advance()

    def lost(self, reader: Hashable) -> Verdicts:
        """The misses of a reader will never come. At its turn the shard begins again, empty, and all later decisions so far become void."""
        if reader in self._states:
            self._states[reader] = _State.LOST
        return self._advance()

    def left(self, reader: Hashable) -> Verdicts:
        """A reader is gone. If it was working, it may still be writing, so nothing is kept here from now on."""
        if self._states.get(reader) is not _State.WORKING:
            return self.lost(reader)
        del self._states[reader]
        return self.close()

    def close(self) -> Verdicts:
        """Decide nothing more. All decisions become void, but a reader that is working may finish."""
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
