"""A tier made slow, or made to fail: for tests, and for studies of hardware that is not there.

The device it plays serves requests of up to `rows_per_request` rows, `depth` at a time, each after `delay_s`; its link moves
`bytes_per_s`. Reads queue for the link in the order of their submission; their delays overlap. Only the time is made up: the rows come
from the tier beneath.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from penstock.errors import TierError, UsageError
from penstock.store.tiers.tier import Deferred, Read, Tier, TierStats


class SlowTier:
    """Rows of another tier, later.

    Args:
        tier: where the rows come from.
        delay_s: from a request to its first byte.
        bytes_per_s: of the link; inf for no limit.
        rows_per_request: rows that one request brings.
        depth: requests under way at once.
        fail: called with the number of each read, from 0; an exception that it returns is raised when the read is waited for.
        short: called likewise; True leaves out the last row, as a file that ends too early does.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        delay_s: float = 0.0,
        bytes_per_s: float = math.inf,
        rows_per_request: int = 1,
        depth: int = 32,
        fail: Callable[[int], Exception | None] = lambda number: None,
        short: Callable[[int], bool] = lambda number: False,
    ) -> None:
        if delay_s < 0 or bytes_per_s <= 0 or rows_per_request < 1 or depth < 1:
            raise UsageError("a slow tier needs delay_s >= 0, bytes_per_s > 0, rows_per_request >= 1 and depth >= 1")
        self.name, self.device, self.num_rows, self.row_bytes = f"slow {tier.name}", tier.device, tier.num_rows, tier.row_bytes
        self.resident_bytes, self.stats = tier.resident_bytes, TierStats()
        self._tier, self._delay_s, self._bytes_per_s = tier, delay_s, bytes_per_s
        self._rows_per_request, self._depth, self._fail, self._short = rows_per_request, depth, fail, short
        self._lock, self._free_at, self._num_submitted = threading.Lock(), 0.0, 0

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read: the device starts now, whenever the read is waited for."""
        num_bytes = rows.size * sum(self.row_bytes)
        rounds = math.ceil(math.ceil(rows.size / self._rows_per_request) / self._depth)
        busy_s = max(num_bytes / self._bytes_per_s, rounds * self._delay_s)
        with self._lock:
            number, self._num_submitted = self._num_submitted, self._num_submitted + 1
            self._free_at = max(self._free_at, time.monotonic()) + busy_s
            ready_at = self._free_at
        if self._short(number):
            rows, places = rows[:-1], places[:-1]
        beneath = self._tier.submit(rows, outs, places)
        return Deferred(lambda: self._end(number, beneath, ready_at, rows.size, num_bytes))

    def _end(self, number: int, beneath: Read, ready_at: float, num_rows: int, num_bytes: int) -> int:
        started = time.perf_counter()
        moved = beneath.wait()
        time.sleep(max(0.0, ready_at - time.monotonic()))
        error = self._fail(number)
        if error is not None:
            raise TierError(f"{self.name}: read {number} failed: {error}") from error
        if moved != num_bytes:
            raise TierError(f"{self.name}: read {number} brought {moved} of {num_bytes} bytes: the rows end too early")
        self.stats.add(num_rows, moved, time.perf_counter() - started)
        return moved
