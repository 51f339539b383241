"""How a budget of host memory is shared out: first what a run cannot do without, then batches held ahead and caches.

In: what a short profile measured, in bytes, and what each way of looking ahead would miss with what it leaves for caches. Out: a way to
look ahead and the bytes of the caches, or a refusal with the sum written out. Invariant: the parts add up to no more than the budget.
Source: Ginex 3.5 sizes its caches by what a short profile leaves over, and its window by a quota of disk space. Here batches are held ahead
in memory, so that window and cache compete for the same bytes, and the simulator says which division misses least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from penstock.errors import BudgetError, argument
from penstock.store.budget import MIB, format_bytes

RESERVE_SHARE, RESERVE_BYTES = 0.05, 32 << 20
"""Of the budget, and beside it, for what the profile did not see: the allocator's slack, larger batches. In an hour of training within
900 MiB, memory of the process' own came to 36 MiB beyond the sum without reserve, whose twentieth is 45."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Bytes that a run takes beside its caches.

    Attributes:
        process: held before the run begins: interpreter, libraries, model, labels.
        step: peak of a training step above that.
        pointers: row pointers of the graph.
        sampling: tables and scratch of all sampling threads.
        batches: all batches under way at once.
        pinned: what a device reads in memory of the host, where it must stay.
        staging: pinned copies of what is on its way to a device.
        reading: buffers of reads from the disk.
        tables: directories of the caches and what their policies know of every node.
        ranking: what choosing the rows, or placing the topology, takes before the caches are made, beyond what will be in use only later.
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
        """Their sum."""
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def parts(self) -> list[str]:
        """What there is of each, in words."""
        return [f"{format_bytes(getattr(self, one.name))} {one.name}" for one in fields(self) if getattr(self, one.name)]


@dataclass(frozen=True, slots=True, order=True)
class Ahead:
    """A way to look ahead.

    Attributes:
        window: batches known, the current one included.
        hold: what is kept of those to come: "samples", or "ids" of rows only, to be sampled again.
        num_bytes: that this takes.
    """

    window: int
    hold: str
    num_bytes: int

    def __str__(self) -> str:
        kept = "" if self.hold == "samples" else ", ids only"
        return f"{format_bytes(self.num_bytes)} for {self.window} batches held ahead{kept}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """A budget, shared out.

    Attributes:
        budget_bytes: for the whole process.
        needs: see there.
        reserve_bytes: left free.
        ahead: how far the pipeline looks ahead.
        cache_bytes: for rows and neighbour lists.
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
    """Share a budget out.

    Args:
        budget_bytes: for the whole process.
        needs: what comes first.
        ways: to look ahead; the one that takes least must fit.
        misses: (way, bytes of the caches) -> reads that remain, in any unit. Equal ones: the smaller way.
    Raises:
        BudgetError: too small; the message has the sum, and the smallest budget that would do.
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
