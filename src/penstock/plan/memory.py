"""How a budget of host memory is shared out: first what a run cannot do without, then the caches.

In: what a short profile measured, in bytes, and what a window of look-ahead and a cache of some size would miss. Out: the window and the
bytes of the caches, or a refusal with the sum written out. Invariant: the parts add up to no more than the budget.
Source: Ginex 3.5 sizes its caches by what a short profile leaves over, and its window by a quota of disk space. Here batches are held ahead
in memory, so that window and cache compete for the same bytes, and the simulator says which division misses least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

from penstock.errors import BudgetError, argument
from penstock.store.budget import format_bytes

RESERVE_SHARE = 0.05
"""Of the budget, for what the profile did not see: the allocator's slack, larger batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Bytes that a run takes beside its caches.

    Attributes:
        process: held before the run begins: interpreter, libraries, model, labels.
        step: peak of a training step above that.
        topology: row pointers and other arrays of the graph that stay in memory.
        sampling: tables and scratch of all sampling threads.
        batches: outputs of all batches under way at once.
        reading: buffers of reads from the disk.
    """

    process: int
    step: int = 0
    topology: int = 0
    sampling: int = 0
    batches: int = 0
    reading: int = 0

    @property
    def total(self) -> int:
        """Their sum."""
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """A budget, shared out.

    Attributes:
        budget_bytes: for the whole process.
        needs: see there.
        reserve_bytes: left free.
        window: batches held ahead, the current one included.
        held_bytes: what these take.
        cache_bytes: for rows and neighbour lists, with all their tables.
    """

    budget_bytes: int
    needs: Needs
    reserve_bytes: int
    window: int
    held_bytes: int
    cache_bytes: int

    def describe(self) -> str:
        """Write the sum out, in one line."""
        parts = [f"{format_bytes(getattr(self.needs, one.name))} {one.name}" for one in fields(self.needs) if getattr(self.needs, one.name)]
        parts += [f"{format_bytes(self.reserve_bytes)} reserve", f"{format_bytes(self.held_bytes)} for {self.window} batches held ahead"]
        return f"{format_bytes(self.budget_bytes)} = {' + '.join(parts)} + {format_bytes(self.cache_bytes)} for caches"


def plan_memory(
    budget_bytes: int,
    needs: Needs,
    *,
    held_bytes: int,
    windows: Iterable[int] = (1,),
    misses: Callable[[int, int], float] = lambda window, cache_bytes: -float(cache_bytes),
) -> MemoryPlan:
    """Share a budget out.

    Args:
        budget_bytes: for the whole process.
        needs: what comes first.
        held_bytes: of one batch held ahead.
        windows: candidates; the smallest must fit.
        misses: (window, bytes of the caches) -> what is missed, in any unit; by default the larger cache is better.
    Raises:
        BudgetError: too small; the message has the sum, and the smallest budget that would do.
    """
    reserve = int(RESERVE_SHARE * budget_bytes)
    windows = sorted(windows)
    left = budget_bytes - reserve - needs.total
    if left < windows[0] * held_bytes:
        raise BudgetError(_refusal(budget_bytes, needs, windows[0], held_bytes))
    fitting = [window for window in windows if window * held_bytes <= left]
    window = min(fitting, key=lambda each: (misses(each, left - each * held_bytes), each))
    held = window * held_bytes
    return MemoryPlan(
        budget_bytes=budget_bytes, needs=needs, reserve_bytes=reserve, window=window, held_bytes=held, cache_bytes=left - held
    )


def _refusal(budget_bytes: int, needs: Needs, window: int, held_bytes: int) -> str:
    parts = [f"{format_bytes(getattr(needs, one.name))} {one.name}" for one in fields(needs) if getattr(needs, one.name)]
    parts.append(f"{format_bytes(window * held_bytes)} held ahead")
    share = f"{100 * RESERVE_SHARE:.0f} %"
    least = int((needs.total + window * held_bytes) / (1 - RESERVE_SHARE)) + 1
    return (
        f"{argument('host_memory')} of {format_bytes(budget_bytes)} does not hold one batch: {' + '.join(parts)} + {share} "
        f"reserve = {format_bytes(least)} at least. Give more, or make batches, fanouts or {argument('num_workers')} smaller"
    )
