"""One device's shard of a shared cache: its decisions, and the turns of its readers. Pure logic: no threads, no clocks, no rows.

In: calls of readers, one after the other. Out: changes, and verdicts: (reader, whether it may proceed). Invariants: one reader works at a
time, in the order of decisions, so that each finds the content that its decision assumed; no reader proceeds whose decision relies on rows
that never arrived. A reader has at most one decision under way: it calls `ready` when it has read its misses, waits for its verdict, works,
and then calls `done`. Source: BGL 3.2.3, one thread per cache that takes queries and updates in order, in place of locks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum, auto

import numpy as np

from penstock.cache.policy import Change, Policy

Verdicts = list[tuple[Hashable, bool]]


class _State(Enum):
    READING = auto()
    READY = auto()
    WORKING = auto()
    LOST = auto()


def needs_turn(change: Change) -> bool:
    """Whether a decision has hits, or misses to keep, and so needs a turn."""
    return bool(change.inserted.size or (change.hit_slots >= 0).any())


def num_ids_of(num_rows: int, rank: int, num_ranks: int) -> int:
    """Return the number of rows that belong to a rank's shard."""
    return len(range(rank, num_rows, num_ranks))


def plan_shards(ranked: np.ndarray, capacity: int, num_ranks: int) -> np.ndarray:
    """Choose the initial content of shards of `capacity` rows each: for each shard its best rows of int64 `ranked`, which is best first."""
    is_kept = np.zeros(ranked.size, bool)
    for rank in range(num_ranks):
        is_kept[np.flatnonzero(ranked % num_ranks == rank)[:capacity]] = True
    return ranked[is_kept]


class Shard:
    """A shard; see the head of this file.

    Args:
        make_policy: makes an empty policy over the ids of this shard; called again if the content is lost.
        policy: the first policy; None: an empty one.
    Attributes:
        policy: the current one.
        is_closed: whether it makes no more decisions.
    """

    def __init__(self, make_policy: Callable[[], Policy], policy: Policy | None = None) -> None:
        self._make_policy, self.policy = make_policy, policy or make_policy()
        self.is_closed = False
        self._states: dict[Hashable, _State] = {}  # of readers whose turn is still to come, in the order of their decisions

    @property
    def is_at_work(self) -> bool:
        """Whether a reader is working: it was told to proceed, and is not done."""
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
        """A reader has read its misses. If the content that its decision assumed is gone, its verdict comes at once."""
        if reader not in self._states:
            return [(reader, False)]
        self._states[reader] = _State.READY
        return self._advance()

    def done(self, reader: Hashable) -> Verdicts:
        """A reader has copied out its hits, and copied in the misses to keep."""
        self._states.pop(reader, None)
        return self._advance()

    def lost(self, reader: Hashable) -> Verdicts:
        """The misses of a reader will never arrive. At its turn the shard starts again, empty, and all later decisions so far become
        void."""
        if reader in self._states:
            self._states[reader] = _State.LOST
        return self._advance()

    def left(self, reader: Hashable) -> Verdicts:
        """A reader is gone. If it was working, it may still be writing, so the shard keeps nothing from now on."""
        if self._states.get(reader) is not _State.WORKING:
            return self.lost(reader)
        del self._states[reader]
        return self.close()

    def close(self) -> Verdicts:
        """Make no more decisions. All decisions become void, except that a working reader may finish."""
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
