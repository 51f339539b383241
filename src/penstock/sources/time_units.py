"""Units and origins of columns of dates and times.

In: Arrow types. Out: a `TimeUnit`, and the common unit of several columns: the finest, in which all values are integers. Timestamps with a
time zone are instants; those without one are taken as UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

_NANOSECONDS = {"days": 86_400 * 10**9, "seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}
_OF_ARROW = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time and an origin.

    Attributes:
        step: "days", "seconds", "milliseconds", "microseconds" or "nanoseconds".
        origin: "1970-01-01", "midnight", or "" for durations.
    """

    step: str
    origin: str

    def __str__(self) -> str:
        return f"{self.step} since {self.origin}" if self.origin else self.step

    def per(self, coarser: TimeUnit) -> int:
        """Return how many of this unit make one of a coarser unit."""
        return _NANOSECONDS[coarser.step] // _NANOSECONDS[self.step]


def unit_of(arrow_type: pa.DataType) -> TimeUnit | None:
    """Return the unit of a column; None if it holds no dates or times."""
    if pa.types.is_date(arrow_type):
        return TimeUnit("days" if pa.types.is_date32(arrow_type) else "milliseconds", "1970-01-01")
    if pa.types.is_timestamp(arrow_type):
        return TimeUnit(_OF_ARROW[arrow_type.unit], "1970-01-01")
    if pa.types.is_time(arrow_type):
        return TimeUnit(_OF_ARROW[arrow_type.unit], "midnight")
    return TimeUnit(_OF_ARROW[arrow_type.unit], "") if pa.types.is_duration(arrow_type) else None


def unit_named(text: str) -> TimeUnit:
    """Return the unit that `str` of it names."""
    step, _, origin = text.partition(" since ")
    return TimeUnit(step, origin)


def finest(units: Sequence[TimeUnit | None]) -> TimeUnit | None:
    """Return the finest of the units; None if some are no times, or have different origins."""
    known = [unit for unit in units if unit is not None]
    if len(known) < len(units) or len({unit.origin for unit in known}) != 1:
        return None
    return min(known, key=lambda unit: _NANOSECONDS[unit.step])
