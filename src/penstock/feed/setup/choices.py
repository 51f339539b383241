"""What a plan keeps: policies with their capacities over the tables of a loader, and the neighbour lists that are kept.

In: a plan, the fields of an input, and what will be sampled. Out: `Caches`. Invariant: all that is kept fits the capacities of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cache.belady import Belady
from penstock.cache.choose import BY_VISITS, STATIC, Choice, belady_choice, choose_policy, fixed_choice, list_values, plan_beneath
from penstock.cache.policy import MAX_NODES
from penstock.cache.presample import NUM_THREADS
from penstock.cache.shard import plan_shards
from penstock.cache.workload import Workload
from penstock.errors import UsageError, argument
from penstock.feed.caches import Caches
from penstock.feed.fields import Field
from penstock.feed.setup.bottoms import Access, lay_out
from penstock.feed.setup.device_slopes import lines_per_read, measure_device_slopes
from penstock.feed.setup.shards import shared_cache
from penstock.feed.setup.slopes import measure_slopes
from penstock.feed.setup.topology import make_lists
from penstock.gather import CachedTier, DeviceTable, FusedCache, ShardGroup, SpooledTier, TieredTable, sizes_of
from penstock.gather.spool_file import least_bytes
from penstock.plan import SHARED, Plan, plan_lists, plan_rows, plan_shared
from penstock.records import EdgeType, Graph, NodeType
from penstock.sample.lists import with_lists
from penstock.store.budget import parse_bytes, require_room
from penstock.store.process_memory import free_bytes
from penstock.store.tiers import DiskTier, PinnedTier, Tier, UploadTier, advise_random

if TYPE_CHECKING:
    import torch

    from penstock.feed.fit import Fitted
    from penstock.feed.maker import BatchMaker

Choices = Mapping[NodeType, Choice]
_NOTHING: Choices = {}


def make_caches(
    plan: Plan,
    fields: Sequence[Field],
    edge_fields: Sequence[Field],
    workload: Workload,
    tables: Mapping[Any, TieredTable],
    access: Access,
    *,
    fit: Callable[[Caches], Fitted],
    is_drawn_on_device: bool,
    group: ShardGroup | None,
) -> Caches:
    """Build what a plan asks for.

    Args:
        plan: see there.
        fields, edge_fields: of the input's nodes and edges; a table of their type, if there is one, replaces them.
        workload: what will be sampled; static policies rank by it.
        tables: the user's, by node or edge type; caches are put over those of nodes.
        access: how rows and lists are reached.
        fit: (`Caches` without caches) -> how the plan's budget of memory is shared out, where it has one.
        is_drawn_on_device: a device draws the samples. Lists to keep are only chosen here, and put on the device with the sampler.
        group: ranks that share what is kept on their devices; they have not met yet.
    """
    bottom = lay_out(plan, fields, edge_fields, workload.sampler.graph, tables, access)
    if plan.is_plain and plan.host_memory is None and plan.device_policy is None:
        return bottom
    if plan.neighbor_policy is not None:
        workload.sampler.graph.check_lists()
    over, drawn_on = bottom.of_nodes, access.reader if is_drawn_on_device else None
    _check_nodes(plan, over)
    _check_levels(plan, over, access.reader)
    _check_spool(plan, over)
    if plan.host_memory is None:
        _check_room(plan, over, access.reader)
        fitted, num_shards = None, 1 if group is None else group.seat.num_ranks
        near, far, kept = _share_out(plan, bottom, workload, drawn_on, num_shards)
    else:
        fitted = fit(bottom)
        plan = replace(plan, window=fitted.memory.ahead.window, hold=fitted.memory.ahead.hold)
        near, far, kept = _within_budget(plan, bottom, workload, fitted, drawn_on)
    tables, sizes = dict(bottom.tables), {t: table.num_rows * table.row_bytes for t, table in over.items()}
    for t in over:
        share = sizes[t] / max(1, sum(sizes.values()))
        tables[t] = with_caches(plan, tables[t], near.get(t), far.get(t), access.reader, group, spool_share=share)
    assert bottom.graph is not None
    if access.is_mapped:  # only now: choosing reads the files in order
        _read_at_random(plan, bottom.graph)
    window = max((choice.window for choice in (*near.values(), *far.values())), default=0)
    window = window if plan.spool is None else plan.window
    lists = dict.fromkeys(bottom.beneath) if drawn_on is not None else make_lists(plan, bottom.graph, bottom.beneath, kept)
    if fitted is not None:  # these have been chosen by, and are as large as the graph
        fitted, kept = replace(fitted, lists={}, visits={}), kept if drawn_on is not None else {}
    return replace(bottom, tables=tables, window=window, graph=with_lists(bottom.graph, lists), kept=kept, hold=plan.hold, fitted=fitted)


def workload_of(plan: Plan, maker: BatchMaker) -> Workload:
    """The batches that a loader will sample, to find out what is hot."""
    return Workload(
        maker.sampler, maker.seeds, maker.order, maker.batch_size,
        num_epochs=plan.presample_epochs, max_batches=plan.presample_batches, by_inclusion=plan.is_by_inclusion,
        num_threads=1 if plan.host_memory is not None else NUM_THREADS,
        drawn_by=None if maker.device_sampler is None else maker.device_sampler.over,
    )  # fmt: skip


def with_caches(
    plan: Plan,
    table: TieredTable,
    near: Choice | None,
    far: Choice | None,
    reader: torch.device | None,
    group: ShardGroup | None = None,
    *,
    spool_share: float = 1.0,
) -> TieredTable:
    """Put caches over a table: `near` on the device, above `far` in memory of the host. Where the device reads the rows itself there is one
    cache, on the device, by whichever of the two is given. A cache on the device is shared by the ranks of `group`. `spool_share`: the
    share of the plan's spool for this table."""
    if isinstance(table.tier, PinnedTier):
        choice = near or far
        if choice is None:
            return table
        if group is not None:
            return DeviceTable(shared_cache(choice, table.tier, "cache", table.tier.reader, group), table.kinds)
        return DeviceTable(FusedCache(choice.make, table.tier, choice.content), table.kinds)
    if far is not None:
        name = "cache" if plan.device_policy is None else "host cache"
        slow = table.tier if plan.spool is None else _spooled(plan, table.tier, spool_share)
        table = TieredTable(CachedTier(far.make, slow, far.content, name), table.kinds)
    if near is not None:
        assert reader is not None
        name = "device cache" if isinstance(table.tier, CachedTier) else "cache"
        slow = UploadTier(table.tier, reader)
        if group is not None:
            return DeviceTable(shared_cache(near, slow, name, reader, group), table.kinds)
        table = DeviceTable(CachedTier(near.make, slow, near.content, name, reader=reader), table.kinds)
    return table


def _spooled(plan: Plan, tier: Tier, share: float) -> Tier:
    """Spool rows of a disk, for half a window of batches at a time; unless the share of this type is too small to hold any."""
    assert plan.spool is not None
    assert isinstance(tier, DiskTier)
    if share * parse_bytes(plan.spool) < least_bytes(tier.row_bytes) <= parse_bytes(plan.spool):
        return tier
    folder = tier.folder if plan.spool_folder is None else Path(plan.spool_folder)
    return SpooledTier(tier, folder, int(share * parse_bytes(plan.spool)), max(1, plan.window // 2))


def _check_nodes(plan: Plan, over: Mapping[NodeType, TieredTable]) -> None:
    """Refuse more nodes than a cache can number, before nodes are ranked, which takes memory and time for each of them."""
    values = {"host_memory": plan.host_memory, "policy": plan.policy, "device_policy": plan.device_policy}
    asked = next((argument(name, value) for name, value in values.items() if value is not None), None)
    for node_type, table in over.items() if plan.policy is not None or plan.device_policy is not None else ():
        if table.num_rows > MAX_NODES:
            raise UsageError(
                f"{asked} keeps rows of at most {MAX_NODES:,} nodes of a type, and of {node_type!r} there are {table.num_rows:,}: "
                "leave it out"
            )


def _check_spool(plan: Plan, over: Mapping[NodeType, TieredTable]) -> None:
    """Refuse to spool rows that do not come from a file of the store."""
    for node_type, table in over.items() if plan.spool is not None else ():
        if not isinstance(table.tier, DiskTier):
            raise UsageError(
                f"{argument('spool', plan.spool)} is for rows that are read from files of a store, and those of {node_type!r} were given "
                "as a table (tables=): leave one of the two out"
            )


def _check_levels(plan: Plan, over: Mapping[NodeType, TieredTable], reader: torch.device | None) -> None:
    """Refuse a cache in memory of the host, beneath one on the device, for rows that are in memory of the host anyway."""
    for node_type, table in over.items() if plan.policy is not None and plan.device_policy is not None else ():
        if isinstance(table.tier, PinnedTier):
            raise UsageError(
                f"{argument('policy', plan.policy)} is for rows that {reader} does not read by itself, and those of {node_type!r} are in "
                f"memory of the host: give {argument('device_policy')} alone, or {argument('features', 'disk')}"
            )


def _check_room(plan: Plan, over: Mapping[NodeType, TieredTable], reader: torch.device | None) -> None:
    """Refuse to keep rows in memory of the host for which the container around this process has no room."""
    if plan.policy is not None and plan.neighbor_cache != SHARED and (reader is None or not plan.is_read_by_device):
        num_rows, row_bytes = sizes_of(over)
        kept = plan_rows(plan.cache, num_rows, row_bytes, is_static=plan.policy in STATIC)
        require_room(sum(count * row_bytes[t] for t, count in kept.items()), argument("cache", plan.cache), "keep less")


def _read_at_random(plan: Plan, graph: Graph) -> None:
    """Switch read-ahead off for the maps of a topology, which is read at random."""
    for csc in graph.adjacency.values() if plan.map_threads or plan.topology == "disk" else ():
        if plan.map_threads:
            advise_random(csc.indices)
        if csc.indptr.nbytes <= free_bytes():
            csc.indptr.max(initial=0)  # read in now, in order; if pages are dropped later, each fault must not read megabytes
        advise_random(csc.indptr)


def _within_budget(
    plan: Plan, bottom: Caches, workload: Workload, fitted: Fitted, drawn_on: torch.device | None
) -> tuple[Choices, Choices, Mapping[EdgeType, np.ndarray]]:
    """As `_share_out`, within a budget: policies that rank by visits use those of the profile."""
    assert bottom.graph is not None
    over, workload = bottom.of_nodes, replace(workload, sampler=workload.sampler.over(bottom.graph))

    def choose(name: str, t: NodeType, num_rows: int, above: np.ndarray | None = None) -> Choice:
        if name not in BY_VISITS:
            return choose_policy(name, workload, t, num_rows, above=above)
        hotness = workload.expected_rows(fitted.visits[t], t, fitted.num_sampled)
        if name == Belady.name:
            return belady_choice(hotness, num_rows, plan.window, above)
        return fixed_choice(over[t].num_rows, plan_beneath(hotness, num_rows, above))

    near, far = {}, {}
    if plan.device_policy is not None:
        near = {t: choose(plan.device_policy, t, num_rows) for t, num_rows in (fitted.rows_on_device or {}).items()}
    if plan.policy is not None:
        far = {t: choose(plan.policy, t, fitted.rows[t], near[t].always_kept if t in near else None) for t in over}
    return near, far, fitted.lists if drawn_on is None else _kept_lists(plan, workload, bottom.beneath, is_drawn_on_device=True)


def _kept_lists(
    plan: Plan, workload: Workload, bottoms: Mapping[EdgeType, Tier], *, is_drawn_on_device: bool
) -> dict[EdgeType, np.ndarray]:
    """Edge type -> nodes whose neighbour lists are kept, best first."""
    if plan.neighbor_policy is None:
        return {}
    values = list_values(plan.neighbor_policy, workload)
    if is_drawn_on_device and plan.neighbor_policy in BY_VISITS:
        values = {e: reads * lines_per_read(workload.sampler, e) for e, reads in values.items()}
    return plan_lists(plan.neighbor_cache, values, {e: workload.sampler.graph.adjacency[e] for e in bottoms}, plan.neighbor_layout)


def _share_out(
    plan: Plan, bottom: Caches, workload: Workload, drawn_on: torch.device | None, num_shards: int
) -> tuple[Choices, Choices, Mapping[EdgeType, np.ndarray]]:
    """Choose what is kept, without a budget. Returns (choices of `Plan.device_policy`, choices of `Plan.policy`, edge type -> nodes whose
    neighbour lists are kept)."""
    assert bottom.graph is not None
    over, bottoms = bottom.of_nodes, bottom.beneath
    # sampling to find out what is hot must not fill the page cache
    is_elsewhere = plan.topology == "disk" or bottom.graph.is_partitioned
    read_from = bottom.graph if is_elsewhere else with_lists(bottom.graph, dict.fromkeys(bottoms))
    workload = replace(workload, sampler=workload.sampler.over(read_from))
    if plan.neighbor_cache == SHARED:
        adjacency = {e: workload.sampler.graph.adjacency[e] for e in bottoms}
        per_list, per_row = measure_slopes(workload, over, bottoms) if drawn_on is None else measure_device_slopes(workload, over, drawn_on)
        of_lists = {e: workload.list_visits(e) for e in adjacency}
        of_rows = {t: workload.row_visits(t) for t in over}
        kept, rows = plan_shared(
            plan.cache, of_lists, of_rows, sizes_of(over)[1], adjacency, plan.neighbor_layout,
            seconds_per_list_hit=per_list, seconds_per_row_hit=per_row,
        )  # fmt: skip
        return {}, {t: fixed_choice(table.num_rows, rows[t]) for t, table in over.items()}, kept
    kept, near, far = _kept_lists(plan, workload, bottoms, is_drawn_on_device=drawn_on is not None), {}, {}
    if plan.device_policy is not None and plan.device_cache is not None:
        near = _choose_rows(plan, over, workload, (plan.device_policy, plan.device_cache, "device_cache"), num_shards=num_shards)
    if plan.policy is not None:
        are_shared = num_shards if plan.is_read_by_device else 1  # it is the device's then
        far = _choose_rows(plan, over, workload, (plan.policy, plan.cache, "cache"), above=near, num_shards=are_shared)
    return near, far, kept


def _choose_rows(
    plan: Plan,
    over: Mapping[NodeType, TieredTable],
    workload: Workload,
    asked: tuple[str, str, str],
    above: Choices = _NOTHING,
    *,
    num_shards: int = 1,
) -> Choices:
    """Choose for one level of caches; `asked`: (policy, capacity, name of its argument), a capacity of each of `num_shards` shards."""
    policy, cache, name = asked
    num_rows, row_bytes = sizes_of(over)
    capacity = plan_rows(cache, num_rows, row_bytes, name, is_static=policy in STATIC)
    there = {t: above[t].always_kept for t in over if t in above}
    if num_shards == 1 or policy not in STATIC:
        return {t: choose_policy(policy, workload, t, capacity[t], window=plan.window, above=there.get(t)) for t in over}
    ranked = {t: choose_policy(policy, workload, t, num_rows[t]).content for t in over}
    return {t: fixed_choice(num_rows[t], plan_shards(best, capacity[t], num_shards)) for t, best in ranked.items() if best is not None}
