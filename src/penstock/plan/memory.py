"""Divides a budget of host memory: first what a run cannot do without, then batches held ahead and caches.

In: bytes that a short profile measured; for each way to look ahead, the misses of the caches in the memory that it leaves. Out: a way to
look ahead and the bytes of the caches, or an error with the sum written out. Invariant: the parts add up to no more than the budget.
Source: Ginex 3.5 takes for its caches what a short profile leaves over, and chooses its window by a quota of disk space. Here, batches held
ahead are in memory. So window and caches compete for the same bytes, and a simulation says which division has the fewest misses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from penstock.errors import BudgetError, argument
from penstock.store.budget import MIB, format_bytes

RESERVE_SHARE, RESERVE_BYTES = 0.05, 32 << 20
"""The reserve is this share of the budget plus these bytes, for what the profile did not see: the allocator's slack, larger batches. In an
hour of training within 900 MiB, the process' own memory was 36 MiB above the sum without reserve; the share alone is 45 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Bytes that a run takes beside its caches.

    Attributes:
        process: memory before the run begins: interpreter, libraries, model, labels.
        step: peak of a training step above that.
        pointers: row pointers of the graph.
        sampling: tables and scratch of all sampling threads.
        batches: all batches under way at the same time.
        pinned: pinned host memory that a device reads.
        staging: pinned copies of data on its way to a device.
        reading: buffers of reads from the disk.
        tables: directories of the caches, and what their policies know about every node.
        ranking: memory to choose rows or place the topology before the caches are made, beyond the memory that is used only later.
    """

    process: int
    step: int = 0
    pointers: int = 0
    sampling: int = 0
    batches: int = 0
    pinned: int = 0
    staging: int = 0
    reading: int = 0
    tables: int = 0
    ranking: int = 0

    @property
    def total(self) -> int:
        """The sum of all."""
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def parts(self) -> list[str]:
        """Bytes and name of each that is not 0, for messages."""
        return [f"{format_bytes(getattr(self, one.name))} {one.name}" for one in fields(self) if getattr(self, one.name)]


@dataclass(frozen=True, slots=True, order=True)
class Ahead:
    """A way to look ahead.

    Attributes:
        window: number of known batches, including the current one.
        hold: what is held of coming batches: "samples", or only "ids" of rows; then they are sampled again.
        num_bytes: memory of the batches held ahead.
    """

    window: int
    hold: str
    num_bytes: int

    def __str__(self) -> str:
        kept = "" if self.hold == "samples" else ", ids only"
        return f"{format_bytes(self.num_bytes)} for {self.window} batches held ahead{kept}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """A divided budget.

    Attributes:
        budget_bytes: for the whole process.
        needs: what a run takes beside its caches.
        reserve_bytes: bytes that stay free.
        ahead: how far the pipeline looks ahead.
        cache_bytes: for the caches of rows and neighbour lists.
    """

    budget_bytes: int
    needs: Needs
    reserve_bytes: int
    ahead: Ahead
    cache_bytes: int

    def __str__(self) -> str:
        """The sum, in one line."""
        parts = [*self.needs.parts, f"{format_bytes(self.reserve_bytes)} reserve", str(self.ahead)]
        return f"{format_bytes(self.budget_bytes)} = {' + '.join(parts)} + {format_bytes(self.cache_bytes)} left for caches"


def plan_memory(budget_bytes: int, needs: Needs, ways: Sequence[Ahead], misses: Callable[[Ahead, int], float]) -> MemoryPlan:
    """Divide a budget.

    Args:
        budget_bytes: for the whole process.
        needs: what the run takes in any case.
        ways: possible ways to look ahead; the smallest one must fit.
        misses: (way, bytes of the caches) -> expected misses, in any unit. The way with the fewest is taken; of equal ones, the smallest.
    Raises:
        BudgetError: the budget is too small; the message has the sum, and the smallest budget that is enough.
    """
    reserve, least = int(RESERVE_SHARE * budget_bytes) + RESERVE_BYTES, min(ways, key=lambda way: way.num_bytes)
    left = budget_bytes - reserve - needs.total
    if left < least.num_bytes:
        raise _refusal(budget_bytes, needs, least)
    fitting = [way for way in ways if way.num_bytes <= left]
    ahead = min(fitting, key=lambda way: (misses(way, left - way.num_bytes), way.num_bytes))
    return MemoryPlan(budget_bytes=budget_bytes, needs=needs, reserve_bytes=reserve, ahead=ahead, cache_bytes=left - ahead.num_bytes)


def _refusal(budget_bytes: int, needs: Needs, ahead: Ahead) -> BudgetError:
    smallest = int((needs.total + ahead.num_bytes + RESERVE_BYTES) / (1 - RESERVE_SHARE)) + 1
    elsewhere = f", or read from the disk what the device reads in memory ({argument('features', 'disk')})" if needs.pinned else ""
    return BudgetError(
        f"{argument('host_memory')} of {budget_bytes / MIB:.1f} MiB does not hold one batch: {' + '.join([*needs.parts, str(ahead)])} + "
        f"{format_bytes(RESERVE_BYTES)} and {100 * RESERVE_SHARE:.0f} % reserve = {math.ceil(10 * smallest / MIB) / 10} MiB at least. "
        f"Give more, or make batches, fanouts or {argument('num_workers')} smaller{elsewhere}"
    )
