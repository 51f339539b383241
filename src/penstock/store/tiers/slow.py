"""A tier that simulates a slow device: for tests, and for studies of hardware that is not available.

The device serves requests of up to `rows_per_request` rows, or of one block if it has blocks, `depth` at a time, each after `delay_s`; its
link moves `bytes_per_s`. A read takes the longer of the two times, and reads are served one after another, in the order of submission. Only
the time is simulated: the rows come from the tier below.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from penstock.errors import UsageError
from penstock.store.tiers.tier import Deferred, Read, Tier, TierStats, check_rows
from penstock.threads import Guard


class Link:
    """The queue of a device; tiers that share one simulate one device."""

    def __init__(self) -> None:
        self._guard, self._free_at = Guard(), 0.0

    def take(self, busy_s: float) -> float:
        """Occupy the device for `busy_s` seconds, after earlier reads. Returns when that ends, on the monotonic clock."""
        with self._guard.lock:
            self._free_at = max(self._free_at, time.monotonic()) + busy_s
            return self._free_at


class SlowTier:
    """Rows of another tier, delayed.

    Args:
        tier: where the rows come from.
        delay_s: from a request to its first byte.
        bytes_per_s: of the link; inf for no limit.
        rows_per_request: rows per request.
        depth: requests under way at once.
        block_bytes: a request reads one block of this size in place of rows: all rows of a read in one block are one request, and the link
            moves the whole block. Each field has its own blocks.
        link: of the device, if it also holds the rows of other tiers.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        delay_s: float = 0.0,
        bytes_per_s: float = math.inf,
        rows_per_request: int = 1,
        depth: int = 32,
        block_bytes: int | None = None,
        link: Link | None = None,
    ) -> None:
        if delay_s < 0 or bytes_per_s <= 0 or rows_per_request < 1 or depth < 1 or (block_bytes is not None and block_bytes < 1):
            raise UsageError("a slow tier needs delay_s >= 0, bytes_per_s > 0, rows_per_request >= 1, depth >= 1 and block_bytes >= 1")
        if block_bytes is not None and rows_per_request > 1:
            raise UsageError("a request of a slow tier brings rows or a block: give rows_per_request or block_bytes")
        self.name = f"slow {tier.name}"
        self.device = tier.device
        self.num_rows = tier.num_rows
        self.row_bytes = tier.row_bytes
        self.resident_bytes, self.stats = tier.resident_bytes, TierStats()
        self._tier, self._delay_s, self._bytes_per_s = tier, delay_s, bytes_per_s
        self._rows_per_request, self._depth, self._block_bytes = rows_per_request, depth, block_bytes
        self._link = link or Link()

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read: the device starts now, no matter when the read is waited for."""
        num_bytes = rows.size * sum(self.row_bytes)
        if self._block_bytes is None:
            num_requests, num_moved = math.ceil(rows.size / self._rows_per_request), num_bytes
        else:
            check_rows(self, rows)
            num_requests = sum(count_blocks(rows, self.num_rows, width, self._block_bytes) for width in self.row_bytes)
            num_moved = num_requests * self._block_bytes
        busy_s = max(num_moved / self._bytes_per_s, math.ceil(num_requests / self._depth) * self._delay_s)
        ready_at = self._link.take(busy_s)
        beneath, since = self._tier.submit(rows, outs, places), time.perf_counter()
        return Deferred(lambda: self._end(beneath, ready_at, rows.size), since)

    def _end(self, beneath: Read, ready_at: float, num_rows: int) -> int:
        started = time.perf_counter()
        moved = beneath.wait()
        time.sleep(max(0.0, ready_at - time.monotonic()))
        self.stats.add(num_rows, moved, time.perf_counter() - started)
        return moved


def count_blocks(rows: np.ndarray, num_rows: int, row_bytes: int, block_bytes: int) -> int:
    """Return the number of blocks that hold any byte of int64[n] `rows`, in a field of consecutive rows.

    Cost: O(n + number of blocks of the field).
    """
    if rows.size == 0 or row_bytes == 0:
        return 0
    num_blocks = -(-num_rows * row_bytes // block_bytes)
    first, last = rows * row_bytes // block_bytes, ((rows + 1) * row_bytes - 1) // block_bytes
    begins, ends = np.bincount(first, minlength=num_blocks + 1), np.bincount(last + 1, minlength=num_blocks + 1)
    return int(np.count_nonzero(np.cumsum(begins - ends)))
