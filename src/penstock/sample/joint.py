"""Joint reads: positions that threads ask for while a read is under way are read together after it.

In: positions of neighbours, from any number of threads. Out: the neighbours. Invariants: each thread gets what it would read alone; an
error of a joint read is raised in all threads that took part; no thread waits long for one that does not come.
Why: batches that are sampled at the same time need lists that are near each other on the disk, and one request reads such lists. So the
threads stay in step: all draw a hop, and one reads for all.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from penstock.kernels.move_rows import cpu
from penstock.store.budget import require_room
from penstock.store.tiers import Tier
from penstock.threads import Guard

MOST_AT_ONCE = 1 << 20
"""Most positions of a joint read."""
_BYTES_PER_POSITION = 80
"""Most memory of a read per position: its request in the plan, the neighbour, and the place of the neighbour."""
_FORKED = Guard()
"""In a forked child, lets one thread make a new state."""
LINGER_S = 0.05, 0.2
"""Least and most time that a read waits for the threads that took part in the read before. In between, it waits as long as that read took.
Meanwhile these threads draw the next hop or begin the next batch."""
_IN_VAIN_S = 0.001
"""If the threads do not come in time, the least wait shrinks, down to this. With many edge types, each read by itself, threads are at
different types."""


@dataclass(eq=False, slots=True)
class _Wish:
    """What a thread waits for: the neighbour at positions[i] in element places[i] of `out`, uint8."""

    positions: np.ndarray
    out: np.ndarray
    places: np.ndarray
    num_bytes: int = 0
    error: BaseException | None = None
    is_over: bool = False
    thread: int = field(default_factory=threading.get_ident)


def joint_bytes(num_threads: int, num_positions: int) -> int:
    """Bytes that joint reads take if each thread asks for `num_positions`. The positions of one thread are always read at once."""
    return _BYTES_PER_POSITION * max(num_positions, min(num_threads * num_positions, MOST_AT_ONCE))


class JointReads:
    """Reads from a tier whose rows are single elements, for many threads: one thread reads for all that wait.

    Args:
        tier: has the elements; one field.
    """

    def __init__(self, tier: Tier) -> None:
        self._tier, (self._width,) = tier, tier.row_bytes
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._linger_s = self._least_s = LINGER_S[0]
        self._wishes: list[_Wish] = []
        self._reader: _Wish | None = None  # wish of the thread that reads for all
        self._taken: list[_Wish] = []  # wishes that it reads, its own included
        self._expected: set[int] = set()
        self._pid = os.getpid()  # last: a thread that sees this pid sees all other attributes

    def read(self, positions: np.ndarray, out: np.ndarray, places: np.ndarray) -> int:
        """Read int64[n] `positions` to the elements int64[n] `places` of uint8 `out`. Returns bytes. Raises TierError, or BudgetError if
        the read does not fit into the memory limit of this process's container."""
        if self._pid != os.getpid():  # in a forked child no thread ends the reads of the parent's threads
            with _FORKED.lock:
                if self._pid != os.getpid():
                    self._begin()
        if positions.size > MOST_AT_ONCE:
            what = f"a read of {positions.size:,} neighbours at once"
            require_room(_BYTES_PER_POSITION * positions.size, what, "take smaller fanouts, or more memory")
        wish = _Wish(positions, out, places)
        try:
            together = self._join(wish)
            if together:
                self._read_together(together)
        except BaseException:  # this thread is interrupted
            self._leave(wish)
            raise
        if wish.error is not None:
            raise copy.copy(wish.error) from wish.error  # each thread raises a copy, with a traceback of its own
        return wish.num_bytes

    def _join(self, wish: _Wish) -> list[_Wish]:
        """Wait until another thread has fulfilled the wish, and return []; or return the wishes that this thread must fulfil."""
        with self._lock:
            self._wishes.append(wish)
            self._changed.notify_all()
            self._changed.wait_for(lambda: wish.is_over or self._reader is None)
            if wish.is_over:
                return []
            self._reader = wish
            have_come = self._changed.wait_for(lambda: self._expected <= {each.thread for each in self._wishes}, self._linger_s)
            self._least_s = min(1.25 * self._least_s, LINGER_S[0]) if have_come else max(self._least_s / 2, _IN_VAIN_S)
            taken, count = [wish], wish.positions.size
            for each in self._wishes:
                if each is not wish and count + each.positions.size <= MOST_AT_ONCE:
                    taken.append(each)
                    count += each.positions.size
            self._wishes = [each for each in self._wishes if each not in taken]
            self._expected = {each.thread for each in taken}
            self._taken = taken
            return taken

    def _leave(self, wish: _Wish) -> None:
        """Withdraw a wish. No thread waits for its thread or writes to its memory any more; wishes that its thread should have fulfilled
        are open again."""
        with self._lock:
            wish.is_over = True
            self._wishes = [each for each in self._wishes if each is not wish]
            if self._reader is wish:
                self._wishes += [each for each in self._taken if not each.is_over]
                self._reader, self._taken = None, []
            self._changed.notify_all()

    def _read_together(self, wishes: list[_Wish]) -> None:
        started = time.perf_counter()
        try:
            self._read(wishes)
        except Exception as error:
            for wish in wishes:
                wish.error = error
        with self._lock:
            self._linger_s = min(max(time.perf_counter() - started, self._least_s), LINGER_S[1])
            for wish in wishes:
                wish.is_over = True
            self._reader, self._taken = None, []
            self._changed.notify_all()

    def _read(self, wishes: list[_Wish]) -> None:
        if len(wishes) == 1:
            (one,) = wishes
            one.num_bytes = self._tier.submit(one.positions, [one.out], one.places).wait()
            return
        positions = np.concatenate([wish.positions for wish in wishes])
        found, begin = np.empty(positions.size * self._width, np.uint8), 0
        self._tier.submit(positions, [found], np.arange(positions.size)).wait()
        for wish in wishes:
            own = np.arange(begin, begin + wish.positions.size)
            cpu.move_rows(found, own, wish.out, wish.places, self._width)
            wish.num_bytes, begin = own.size * self._width, begin + own.size
