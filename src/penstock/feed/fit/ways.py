"""Ways to run within a budget (threads, batches at once, what is kept), and the choice among them.

In: what each way takes, and what caches of the remaining size would miss. Out: one way with its sum, or a refusal with the sum of the
smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import BudgetError
from penstock.plan import Plan
from penstock.plan.memory import MemoryPlan, Needs, plan_memory

if TYPE_CHECKING:
    from penstock.feed.fit.search import CacheSearch

ALONE = 1.1
"""Factor by which a miss costs more if rows are read for one batch at a time rather than two: the disk idles while hits are copied and the
next read is planned (5 to 15 % of the time)."""


class Way(NamedTuple):
    """A way to run: threads; batches being made or waiting; whether neighbour lists are kept; whether row pointers stay in memory."""

    num_threads: int
    in_flight: int
    with_lists: bool
    with_pointers: bool


def ways_to_run(num_threads: int, in_flight: int, plan: Plan) -> list[list[Way]]:
    """Return groups of ways; the first group with a way that fits is used. So if memory is short, first threads are given up, then kept
    lists, then row pointers in memory; the page cache then holds these as far as the reserve allows."""
    flights = dict.fromkeys([in_flight, 1] if plan.is_read_ahead else [in_flight])
    kept = [True, False] if plan.neighbor_policy is not None else [False]
    return [
        [Way(num_threads, batches, with_lists, True) for batches in flights for with_lists in kept],
        [Way(1, 1, with_lists, True) for with_lists in kept],
        [Way(1, 1, False, False)],
    ]


def choose_way(budget: int, groups: Sequence[Sequence[Way]], needs: Callable[[Way], Needs], search: CacheSearch) -> tuple[MemoryPlan, Way]:
    """Choose the way with the fewest misses from the first group in which any way fits.

    Args:
        budget: bytes.
        groups: see `ways_to_run`.
        needs: what a way takes beside caches.
        search: gives the misses; afterwards it is set to the chosen way.
    Returns:
        The sum, and the way.
    Raises:
        BudgetError: see `plan_memory`; with the sum of the last way, which takes least.
    """

    def sum_of(way: Way) -> MemoryPlan:
        search.use_lists(way.with_lists)
        return plan_memory(budget, needs(way), search.ways(way.num_threads), search.misses)

    refusal: BudgetError | None = None
    for group in groups:
        misses: dict[Way, float] = {}
        for way in group:
            try:
                memory = sum_of(way)
            except BudgetError as error:
                refusal = error
            else:
                misses[way] = search.misses(memory.ahead, memory.cache_bytes) * (ALONE if way.in_flight == 1 else 1.0)
        if misses:
            best = min(misses, key=lambda way: misses[way])
            return sum_of(best), best
    assert refusal is not None
    raise refusal
