"""A cached tier: a fast tier with rows that a policy chooses, over any slower tier.

In: row numbers of the whole type. Out: the rows. Invariant: policy, capacity, content and number of threads change only the time, never the
result.

A read is decided when it is submitted: the policy determines which rows are hits, and which misses to keep. It is committed in `wait`: hits
are copied out of the cache (by another thread, while this one waits for the slower tier, if earlier reads are committed), then the misses
to keep are copied in. Commits happen in the order of the decisions, so that each finds the cache as its decision assumed, no matter how
many threads submit and wait. Between decision and commit, any number of reads of the slower tier may be under way. A static policy, whose
content never changes, needs no order.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from penstock.cache.belady import Belady
from penstock.cache.policy import Change, Policy
from penstock.cache.static import Static
from penstock.errors import TierError, UsageError
from penstock.gather.spooled import SpooledTier
from penstock.gather.stack import around, stack_of
from penstock.records import Span
from penstock.store.tiers import DeviceTier, HostTier, Read, Tier, TierStats
from penstock.threads import Pending, Threads

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_PATIENCE_S = 600.0
_FILLED_AT_ONCE = 1 << 18
_BESIDE_BYTES = 1 << 20
"""Fewest bytes of hits that are worth another thread."""
_DRAIN_S = 2.0
"""Seconds that a new pass waits for reads of the pass before to end."""


class CachedTier:
    """Rows of a slower tier, some of them kept in memory of the host or of a device.

    Args:
        make_policy: makes an empty policy over the rows of `slow`; called again if the content is lost.
        slow: has all rows.
        content: int64[n], ids of the initial content, best first; their rows are read at construction.
        name: of the fast tier.
        reader: the device (see `tensor_device`) of the fast tier; `slow` reads into its memory. None: both use host memory.
    """

    def __init__(
        self,
        make_policy: Callable[[], Policy],
        slow: Tier,
        content: np.ndarray | None = None,
        name: str = "cache",
        *,
        reader: torch.device | None = None,
    ) -> None:
        self.slow = slow
        self.name = name
        self.num_rows = slow.num_rows
        self.row_bytes = slow.row_bytes
        self._make_policy, self.policy = make_policy, make_policy()
        num_slots = min(self.policy.capacity, slow.num_rows)
        self._fast: Any  # HostTier or DeviceTier: their buffers are arrays or tensors, as are the `outs` of this tier
        if reader is None:
            self._fast = HostTier([np.empty((num_slots, width), np.uint8) for width in slow.row_bytes], name)
        else:
            self._fast, self.reader = DeviceTier(num_slots, slow.row_bytes, reader, name), reader
        self.device = self._fast.device
        self._pid, self._lock = os.getpid(), threading.RLock()
        self._turn = threading.Condition(self._lock)
        self._copier = Threads(1, "penstock-hits")
        self._num_decided = self._num_committed = self._first_valid = self._num_announced = 0
        self.is_static = isinstance(self.policy, Static)
        if content is not None:
            self._fill(content[:num_slots])

    @property
    def stats(self) -> TierStats:
        """Counts of hits: rows, bytes and time of the fast tier only."""
        return self._fast.stats

    @property
    def resident_bytes(self) -> int:
        """Host memory of the kept rows and of the policy's state."""
        return self.policy.state_bytes + (self._fast.resident_bytes if isinstance(self._fast, HostTier) else 0)

    @property
    def device_bytes(self) -> int:
        """Device memory of the kept rows."""
        return 0 if isinstance(self._fast, HostTier) else self._fast.resident_bytes

    def _fill(self, ids: np.ndarray) -> None:
        """Fill the cache with its initial rows. Bypasses a dynamic cache below, which is for the misses of this cache."""
        self.policy.fill(ids)
        self._bring(ids)

    def _bring(self, ids: np.ndarray) -> None:
        """Read rows into slots 0, 1, ..., in the order of the file, so that near rows share requests, and maps are read forwards."""
        source, slots = around(self.slow), np.argsort(ids)
        for first in range(0, ids.size, _FILLED_AT_ONCE):  # in pieces: planning a read takes ten times the memory of its row numbers
            some = slots[first : first + _FILLED_AT_ONCE]
            source.submit(ids[some], self._fast.buffers, some).wait()

    @property
    def beneath(self) -> CachedTier | SpooledTier | None:
        """The next cache or spool below this one; coming batches are announced to it, too."""
        return next((tier for tier in stack_of(self.slow) if isinstance(tier, CachedTier | SpooledTier)), None)

    def announce(self, rows: np.ndarray) -> None:
        """Announce the int64[n] rows of a coming batch to a policy that looks ahead, in the order of the batches. A static cache announces
        its misses to the next cache or spool below. Raises UsageError if the policy does not look ahead."""
        self._take_over_after_fork()
        if self.is_static:
            if (cache := self.beneath) is not None:
                cache.announce(rows[self.policy.slots[rows] < 0])
            return
        with self._lock:
            started = time.perf_counter()
            policy = self._policy_ahead()
            self._num_announced += 1  # first: if this thread is interrupted, a new pass forgets what was announced
            policy.announce(rows)
            self.stats.add_deciding(time.perf_counter() - started)

    def restart(self) -> None:
        """Begin a new pass, here and in the cache below. A cache starts again, empty, if batches of the pass before were announced but
        never read, or if their reads do not end."""
        self._take_over_after_fork()
        with self._lock:
            is_quiet = self._turn.wait_for(lambda: self._num_committed == self._num_decided, _DRAIN_S)
            if self._num_announced or not is_quiet:
                self._begin_again()
        if (cache := self.beneath) is not None:
            cache.restart()

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray, marks: np.ndarray | None = None) -> Read:
        """Decide, and begin to read the misses. Call it in the order of the batches; wait for each read, in any order.

        `marks`: int32[n], cache slots of the rows, if they are known already; only for a static cache. Other arguments as for
        `Tier.submit`.
        """
        self._take_over_after_fork()
        with self._lock:
            number = self._num_decided
            self._num_decided += not self.is_static  # before the policy decides: who is interrupted there loses the read, as below
            try:
                started = time.perf_counter()
                change = self.policy.access(rows) if marks is None else Change(marks, np.empty(0, np.int64), np.empty(0, np.int32))
                decided = time.perf_counter()
                self.stats.add_deciding(decided - started)
                self._num_announced -= self._num_announced > 0
            except BaseException:
                self._lose(number)
                raise
        try:
            misses = np.flatnonzero(change.hit_slots < 0)
            beneath = self.slow.submit(rows[misses], outs, places[misses])
            spans = [("decide", started, decided, threading.get_ident())]
            return _CachedRead(self, rows, outs, places, number, change, beneath, spans, beneath.since if misses.size else None)
        except BaseException:
            self._lose(number)
            raise

    def _copy_beside(self, read: _CachedRead) -> Pending[int | None] | None:
        """Let another thread copy the hits while this one waits for the slower tier. Returns None if there are too few hits; else pending
        work, whose result is the number of bytes copied, or None if earlier reads are not committed yet."""
        num_hits = read.change.num_hits
        is_worth_it = num_hits * sum(self.row_bytes) >= _BESIDE_BYTES and num_hits < read.rows.size
        if not is_worth_it or not isinstance(self._fast, HostTier) or self._pid != os.getpid():
            return None

        def copy() -> int | None:
            with nullcontext() if self.is_static else self._lock:
                is_turn = self.is_static or self._first_valid <= read.number == self._num_committed
                return self._copy_hits(read) if is_turn else None

        return self._copier.submit(copy)

    def _copy_hits(self, read: _CachedRead) -> int:
        hits = np.flatnonzero(read.change.hit_slots >= 0)
        slots = read.change.hit_slots[hits].astype(np.int64)
        return timed(self._fast.submit(slots, read.outs, read.places[hits]).wait, "gather", read.spans)

    def _commit(self, read: _CachedRead, copied: int | None) -> int:
        """Wait until all earlier reads are committed. Then copy hits out, unless `copied` says that this is done, and kept misses in."""
        if self.is_static:
            return self._copy_hits(read) if copied is None else copied
        number, change, spans = read.number, read.change, read.spans
        with self._lock:
            while self._num_committed < number:
                if not self._turn.wait(_PATIENCE_S) and self._num_committed < number:
                    raise TierError(f"{self.name}: read {number} waits for read {self._num_committed}, which no thread completes")
            if number >= self._first_valid:
                try:
                    moved = self._copy_hits(read) if copied is None else copied
                    into, inserted = change.into.astype(np.int64), read.places[change.inserted]
                    timed(lambda: self._fast.write(into, read.outs, inserted), "update", spans)
                    self.stats.add_updating(spans[-1][2] - spans[-1][1])
                except BaseException:  # the directory lists rows that were not copied in
                    self._begin_again()
                    raise
                self._num_committed = number + 1
                self._turn.notify_all()
                return moved
        hits = np.flatnonzero(change.hit_slots >= 0)
        # the cache has lost the content that the decision assumed
        again = around(self.slow).submit(read.rows[hits], read.outs, read.places[hits])
        return timed(again.wait, "read", spans, again.since)

    def _lose(self, number: int) -> None:
        """After a failed read, start again with an empty cache, since the directory lists rows that never arrived."""
        with self._lock:
            self._turn.wait_for(lambda: self._num_committed >= number, _PATIENCE_S)
            if number >= self._first_valid and not self.is_static:
                self._begin_again()

    def _take_over_after_fork(self) -> None:
        """In a forked child, start again: no thread completes the reads of the parent's threads, and a copied lock may be held forever."""
        if self._pid == os.getpid():
            return
        self._pid, self._lock = os.getpid(), threading.RLock()
        self._turn = threading.Condition(self._lock)
        with self._lock:
            if not self.is_static:
                self._begin_again()

    def _begin_again(self) -> None:
        """Empty the cache. Reads that are decided but not committed read their hits from below; later reads do not wait for them."""
        self.policy, self._num_announced = self._make_policy(), 0
        self._num_committed = self._first_valid = self._num_decided
        self._turn.notify_all()

    def _policy_ahead(self) -> Belady:
        if not isinstance(self.policy, Belady):
            raise UsageError(f"{self.name}: policy {self.policy.name} does not look ahead, there is nothing to announce to it")
        return self.policy


def timed(work: Callable[[], T], kind: str, spans: list[Span], since: float | None = None) -> T:
    """Do some work, and append its span to `spans`. `since`: when it began, if that was before this call."""
    started = time.perf_counter() if since is None else since
    done = work()
    spans.append((kind, started, time.perf_counter(), threading.get_ident()))
    return done


@dataclass(slots=True, eq=False)
class _CachedRead:
    """A read of a cached tier under way.

    Attributes:
        tier, rows, outs, places: the cache, and the arguments of `submit`.
        number, change: number and result of the decision.
        beneath: the read of the misses.
        spans: work done so far, see `penstock.records.Span`.
        since: see `Read.since`.
    """

    tier: CachedTier
    rows: np.ndarray
    outs: Sequence[Any]
    places: np.ndarray
    number: int
    change: Change
    beneath: Read
    spans: list[Span]
    since: float | None

    def wait(self) -> int:
        """Complete the read: commit it."""
        try:
            copying = self.tier._copy_beside(self)
            try:
                missed = timed(self.beneath.wait, "read", self.spans, self.since)
            finally:
                copied = None if copying is None else copying.result()  # wait in any case: it writes to the caller's memory
            self.spans += getattr(self.beneath, "spans", ())
        except BaseException:
            self.tier._lose(self.number)
            raise
        return missed + self.tier._commit(self, copied)
