"""One budget of host memory, fitted to this machine, graph and model.

In: a plan with a budget, what makes batches, and a training step to try. Out: what is kept, how far the loader looks ahead, and how many
batches it makes at once, so that all of the process stays within the budget; or a refusal with the sum. Batches do not depend on any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cache.choose import RANKING_BYTES_PER_NODE, STATIC
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
"""Of the budget that batches under way may take before fewer of them are made at once."""
PROBED_SHARES = (0.125, 0.25, 0.5, 1.0)
"""Of a batch, that a training step is tried with, as far as memory holds it: edges grow faster than nodes."""
KEPT_MARGIN, MOST_KEPT = 1.5, 2.5
"""Of a step, in place of MARGIN, where malloc keeps what is freed: what is free lies in pieces, of which a step touches more than it uses.
One that uses 347 MiB at its peak was seen to grow by 390 to 510, and one of larger pieces that uses 680 by 1,120 to 1,610: at least, and
at most, between which two steps in a row tell."""
NEW_SHARE, FILES_BYTES = 0.25, 32 << 20
"""Of a step, that it may take beside what earlier ones have left free: 130 of 520 MiB; and what libraries may take that they did not take
before the first epoch: 24 MiB."""
READ_BYTES_PER_ROW = 96
"""Of the plan of a read: order, places, starts, lengths."""
STEP_BYTES_PER_ROW_BYTE = 2.0
"""Where no step is there to be tried: twice the features of a batch."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What the process may hold between two batches.

    Attributes:
        held_bytes: of memory, not of files; beyond it, what is free is given back.
    """

    held_bytes: int

    @classmethod
    def below(cls, num_bytes: int, step_bytes: int, new_share: float = NEW_SHARE) -> Bound:
        """Return what leaves room for the next step below `num_bytes` of memory; `new_share`: what it takes beside what is free."""
        return cls(num_bytes - int(new_share * step_bytes) - FILES_BYTES)

    def keep_within(self) -> None:
        """Between two batches: give back what malloc keeps where the next step might go beyond the bound.

        Steps and threads free memory in pieces of ever other sizes, and take new memory where none of them fits: in 60 steps of a typed
        graph the process grew from 1.05 to 1.3 GiB, with 500 MiB of malloc's in use after each forward pass and 260 between steps. To
        give back at every step halves the seeds per second.
        """
        if anonymous_bytes() > self.held_bytes:
            give_back_freed_memory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a budget came to.

    Attributes:
        memory: the sum.
        batch_bytes: counted for the rows of a batch; None where a device reads or gets them.
        num_workers: threads, fewer where memory is short.
        max_in_flight: batches in the making or waiting; of rows that are read ahead, one where that leaves more for caches.
        rows: node type -> rows kept.
        lists: edge type -> nodes whose lists are kept, best first; empty when the caches are made.
        visits: node type -> uint8[num_nodes], of the profile; likewise.
        num_sampled: batches of the profile.
        rows_on_device: node type -> rows kept on a device by a policy of its own; None: it is found out after the first steps.
        bound: of what is held between two batches.
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
    """Take a short profile and share the plan's budget out.

    Args:
        plan: with `host_memory`, resolved.
        maker, caches: make batches; nothing is kept in memory yet.
        num_workers, max_in_flight: threads, and batches at once at most.
        step: a training step on a copy of the model; None: one that takes twice the features of a batch, of the device if there is one.
        use: what a device needs; None: there is none.
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
    shares = PROBED_SHARES if use is None else PROBED_SHARES[:1]  # the memory of a device is taken too

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
        stop_keeping_freed_memory()  # slower, but less
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
    """Bytes of the host that a batch takes at most.

    Attributes:
        sample, rows: drawn, and gathered.
        staging: pinned copies of both, on their way to a device.
        num_read: rows that no device reads by itself.
        num_edges: drawn.
    """

    sample: int
    rows: int
    staging: int
    num_read: int
    num_edges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What is known of a run before its budget is shared out.

    Attributes:
        plan, caches, use: of `fit_memory`. graph: that is sampled.
        kept_types: node types whose rows are kept in memory.
        is_ahead: samples are drawn ahead of their rows.
        batch: bytes of one.
        process_bytes, step_bytes: of the process, and of a training step above that.
        workspace_bytes: of one sampling thread.
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
        """What it takes beside its caches."""
        plan, graph, use, batch = self.plan, self.graph, self.use, self.batch
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
        at_first = max(_ranking_bytes(plan, graph, self.kept_types), 0 if use is None else use.placing_bytes)
        return replace(needs, ranking=max(0, at_first - in_use_later))

    def _spool_bytes(self, num_readers: int) -> int:
        tiers = [self.caches.tables[t].tier for t in self.kept_types if self.plan.spool is not None]
        return sum(spool_bytes(tier.row_bytes, GROUPS[-1], num_readers, READ_BYTES_PER_ROW) for tier in tiers)


def _spooled(plan: Plan, caches: Caches, row_bytes: Mapping[NodeType, int]) -> dict[NodeType, SpooledRows]:
    """Node type -> rows that are read through a spool, its share of that by its share of the bytes."""
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
    """Return what a batch takes at most, by a profile; `row_bytes`: of a node of each type."""
    sample, rows = (int(MARGIN * size) for size in batch_bytes(profile, row_bytes, use))
    num_read = sum(count for t, count in profile.num_nodes.items() if use is None or t not in use.types_read)
    staging = 0 if use is None else ROUNDING * (sample + rows)
    return BatchBytes(sample=sample, rows=rows, staging=staging, num_read=num_read, num_edges=profile.num_edges)


def readers_of(plan: Plan, num_threads: int, in_flight: int) -> int:
    """Threads that read rows at once."""
    return min(num_threads, in_flight + plan.is_read_ahead)  # one more in the place of a batch that is given up


def reading_bytes(plan: Plan, caches: Caches, batch: BatchBytes, num_threads: int, in_flight: int) -> int:
    """What reads from disks take: buffers, and plans of reads, those of lists together."""
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
    """Return (bytes of the process once a step was tried, those that a step on a whole batch takes above that), by one on a single seed and
    one on a part of it, the larger of `shares` the better, as far as the budget holds it."""
    is_kept, batch = keeps_freed_memory(), None
    let_go_of_libraries()
    positions = maker.order.batch(0, 0, maker.batch_size)
    few = maker.make(caches, positions[:1], 0, 0)
    with letting_freed_memory_go():  # moments of learnt rows leave no hole in the heap, which steps would fill piece by piece
        step(few)  # what libraries set up once
    give_back_freed_memory()
    let_go_of_arrays()
    with letting_freed_memory_go():
        fixed = peak_growth(partial(step, few))  # such as gradients of rows that are learnt
    margin = KEPT_MARGIN if is_kept else MARGIN
    num_few, whole, grown, many = int(few.num_nodes), sum(profile.num_nodes.values()), 0, 0
    sizes = sorted({max(1, int(share * positions.size)) for share in shares})
    for size in told(sizes, "parts of a batch that a step was tried on:", len(sizes)):
        batch = None  # before there is the next one
        batch = maker.make(caches, positions[:size], 0, 0)
        give_back_freed_memory()
        let_go_of_arrays()
        num_nodes = int(batch.num_nodes)
        if many and resident_bytes() + margin * _of_whole_batch(fixed, grown, num_few, many, num_nodes) > budget:
            break  # what is known of it by now will be refused, most likely
        with letting_freed_memory_go():
            grown, many = peak_growth(partial(step, batch)), num_nodes
    step_bytes = _of_whole_batch(fixed, grown, num_few, many, whole)
    if is_kept and use is None:
        give_back_freed_memory()
        kept_bytes = MOST_KEPT * step_bytes
        if resident_bytes() + kept_bytes <= budget:
            kept_bytes = peak_growth(partial(_repeat, step, batch)) * max(1.0, whole / many)
        margin = max(margin, kept_bytes / max(step_bytes, 1))
    del few, batch  # their memory is not the process'
    maker.let_go()
    give_back_freed_memory()
    return resident_bytes_outside(".npy") - profile.num_bytes - (0 if use is None else use.copied_bytes), int(margin * step_bytes)


def _repeat(step: Callable[[Any], object], batch: Any) -> None:
    """Take a step twice: the second one comes upon what the first one left."""
    for _ in range(2):
        step(batch)


def _of_whole_batch(few_bytes: int, many_bytes: int, few: int, many: int, whole: int) -> int:
    """Bytes of a step on `whole` nodes, by those of steps on `few` and on `many` of them: along the line through both."""
    ratio = max(1.0, whole / max(many, 1))
    if many_bytes < few_bytes:  # what is fixed found room in what was freed
        return int(few_bytes + many_bytes * ratio)
    if many < 2 * few:  # too near each other to tell what is fixed
        return int(many_bytes * ratio)
    return int(many_bytes + (many_bytes - few_bytes) * (ratio - 1) * many / (many - few))


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
