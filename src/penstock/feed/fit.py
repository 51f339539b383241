"""One budget of host memory, fitted to this machine, graph and model.

In: a plan with a budget, what makes batches, and a training step to try. Out: what is kept, how far the loader looks ahead, and how many
batches it makes at once, so that all of the process stays within the budget; or a refusal with the sum. Batches do not depend on any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cache.belady import Belady
from penstock.cache.choose import STATIC
from penstock.cache.hotness import plan_static
from penstock.cache.simulate import simulate
from penstock.cache.static import Static
from penstock.errors import BudgetError
from penstock.feed.fit_device import ROUNDING, DeviceUse, batch_bytes, state_bytes
from penstock.feed.profile import THINNING, Profile, take_profile
from penstock.plan import Plan
from penstock.plan.capacity import DIRECTORY_BYTES_PER_NODE, STATE_BYTES_PER_ROW, STATIC_DIRECTORY_BYTES_PER_NODE
from penstock.plan.lists import table_bytes
from penstock.plan.memory import Ahead, MemoryPlan, Needs, plan_memory
from penstock.plan.visited import VisitedLists
from penstock.records import EdgeType, Graph, NodeType
from penstock.store.budget import parse_bytes
from penstock.store.process_memory import give_back_freed_memory, let_go_of_libraries, peak_growth, resident_bytes_outside

if TYPE_CHECKING:
    from penstock.feed.caches import Caches
    from penstock.feed.maker import BatchMaker

WINDOWS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
LIST_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
"""Of the bytes of the caches, for neighbour lists."""
BATCHES_SHARE = 0.3
"""Of the budget that batches under way may take before fewer of them are made at once."""
PROBED_SHARE = 0.125
"""Of a batch, that a training step is tried with."""
MARGIN = 1.15
"""Batches vary, and buffers are a little larger than what is in them."""
READ_BYTES_PER_ROW = 96
"""Of the plan of a read: order, places, starts, lengths."""
RANKING_BYTES_PER_NODE = {"degree": 6, "ratio": 6, "random": 15, "inclusion": 34}
"""While the rows of a static cache are chosen, before there is one: what they are ranked by, and a block of the ranking. Others are
ranked by the visits of the profile."""
USE_BYTES = 17
"""Of one row asked for by one batch ahead, in Belady's log."""
STEP_BYTES_PER_ROW_BYTE = 2.0
"""Where no step is there to be tried: twice the features of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a budget came to.

    Attributes:
        memory: the sum.
        num_workers: threads, fewer where memory is short.
        max_in_flight: batches in the making or waiting.
        rows: node type -> rows kept.
        lists: edge type -> nodes whose lists are kept, best first; empty when the caches are made.
        hotness: node type -> uint8[num_nodes], visits of the profile; likewise.
        rows_on_device: node type -> rows kept on a device by a policy of its own; None: it is found out after the first steps.
    """

    memory: MemoryPlan
    num_workers: int
    max_in_flight: int
    rows: dict[NodeType, int]
    lists: dict[EdgeType, np.ndarray]
    hotness: dict[NodeType, np.ndarray]
    rows_on_device: Mapping[NodeType, int] | None = None


def fit_memory(
    plan: Plan,
    maker: BatchMaker,
    caches: Caches,
    *,
    num_workers: int,
    max_in_flight: int,
    make_batch: Callable[[np.ndarray], Any],
    step: Callable[[Any], object] | None,
    use: DeviceUse | None = None,
) -> Fitted:
    """Take a short profile and share the plan's budget out.

    Args:
        plan: with `host_memory`, resolved.
        maker, caches: make batches; nothing is kept in memory yet.
        num_workers, max_in_flight: threads, and batches at once at most.
        make_batch: int64 positions of seeds -> a batch.
        step: a training step on a copy of the model; None: one that takes twice the features of a batch, of the device if there is one.
        use: what a device needs; None: there is none.
    Raises:
        BudgetError: see `plan_memory`.
    """
    assert plan.host_memory is not None
    budget, graph = parse_bytes(plan.host_memory), maker.sampler.graph
    row_bytes = {t: sum(table.tier.row_bytes) for t, table in caches.tables.items() if isinstance(t, str)}
    kept_types = list(row_bytes) if plan.policy is not None else []
    profile = take_profile(maker, kept_types if plan.device_policy is None else row_bytes)
    gathered = sum(profile.num_nodes.get(t, 0) * width for t, width in row_bytes.items())
    sample, rows = (int(MARGIN * size) for size in batch_bytes(profile, row_bytes, use))
    staging, batch = (0 if use is None else ROUNDING * (sample + rows)), sample + rows
    asked = sum(count for t, count in profile.num_nodes.items() if use is None or t not in use.types_read)
    in_flight = max(max_in_flight, 1)
    while in_flight > 1 and (in_flight + 1) * (batch + staging) > BATCHES_SHARE * budget:
        in_flight -= 1
    let_go_of_libraries()
    measured = _try_step(maker, profile, make_batch, step or (lambda batch: None))
    untried = 0 if use is not None else int(STEP_BYTES_PER_ROW_BYTE * gathered)
    step_bytes = untried if step is None else measured
    maker.let_go()
    give_back_freed_memory()
    process_bytes = resident_bytes_outside(".npy") - profile.num_bytes - (0 if use is None else use.copied_bytes)
    search = _Search(plan, graph, profile, {t: row_bytes[t] for t in kept_types}, use)
    is_drawn_here = use is None or not use.is_drawing

    def share_out(num_threads: int, *, with_lists: bool, with_pointers: bool) -> MemoryPlan:
        search.use_lists(with_lists)
        needs = Needs(
            process=process_bytes,
            step=step_bytes,
            pointers=with_pointers * is_drawn_here * sum(csc.indptr.nbytes for csc in graph.adjacency.values()),
            sampling=num_threads * profile.workspace_bytes * is_drawn_here,
            batches=(in_flight + 1) * batch + num_threads * sample * search.is_ahead,
            pinned=0 if use is None else use.pinned_bytes,
            staging=(in_flight + 1) * staging,
            reading=caches.most_disk_bytes(num_threads) + min(num_threads, in_flight) * READ_BYTES_PER_ROW * asked,
            tables=_table_bytes(plan, graph, kept_types, with_lists) + state_bytes(plan, graph, use),
        )
        in_use_later = needs.step + needs.sampling + needs.batches + needs.staging + needs.reading
        at_first = max(_ranking_bytes(plan, graph, kept_types), 0 if use is None else use.placing_bytes)
        needs = replace(needs, ranking=max(0, at_first - in_use_later))
        return plan_memory(budget, needs, search.ways(num_threads), search.misses)

    refusal: BudgetError | None = None
    for threads, with_lists, with_pointers in _ways_out(max(num_workers, 1), plan):
        try:
            memory = share_out(threads, with_lists=with_lists, with_pointers=with_pointers)
        except BudgetError as error:
            refusal = error
            continue
        lists, rows = search.divide(memory.cache_bytes)
        return Fitted(
            memory=memory,
            num_workers=min(num_workers, threads),
            max_in_flight=in_flight,
            rows=rows,
            lists=lists,
            hotness=profile.row_visits,
            rows_on_device=None if use is None else use.rows,
        )
    assert refusal is not None
    raise refusal


def _ways_out(num_threads: int, plan: Plan) -> list[tuple[int, bool, bool]]:
    """What is given up, one after the other, before a budget is refused: threads; kept lists and their table; row pointers that stay in
    memory, of which the page cache then has what it can within the reserve."""
    has_lists = plan.neighbor_policy is not None
    ways = [(num_threads, has_lists, True), (1, has_lists, True), (1, False, True), (1, False, False)]
    return list(dict.fromkeys(ways))


def _try_step(maker: BatchMaker, profile: Profile, make_batch: Callable[[np.ndarray], Any], step: Callable[[Any], object]) -> int:
    """Bytes that a step takes on a whole batch, from one on a part of it: memory follows the rows."""
    positions = maker.order.batch(0, 0, maker.batch_size)
    step(make_batch(positions[:1]))  # what libraries set up once
    batch = make_batch(positions[: max(1, int(PROBED_SHARE * positions.size))])
    give_back_freed_memory()
    grown = peak_growth(lambda: step(batch))
    return int(MARGIN * grown * max(1.0, sum(profile.num_nodes.values()) / max(int(batch.num_nodes), 1)))


def _table_bytes(plan: Plan, graph: Graph, kept_types: list[NodeType], with_lists: bool) -> int:
    """Directories and states of every node, whether its row is kept or not; the table that finds kept lists."""
    per_node = STATIC_DIRECTORY_BYTES_PER_NODE if plan.policy in STATIC else DIRECTORY_BYTES_PER_NODE + 1
    lists = table_bytes(graph.adjacency) if with_lists else 0
    return per_node * sum(graph.num_nodes[t] for t in kept_types) + lists


def _ranking_bytes(plan: Plan, graph: Graph, kept_types: list[NodeType]) -> int:
    """What choosing rows takes before the caches are made."""
    per_node = RANKING_BYTES_PER_NODE.get(plan.policy or "", 0)
    if plan.policy == "inclusion":
        return per_node * sum(graph.num_nodes.values())
    return per_node * max((graph.num_nodes[t] for t in kept_types), default=0)


class _Search:
    """What is missed with so many bytes for caches: lists by the visits of the profile, rows by the simulator over its trace."""

    def __init__(self, plan: Plan, graph: Graph, profile: Profile, row_bytes: Mapping[NodeType, int], use: DeviceUse | None) -> None:
        self._plan, self._profile, self._graph = plan, profile, graph
        self._is_drawn_on_device = use is not None and use.is_drawing
        self._on_device = dict(use.rows or {}) if use is not None and plan.device_policy == Belady.name else {}
        self.is_ahead = Belady.name in (plan.policy, plan.device_policy)
        self._row_bytes = {t: width + STATE_BYTES_PER_ROW for t, width in row_bytes.items()}
        self._num_nodes = {t: graph.num_nodes[t] for t in row_bytes}
        self._lists: VisitedLists | None = None
        self._share: float | None = None
        self._known: dict[Any, float] = {}
        self._windows = [window for window in WINDOWS if window <= max(WINDOWS[0], profile.num_batches // 2)]

    def use_lists(self, with_lists: bool) -> None:
        """Whether neighbour lists may be kept."""
        self._lists = VisitedLists(self._profile.list_visits, self._graph.adjacency) if with_lists else None
        self._share = None

    def ways(self, num_threads: int) -> list[Ahead]:
        """To look ahead; of what is sampled again, threads that make batches sample too."""
        profile = self._profile
        if not self.is_ahead:
            return [Ahead(1, "samples", 0)]
        uses = int(MARGIN * USE_BYTES * sum(profile.num_nodes.values()))
        if self._is_drawn_on_device:  # and held there
            return [Ahead(window, "samples", window * uses) for window in self._windows]
        ways = [Ahead(window, "samples", window * (int(MARGIN * profile.held_bytes) + uses)) for window in self._windows]
        return ways + [Ahead(window, "ids", window * uses + num_threads * profile.workspace_bytes) for window in self._windows]

    def misses(self, way: Ahead, cache_bytes: int) -> float:
        """Reads per batch that remain."""
        if self._share is None:
            middle = self._windows[len(self._windows) // 2]
            self._share = min(LIST_SHARES if self._lists else (0.0,), key=lambda share: self._misses(middle, cache_bytes, share, 1))
        return self._misses(way.window, cache_bytes, self._share, 1 if way.hold == "samples" else 2)

    def divide(self, cache_bytes: int) -> tuple[dict[EdgeType, np.ndarray], dict[NodeType, int]]:
        """(nodes whose lists are kept, rows kept)."""
        list_bytes = self._list_bytes(cache_bytes, self._share or 0.0)
        return self._lists.keep(list_bytes) if self._lists else {}, self._rows(cache_bytes - list_bytes)

    def _misses(self, window: int, cache_bytes: int, share: float, times_sampled: int) -> float:
        list_bytes = self._list_bytes(cache_bytes, share)
        lists = self._lists.misses(list_bytes) / self._profile.num_batches if self._lists else 0.0
        kept = sum(self._row_misses(t, n, window, self._plan.policy) for t, n in self._rows(cache_bytes - list_bytes).items())
        on_device = sum(self._row_misses(t, n, window, self._plan.device_policy) for t, n in self._on_device.items())
        return times_sampled * lists + kept + on_device

    def _list_bytes(self, cache_bytes: int, share: float) -> int:
        if self._lists is None:
            return 0
        return min(int(share * cache_bytes) if self._row_bytes else cache_bytes, self._lists.num_bytes)

    def _rows(self, num_bytes: int) -> dict[NodeType, int]:
        """The same share of the rows of each type."""
        whole = sum(self._num_nodes[t] * width for t, width in self._row_bytes.items())
        return {t: int(min(1.0, num_bytes / max(whole, 1)) * self._num_nodes[t]) for t in self._row_bytes}

    def _row_misses(self, node_type: NodeType, num_rows: int, window: int, name: str | None) -> float:
        """Per batch, over the second half of the trace; the first warms the cache up. `name`: of the policy."""
        key = node_type, num_rows, window, name
        if key not in self._known:
            trace, visits = self._profile.traces[node_type], self._profile.trace_visits[node_type]
            capacity = num_rows // THINNING
            is_ahead = name == Belady.name
            policy = Belady(visits.size, capacity, window, visits) if is_ahead else Static(visits.size, capacity)
            policy.fill(plan_static(visits, capacity))
            hits, asked = simulate(policy, (ids.astype(np.int64) for ids in trace))
            missed = (asked - hits)[len(trace) // 2 :]
            self._known[key] = THINNING * float(missed.mean())
        return self._known[key]
