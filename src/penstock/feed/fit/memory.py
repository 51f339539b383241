"""One budget of host memory, fitted to this machine, graph and model.

In: a plan with a budget, a batch maker, and a training step to try. Out: what is kept, how far the loader looks ahead, and how many batches
it makes at once, so that the whole process stays within the budget; or a refusal with the sum. Batches do not depend on any of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cache.choose import STATIC, ranking_bytes
from penstock.errors import BudgetError, argument
from penstock.feed.fit.device import ROUNDING, DeviceUse, batch_bytes, state_bytes
from penstock.feed.fit.profile import Profile, take_profile
from penstock.feed.fit.search import MARGIN, CacheSearch
from penstock.feed.fit.spool import GROUPS, SpooledRows, spool_bytes
from penstock.feed.fit.ways import Way, choose_way, ways_to_run
from penstock.feed.options import samples_ahead
from penstock.plan import Plan
from penstock.plan.capacity import DIRECTORY_BYTES_PER_NODE, STATIC_DIRECTORY_BYTES_PER_NODE
from penstock.plan.lists import table_bytes
from penstock.plan.memory import MemoryPlan, Needs
from penstock.records import EdgeType, Graph, NodeType
from penstock.sample.joint import joint_bytes
from penstock.store.budget import parse_bytes, require_room
from penstock.store.process_memory import (
    anonymous_bytes,
    give_back_freed_memory,
    keeps_freed_memory,
    let_go_of_arrays,
    let_go_of_libraries,
    letting_freed_memory_go,
    peak_growth,
    resident_bytes,
    resident_bytes_outside,
    stop_keeping_freed_memory,
)
from penstock.store.progress import told
from penstock.store.tiers import DiskTier

if TYPE_CHECKING:
    from penstock.feed.caches import Caches
    from penstock.feed.maker import BatchMaker

BATCHES_SHARE = 0.3
"""Share of the budget that batches under way may take before fewer are made at once."""
PROBED_SHARES = (0.125, 0.25, 0.5, 1.0)
"""Shares of a batch on which a training step is tried, as far as memory suffices; large ones matter, as edges grow faster than nodes."""
KEPT_MARGIN, MOST_KEPT = 1.5, 2.5
"""Factors on the memory of a step, in place of MARGIN, if malloc keeps freed memory: free memory is fragmented, so a step touches more than
it uses. A step with a peak of 347 MiB grew the process by 390 to 510 MiB, one of larger pieces with a peak of 680 MiB by 1,120 to 1,610. If
there is room for MOST_KEPT, two consecutive steps are measured; KEPT_MARGIN is the least."""
NEW_SHARE, FILES_BYTES = 0.25, 32 << 20
"""Share of a step's memory that it may allocate beside what earlier steps left free (measured: 130 of 520 MiB); and what libraries may take
beyond what they took before the first epoch (measured: 24 MiB)."""
READ_BYTES_PER_ROW = 96
"""Bytes per row of the plan of a read: order, places, starts, lengths."""
STEP_BYTES_PER_ROW_BYTE = 2.0
"""Assumed memory of a step if there is none to try: twice the features of a batch."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Memory that the process may hold between two batches.

    Attributes:
        held_bytes: of memory, without file pages; beyond it, free memory is returned to the system.
    """

    held_bytes: int

    @classmethod
    def below(cls, num_bytes: int, step_bytes: int, new_share: float = NEW_SHARE) -> Bound:
        """Return the bound that leaves room for the next step below `num_bytes` of memory; `new_share`: the share of it that takes new
        memory, not what is free already."""
        return cls(num_bytes - int(new_share * step_bytes) - FILES_BYTES)

    def keep_within(self) -> None:
        """Call between two batches: return memory that malloc keeps to the system, if the next step might exceed the bound.

        Steps and threads free pieces of varying sizes, and allocate new memory if none of these fits: in 60 steps on a typed graph the
        process grew from 1.05 to 1.3 GiB, with 500 MiB of malloc's memory in use after each forward pass and 260 between steps. Returning
        memory at every step halves the seeds per second.
        """
        if anonymous_bytes() > self.held_bytes:
            give_back_freed_memory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The result of fitting a budget.

    Attributes:
        memory: the sum.
        batch_bytes: counted for the rows of a batch; None if a device reads or receives them.
        num_workers: threads; fewer than asked for if memory is short.
        max_in_flight: batches being made or waiting; if rows are read ahead, one if that leaves more for caches.
        rows: node type -> rows kept.
        lists: edge type -> nodes whose lists are kept, best first; empty when the caches are made.
        visits: node type -> uint8[num_nodes], of the profile; empty when the caches are made.
        num_sampled: batches of the profile.
        rows_on_device: node type -> rows kept on a device by its own policy; None: determined after the first steps.
        bound: on the memory held between two batches.
    """

    memory: MemoryPlan
    batch_bytes: int | None
    num_workers: int
    max_in_flight: int
    rows: dict[NodeType, int]
    lists: dict[EdgeType, np.ndarray]
    visits: dict[NodeType, np.ndarray]
    num_sampled: int
    rows_on_device: Mapping[NodeType, int] | None = None
    bound: Bound


def fit_memory(
    plan: Plan,
    maker: BatchMaker,
    caches: Caches,
    *,
    num_workers: int,
    max_in_flight: int,
    step: Callable[[Any], object] | None,
    use: DeviceUse | None,
) -> Fitted:
    """Take a short profile and divide the plan's budget.

    Args:
        plan: with `host_memory`, resolved.
        maker, caches: make batches; no rows or lists are kept yet.
        num_workers, max_in_flight: most threads, and most batches at once.
        step: a training step on a copy of the model; None: assume that it takes twice the features of a batch (on the device, if any).
        use: what a device needs; None: there is no device.
    Raises:
        BudgetError: see `plan_memory`; or the container around this process has less.
    """
    assert plan.host_memory is not None
    budget = parse_bytes(plan.host_memory)
    row_bytes = {t: table.row_bytes for t, table in caches.of_nodes.items()}
    kept = row_bytes if plan.policy is not None else {}
    profile = take_profile(maker, kept if plan.device_policy is None else row_bytes)
    batch = measure_batch(profile, row_bytes, use)
    in_flight = max(max_in_flight, 1)
    while in_flight > 1 and (in_flight + 1) * (batch.sample + batch.rows + batch.staging) > BATCHES_SHARE * budget:
        in_flight -= 1
    shares = PROBED_SHARES if use is None else PROBED_SHARES[:1]  # a step takes memory of the device too

    def measured() -> tuple[int, int]:
        process_bytes, step_bytes = measure_step(maker, caches, profile, step or (lambda batch: None), use, budget, shares)
        if step is None:
            gathered = sum(profile.num_nodes.get(t, 0) * width for t, width in row_bytes.items())
            step_bytes = 0 if use is not None else int(STEP_BYTES_PER_ROW_BYTE * gathered)
        return process_bytes, step_bytes

    process_bytes, step_bytes = measured()
    file_bytes = max(0, resident_bytes_outside(".npy") - anonymous_bytes())
    search = CacheSearch(plan, maker.sampler.graph, profile, kept, use, _spooled(plan, caches, row_bytes))
    run = _Run(
        plan=plan, graph=maker.sampler.graph, caches=caches, use=use, kept_types=list(kept), is_ahead=search.is_ahead, batch=batch,
        process_bytes=process_bytes, step_bytes=step_bytes, workspace_bytes=profile.workspace_bytes,
    )  # fmt: skip
    ways = ways_to_run(max(num_workers, 1), in_flight, plan)
    try:
        memory, way = choose_way(budget, ways, run.needs, search)
    except BudgetError:
        if not keeps_freed_memory():
            raise
        stop_keeping_freed_memory()  # slower, but takes less memory
        process_bytes, step_bytes = measured()
        run = replace(run, process_bytes=process_bytes, step_bytes=step_bytes)
        memory, way = choose_way(budget, ways, run.needs, search)
    lists, rows = search.divide(memory.cache_bytes)
    whole = sum(caches.of_nodes[t].num_rows * width for t, width in kept.items())
    whole += sum(csc.indices.nbytes for csc in maker.sampler.graph.adjacency.values())
    planned = memory.needs.total - process_bytes + memory.ahead.num_bytes + min(memory.cache_bytes, whole)
    require_room(planned, f"what is still to come of {argument('host_memory', plan.host_memory)}", "give less, by the difference")
    return Fitted(
        memory=memory,
        batch_bytes=batch.rows if use is None else None,
        num_workers=min(num_workers, way.num_threads),
        max_in_flight=way.in_flight,
        rows=rows,
        lists=lists,
        visits=profile.row_visits,
        num_sampled=profile.num_batches,
        rows_on_device=None if use is None else use.rows,
        bound=Bound.below(budget - file_bytes - memory.needs.pointers, step_bytes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBytes:
    """Most host memory that a batch takes, in bytes.

    Attributes:
        sample, rows: bytes of the sample, and of the gathered rows.
        staging: bytes of the pinned copies of both, on their way to a device.
        num_read: rows that no device reads directly.
        num_edges: sampled edges.
    """

    sample: int
    rows: int
    staging: int
    num_read: int
    num_edges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What is known about a run before its budget is divided.

    Attributes:
        plan, caches, use: the arguments of `fit_memory`. graph: the sampled graph.
        kept_types: node types whose rows are kept in memory.
        is_ahead: samples are drawn before their rows are read.
        batch: memory of a batch.
        process_bytes, step_bytes: memory of the process, and of a training step on top of it.
        workspace_bytes: memory of one sampling thread.
    """

    plan: Plan
    graph: Graph
    caches: Caches
    use: DeviceUse | None
    kept_types: list[NodeType]
    is_ahead: bool
    batch: BatchBytes
    process_bytes: int
    step_bytes: int
    workspace_bytes: int

    def needs(self, way: Way) -> Needs:
        """Return what a way to run takes beside its caches."""
        plan = self.plan
        graph = self.graph
        use = self.use
        batch = self.batch
        is_drawn_here = use is None or not use.is_drawing
        num_readers = readers_of(plan, way.num_threads, way.in_flight)
        needs = Needs(
            process=self.process_bytes,
            step=self.step_bytes,
            pointers=way.with_pointers * is_drawn_here * sum(csc.indptr.nbytes for csc in graph.adjacency.values()),
            sampling=way.num_threads * self.workspace_bytes * is_drawn_here,
            batches=(way.in_flight + 1) * (batch.sample + batch.rows) + samples_ahead(plan, way.num_threads) * batch.sample * self.is_ahead,
            pinned=0 if use is None else use.pinned_bytes,
            staging=(way.in_flight + 1) * batch.staging,
            reading=reading_bytes(plan, self.caches, batch, way.num_threads, way.in_flight) + self._spool_bytes(num_readers),
            tables=_table_bytes(plan, graph, self.kept_types, way.with_lists) + state_bytes(plan, graph, use),
        )
        in_use_later = needs.step + needs.sampling + needs.batches + needs.staging + needs.reading
        at_first = max(ranking_bytes(plan.policy, graph.num_nodes, self.kept_types), 0 if use is None else use.placing_bytes)
        return replace(needs, ranking=max(0, at_first - in_use_later))

    def _spool_bytes(self, num_readers: int) -> int:
        tiers = [self.caches.tables[t].tier for t in self.kept_types if self.plan.spool is not None]
        return sum(spool_bytes(tier.row_bytes, GROUPS[-1], num_readers, READ_BYTES_PER_ROW) for tier in tiers)


def _spooled(plan: Plan, caches: Caches, row_bytes: Mapping[NodeType, int]) -> dict[NodeType, SpooledRows]:
    """Return node type -> rows that are read through a spool; types share the spool in proportion to their bytes."""
    if plan.spool is None:
        return {}
    tiers = {t: caches.tables[t].tier for t in row_bytes}
    half, whole = parse_bytes(plan.spool) // 2, sum(tier.num_rows * row_bytes[t] for t, tier in tiers.items())
    found = {}
    for t, tier in tiers.items():
        assert isinstance(tier, DiskTier)
        share = tier.num_rows * row_bytes[t] / max(1, whole)
        found[t] = SpooledRows(num_rows=tier.num_rows, row_bytes=row_bytes[t], gap_bytes=tier.gap_bytes, half_bytes=int(share * half))
    return found


def measure_batch(profile: Profile, row_bytes: Mapping[NodeType, int], use: DeviceUse | None) -> BatchBytes:
    """Return the most that a batch takes, according to a profile; `row_bytes`: of a node of each type."""
    sample, rows = (int(MARGIN * size) for size in batch_bytes(profile, row_bytes, use))
    num_read = sum(count for t, count in profile.num_nodes.items() if use is None or t not in use.types_read)
    staging = 0 if use is None else ROUNDING * (sample + rows)
    return BatchBytes(sample=sample, rows=rows, staging=staging, num_read=num_read, num_edges=profile.num_edges)


def readers_of(plan: Plan, num_threads: int, in_flight: int) -> int:
    """Return the number of threads that read rows at the same time."""
    return min(num_threads, in_flight + plan.is_read_ahead)  # one more, as a batch that is given up may still be read


def reading_bytes(plan: Plan, caches: Caches, batch: BatchBytes, num_threads: int, in_flight: int) -> int:
    """Return the memory for reads from disks: buffers, and plans of reads; those of lists are read together."""
    num_readers = readers_of(plan, num_threads, in_flight)
    of_disks = caches.most_disk_bytes(num_readers if plan.is_read_ahead else num_threads)
    of_lists = joint_bytes(num_threads, batch.num_edges) if plan.topology == "disk" else 0
    return of_disks + num_readers * READ_BYTES_PER_ROW * batch.num_read + of_lists


def measure_step(
    maker: BatchMaker,
    caches: Caches,
    profile: Profile,
    step: Callable[[Any], object],
    use: DeviceUse | None,
    budget: int,
    shares: Sequence[float] = PROBED_SHARES,
) -> tuple[int, int]:
    """Return (bytes of the process after a step was tried, further bytes of a step on a whole batch). Tries a step on a single seed, and on
    growing `shares` of a batch, as far as the budget allows."""
    is_kept, batch = keeps_freed_memory(), None
    let_go_of_libraries()
    positions = maker.order.batch(0, 0, maker.batch_size)
    few = maker.make(caches, positions[:1], 0, 0)
    with letting_freed_memory_go():  # moments of learnt rows leave no hole in the heap, which steps would fill piece by piece
        step(few)  # libraries allocate once
    give_back_freed_memory()
    let_go_of_arrays()
    with letting_freed_memory_go():
        fixed = peak_growth(partial(step, few))  # such as gradients of learnt rows
    margin = KEPT_MARGIN if is_kept else MARGIN
    num_few = int(few.num_nodes)
    whole = sum(profile.num_nodes.values())
    grown = 0
    many = 0
    sizes = sorted({max(1, int(share * positions.size)) for share in shares})
    for size in told(sizes, "parts of a batch that a step was tried on:", len(sizes)):
        batch = None  # before there is the next one
        batch = maker.make(caches, positions[:size], 0, 0)
        give_back_freed_memory()
        let_go_of_arrays()
        num_nodes = int(batch.num_nodes)
        if many and resident_bytes() + margin * _of_whole_batch(fixed, grown, num_few, many, num_nodes) > budget:
            break  # by what is known now, it would exceed the budget
        with letting_freed_memory_go():
            grown, many = peak_growth(partial(step, batch)), num_nodes
    step_bytes = _of_whole_batch(fixed, grown, num_few, many, whole)
    if is_kept and use is None:
        give_back_freed_memory()
        kept_bytes = MOST_KEPT * step_bytes
        if resident_bytes() + kept_bytes <= budget:
            kept_bytes = peak_growth(partial(_repeat, step, batch)) * max(1.0, whole / many)
        margin = max(margin, kept_bytes / max(step_bytes, 1))
    del few, batch  # not to be counted as the process' memory
    maker.let_go()
    give_back_freed_memory()
    return resident_bytes_outside(".npy") - profile.num_bytes - (0 if use is None else use.copied_bytes), int(margin * step_bytes)


def _repeat(step: Callable[[Any], object], batch: Any) -> None:
    """Run a step twice: the second finds the memory that the first one freed."""
    for _ in range(2):
        step(batch)


def _of_whole_batch(few_bytes: int, many_bytes: int, few: int, many: int, whole: int) -> int:
    """Return the bytes of a step on `whole` nodes, extrapolated linearly from steps on `few` and on `many` nodes."""
    ratio = max(1.0, whole / max(many, 1))
    if many_bytes < few_bytes:  # the fixed part fitted into freed memory
        return int(few_bytes + many_bytes * ratio)
    if many < 2 * few:  # too close to separate the fixed part
        return int(many_bytes * ratio)
    return int(many_bytes + (many_bytes - few_bytes) * (ratio - 1) * many / (many - few))


def _table_bytes(plan: Plan, graph: Graph, kept_types: list[NodeType], with_lists: bool) -> int:
    """Return the memory of directories and policy states, which have an entry for every node, and of the table that finds kept lists."""
    per_node = STATIC_DIRECTORY_BYTES_PER_NODE if plan.policy in STATIC else DIRECTORY_BYTES_PER_NODE + 1
    lists = table_bytes(graph.adjacency) if with_lists else 0
    return per_node * sum(graph.num_nodes[t] for t in kept_types) + lists
