"""A cached tier with its cache on a device, over host memory that the device reads: one launch reads hits and misses.

In: row numbers. Out: the same rows as from any `CachedTier`, in device memory. The slots of a static policy are in a table on the device.
For FIFO, the device decides, without the host. Other dynamic policies decide on the host, which sends the slots with the row numbers.
Misses to keep are copied into the cache right after the reads of their batch. All work is in order on one stream. So no read finds a row
overwritten by its own or a later batch, and each decision is carried out as soon as it is made, without waiting for other commits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cache.fifo import FIFO
from penstock.cache.policy import Change, Policy
from penstock.errors import BudgetError
from penstock.gather.cached import CachedTier
from penstock.records import Span
from penstock.store.device_memory import settle
from penstock.store.tiers import PinnedTier, Read, TierStats
from penstock.store.tiers.grid import programs_with_hits
from penstock.store.tiers.pinned import DeviceRead, places_on, rows_on, to_device

if TYPE_CHECKING:
    import torch

    from penstock.cache.fifo_device import DeviceChange, DeviceFIFO


class FusedCache(CachedTier):
    """Rows in pinned memory, some of them kept on the device that reads it. Submit all reads on the same stream.

    Args:
        make_policy, content: as for `CachedTier`.
        slow: has all rows.
    Raises:
        BudgetError: the table of slots does not fit into device memory.
    """

    def __init__(self, make_policy: Callable[[], Policy], slow: PinnedTier, content: np.ndarray | None = None) -> None:
        import torch

        try:
            super().__init__(lambda: where_it_decides(make_policy(), slow.reader), slow, content, reader=slow.reader)
            self._slots = to_device(self.policy.slots, slow.reader) if self.is_static else None
        except torch.OutOfMemoryError as error:
            raise BudgetError(
                f"{slow.name}: a table with the place of each of {slow.num_rows} rows does not fit on {slow.reader}; give a "
                "smaller device_cache"
            ) from error
        if (policy := self._on_device) is not None:
            self._make_policy = policy.emptied
        self._pinned = slow
        self._hits = torch.zeros(2, dtype=torch.int64, device=slow.reader)  # of the first field with bytes, and of the others
        is_pinned = slow.reader.type == "cuda"
        self._hits_seen = torch.zeros(2, dtype=torch.int64, device="cpu", pin_memory=is_pinned)  # the host's copy, some batches late
        self._asked = self._asked_before = self._hits_before = 0

    @property
    def _on_device(self) -> DeviceFIFO | None:
        """The policy if it decides on the device; else None."""
        from penstock.cache.fifo_device import DeviceFIFO

        return self.policy if isinstance(self.policy, DeviceFIFO) else None

    @property
    def takes_device_rows(self) -> bool:
        """Whether row numbers may be a tensor on the device: the host decides nothing."""
        return self.is_static or self._on_device is not None

    @property
    def device_bytes(self) -> int:
        """Device memory of the rows, and of the table of slots or the directory."""
        table = 0 if self._slots is None else self._slots.nbytes
        return super().device_bytes + (table if self._on_device is None else self._on_device.device_bytes)

    @property
    def stats(self) -> TierStats:
        """Counts of hits; `slow` counts the misses. If the host decides nothing, the device counts, and this property waits for it."""
        if self._asked != self._asked_before:
            with self._turn:
                settle(self.reader)
                hits, width = int(self._hits[0]), sum(self.row_bytes)
                new_hits, new_asked = hits - self._hits_before, self._asked - self._asked_before
                self._hits_before, self._asked_before = hits, self._asked
            for stats, count in ((self._fast.stats, new_hits), (self._pinned.stats, new_asked - new_hits)):
                stats.count(count, count * width)
        return self._fast.stats

    def submit(self, rows: Any, outs: Sequence[Any], places: np.ndarray | None, marks: np.ndarray | None = None) -> Read:
        """Decide and read, on this thread's current stream. Submit batches in order; reads may be waited for in any order.

        Args:
            rows: int64[n], an array, or, if `takes_device_rows`, a tensor on the device.
            outs: see `Tier.submit`.
            places: int64[n]; None: 0, 1, ....
            marks: int32[n], cache slots of the rows, if they are known; only for a static policy.
        """
        ids, given = rows_on(self, rows), places_on(self.reader, places)
        self._take_over_after_fork()
        thread = threading.get_ident()
        with self._turn:
            started = time.perf_counter()
            try:
                change = self._decide(rows, ids)
                decided = time.perf_counter()
                self._gather(ids, change, outs, given, marks)
                spans = [("decide", started, decided, thread), ("gather", decided, time.perf_counter(), thread)]
                self._fast.stats.add(0, 0, spans[-1][2] - decided)
                if change is not None:
                    self._update(change, outs, places, given, spans)
            except BaseException:
                if not self.is_static:
                    self._begin_again()
                raise
        return _FusedRead(self.reader, ids.numel() * sum(self.row_bytes), spans)

    def _decide(self, rows: Any, ids: torch.Tensor) -> Change | DeviceChange | None:
        if self.is_static:
            return None
        return self.policy.access(rows) if self._on_device is None else self._on_device.decide(ids)

    def _gather(
        self,
        ids: torch.Tensor,
        change: Change | DeviceChange | None,
        outs: Sequence[Any],
        given: torch.Tensor | None,
        marks: np.ndarray | None,
    ) -> None:
        from penstock.kernels.gather_cached import gpu

        if isinstance(change, Change):
            slots, num_asked, num_hits = to_device(change.hit_slots, self.reader), ids.numel(), change.num_hits
        else:  # hits as of an earlier batch; those of this one are known only when it is done
            slots = self._slots if change is None else change.hit_slots
            num_asked, num_hits = self._asked, int(self._hits_seen[0])
        slots = slots if marks is None else to_device(marks, self.reader)
        assert slots is not None
        max_programs = programs_with_hits(self._pinned.max_programs, num_asked, num_hits)
        order = self._pinned.order_of(ids, ids.numel() * (num_asked - num_hits) // num_asked if num_asked else None)
        counted = next((number for number, row_bytes in enumerate(self.row_bytes) if row_bytes), 0)
        fields = zip(self._pinned.buffers, self._fast.buffers, self.row_bytes, outs, strict=True)
        for number, (table, cache, row_bytes, out) in enumerate(fields):
            hits = self._hits[int(number != counted) :]
            gpu.gather_cached(
                table, cache, slots, ids, row_bytes, out, hits,
                by_position=change is not None or marks is not None, places=given, order=order, max_programs=max_programs,
            )  # fmt: skip
            if number == counted and not isinstance(change, Change):  # at once, since another field may fail
                self._asked += ids.numel()
        if not isinstance(change, Change):
            self._hits_seen.copy_(self._hits, non_blocking=True)

    def _update(
        self,
        change: Change | DeviceChange,
        outs: Sequence[Any],
        places: np.ndarray | None,
        given: torch.Tensor | None,
        spans: list[Span],
    ) -> None:
        """Copy kept misses into the cache, after the reads of this batch, and count."""
        started, (num_missed, num_hits), width = time.perf_counter(), (0, 0), sum(self.row_bytes)
        if isinstance(change, Change):
            self._fast.write(change.into, outs, change.inserted if places is None else places[change.inserted])
            num_hits = change.num_hits
            num_missed = change.hit_slots.size - num_hits
        else:
            self._fast.write(change.into, outs, given)
        spans.append(("update", started, time.perf_counter(), threading.get_ident()))
        self._fast.stats.count(num_hits, num_hits * width)
        self._fast.stats.add_deciding(spans[0][2] - spans[0][1])
        self._fast.stats.add_updating(spans[2][2] - started)
        self._pinned.stats.add(num_missed, num_missed * width, 0.0)
        self._num_announced -= self._num_announced > 0
        self._num_decided += 1
        self._num_committed = self._num_decided


def where_it_decides(policy: Policy, reader: torch.device) -> Policy:
    """Return the policy itself or, for FIFO, an empty one that decides on the device."""
    if not isinstance(policy, FIFO):
        return policy
    from penstock.cache.fifo_device import DeviceFIFO

    return DeviceFIFO(policy.num_nodes, policy.capacity, reader)


class _FusedRead(DeviceRead):
    """A read under way.

    Attributes:
        spans: work done so far.
    """

    def __init__(self, device: torch.device, num_bytes: int, spans: list[Span]) -> None:
        super().__init__(device, num_bytes)
        self.spans = spans
