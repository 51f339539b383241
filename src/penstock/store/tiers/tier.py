"""What a tier is: rows of one node or edge type, by number, read in two steps so that several tiers work at the same time.

In: row numbers, and where each row shall go. Out: the rows, at their places. Invariant: after `Read.wait` every row asked for is in
place, whole; or it raised.

A tier may hold several fields of a type; one read brings all of them. Reads may be submitted and ended from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np

from penstock.errors import TierError
from penstock.threads import Guard


@dataclass(slots=True)
class Totals:
    """Counts and seconds that several threads add to, each under the lock of `_guard`."""

    _guard: Guard = field(default_factory=Guard, repr=False, kw_only=True)

    def as_dict(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        with self._guard.lock:
            return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "_guard"}


@dataclass(slots=True)
class TierStats(Totals):
    """What a tier was asked for. Seconds are those that callers spent in it, not those that a device worked.

    Attributes:
        num_reads, num_rows, num_bytes, seconds: totals.
        decide_s: seconds that a policy took to decide what is kept here; 0 where none does.
        update_s: seconds that rows worth keeping took to be copied in.
    """

    num_reads: int = 0
    num_rows: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    decide_s: float = 0.0
    update_s: float = 0.0

    def add(self, num_rows: int, num_bytes: int, seconds: float) -> None:
        """Count one more read."""
        with self._guard.lock:
            self.num_reads += 1
            self.num_rows += num_rows
            self.num_bytes += num_bytes
            self.seconds += seconds

    def count(self, num_rows: int, num_bytes: int) -> None:
        """Count rows of reads that were counted before."""
        with self._guard.lock:
            self.num_rows += num_rows
            self.num_bytes += num_bytes

    def add_deciding(self, seconds: float) -> None:
        """Count the time of one more decision."""
        with self._guard.lock:
            self.decide_s += seconds

    def add_updating(self, seconds: float) -> None:
        """Count the time of one more update."""
        with self._guard.lock:
            self.update_s += seconds


class Read(Protocol):
    """A read under way."""

    @property
    def since(self) -> float | None:
        """When a device began with it (`time.perf_counter`); None: nothing is done before somebody waits."""
        ...

    def wait(self) -> int:
        """End it, once: the rows are in place. Returns the bytes moved; raises TierError."""
        ...


class Tier(Protocol):
    """Rows by number.

    Attributes:
        name: for messages and reports; unique within a stack.
        device: where the rows are: "cpu" for anything that the processor can read.
        num_rows: rows are numbered from 0.
        row_bytes: bytes of a row, per field.
    """

    name: str
    device: str
    num_rows: int
    row_bytes: tuple[int, ...]

    @property
    def resident_bytes(self) -> int:
        """Memory of the device that it takes."""
        ...

    @property
    def stats(self) -> TierStats:
        """What it was asked for."""
        ...

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read.

        Args:
            rows: int64[n], in [0, num_rows).
            outs: per field uint8[m * row_bytes], where rows go: arrays; of a tier with a `reader`, tensors on that device.
            places: int64[n], distinct, in [0, m): rows[i] goes to row places[i] of each of `outs`.
        """
        ...


class Deferred:
    """A read that does its work when it is waited for, on the thread that waits.

    Args:
        work: to be done.
        since: when a device began with it (`time.perf_counter`); None: nothing is done before somebody waits.
    """

    __slots__ = ("_work", "since")

    def __init__(self, work: Callable[[], int], since: float | None = None) -> None:
        self._work, self.since = work, since

    def wait(self) -> int:
        """Do it."""
        return self._work()


def check_rows(tier: Tier, rows: np.ndarray) -> None:
    """Raise unless all rows are there: a wrong number here is a bug or a damaged graph, and must not read foreign memory."""
    if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= tier.num_rows):
        bad = np.flatnonzero((rows < 0) | (rows >= tier.num_rows))
        raise TierError(f"{tier.name}: row {rows[bad[0]]} was asked for, it has {tier.num_rows}")
