"""The protocol of tiers: rows of one node or edge type, by number, read in two steps so that several tiers work at the same time.

In: row numbers, and the place of each row in the output. Out: the rows, at their places. Invariant: after `Read.wait` every requested row
is complete and in its place, or `wait` has raised.

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
    """Counts and seconds that several threads add to, under the lock of `_guard`."""

    _guard: Guard = field(default_factory=Guard, repr=False, kw_only=True)

    def as_dict(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        with self._guard.lock:
            return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "_guard"}


@dataclass(slots=True)
class TierStats(Totals):
    """Counts of the reads of a tier. Seconds are times that callers spent in it, not times that a device worked.

    Attributes:
        num_reads, num_rows, num_bytes, seconds: totals.
        decide_s: seconds in which a policy decided what to keep here; 0 without a policy.
        update_s: seconds in which rows to keep were copied in.
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
        """Count further rows of a read that was counted already."""
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
        """When a device began the read (`time.perf_counter`); None: nothing is done before `wait`."""
        ...

    def wait(self) -> int:
        """Complete the read; afterwards the rows are in place. Call it once. Returns the bytes moved; raises TierError."""
        ...


class Tier(Protocol):
    """Rows by number.

    Attributes:
        name: for messages and reports; unique within a stack.
        device: where the rows are; "cpu" for everything that the CPU can read.
        num_rows: rows are numbered from 0.
        row_bytes: bytes of a row, per field.
    """

    name: str
    device: str
    num_rows: int
    row_bytes: tuple[int, ...]

    @property
    def resident_bytes(self) -> int:
        """Memory of `device` that it takes."""
        ...

    @property
    def stats(self) -> TierStats:
        """Counts of its reads."""
        ...

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read.

        Args:
            rows: int64[n], in [0, num_rows), any n, also 0.
            outs: uint8[m * row_bytes] per field, receives the rows: arrays, or, for a tier with a `reader`, tensors on that device.
            places: int64[n], distinct, in [0, m): rows[i] goes to row places[i] of each of `outs`.
        """
        ...


class Deferred:
    """A read that does its work when it is waited for, on the thread that waits.

    Args:
        work: does the read, and returns the bytes moved.
        since: see `Read.since`.
    """

    __slots__ = ("_work", "since")

    def __init__(self, work: Callable[[], int], since: float | None = None) -> None:
        self._work, self.since = work, since

    def wait(self) -> int:
        """Do the work."""
        return self._work()


def check_rows(tier: Tier, rows: np.ndarray) -> None:
    """Raise TierError unless all rows exist: a wrong number is a bug or a damaged graph, and must not read other memory."""
    if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= tier.num_rows):
        bad = np.flatnonzero((rows < 0) | (rows >= tier.num_rows))
        raise TierError(f"{tier.name}: row {rows[bad[0]]} was asked for, it has {tier.num_rows}")
