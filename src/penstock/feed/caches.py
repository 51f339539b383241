"""The tables of a loader: what a plan keeps in faster memory, made once and kept over all epochs.

In: a plan, an input and its fields. Out: per node type a `TieredTable` that serves the fields it holds, and the graph that the sampler
reads; the rest stays as it was.
Invariant: a loader with any plan yields the same batches, bit for bit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.cache.belady import Belady
from penstock.cache.choose import STATIC, Choice, Workload, choose_policy, fixed_choice, list_values
from penstock.cache.hotness import plan_static
from penstock.errors import InputError, UsageError
from penstock.feed.array_input import FindPacked, no_packed
from penstock.feed.fields import Field, TensorRows
from penstock.feed.slopes import measure_slopes
from penstock.feed.topology import bottom_of_lists, file_behind, make_lists, read_topology
from penstock.gather import CachedTier, DeviceTable, FusedCache, RowKind, RowsUnderWay, TieredTable
from penstock.gather.table import stack_of
from penstock.plan import SAME, SHARED, Plan, plan_lists, plan_rows, plan_shared, slow_options
from penstock.records import NODE, Allocator, EdgeType, Graph
from penstock.sample.lists import Lists, with_lists
from penstock.store.tiers import (
    DiskOptions,
    DiskTier,
    HostTier,
    Link,
    MappedTier,
    PackedTier,
    PinnedTier,
    SlowTier,
    Tier,
    UploadTier,
    advise_random,
)

if TYPE_CHECKING:
    import torch

    from penstock.feed.fit import Fitted
    from penstock.store.packing import Packed

PackedFields = Callable[[Sequence[str]], "Packed | None"]


@dataclass(slots=True)
class Caches:
    """Tables by node type, and whose turn it is to steer them.

    One pass over the loader at a time steers the policies, the latest one; batches of a pass before, which nobody may be waiting for any
    more, read around the caches.

    Attributes:
        tables: node or edge type (the homogeneous ones are `NODE` and `EDGE`) -> table.
        window: batches to be announced, the current one included; 0 where no policy looks ahead.
        graph: where the sampler reads; None leaves it the input's.
        beneath: edge type -> the tier that has all its neighbour lists, where they are read from one.
        loaded_bytes: rows and topology that were read into memory whole.
        hold: what is kept of batches announced: see `Plan`.
        fitted: how a budget of memory was shared out; None where there is none.
        is_aside: see `aside`.
    """

    tables: dict[Any, TieredTable] = field(default_factory=dict)
    window: int = 0
    graph: Graph | None = None
    loaded_bytes: int = 0
    beneath: Mapping[EdgeType, Tier] = field(default_factory=dict)
    hold: str = "samples"
    fitted: Fitted | None = None
    is_aside: bool = False
    _current: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pid: int = field(default_factory=os.getpid)

    @property
    def caches(self) -> dict[Any, CachedTier]:
        """The tables that a policy stands over."""
        return {key: table.tier for key, table in self.tables.items() if isinstance(table.tier, CachedTier)}

    def begin(self) -> int:
        """A new pass begins. Returns its number; what was announced in the one before and not asked for is forgotten."""
        if self.is_aside:
            return 0
        if self._pid != os.getpid():  # a forked child: a thread of the parent may have held the lock
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            self._current += 1
            for cache in self.caches.values():
                cache.restart()
            return self._current

    def aside(self) -> Caches:
        """The same tables for a loader beside this one: it steers no policy, and reads around those that its reads would change."""
        return replace(self, window=0, is_aside=True)

    def announce(self, number: int, ids: Mapping[Any, np.ndarray]) -> None:
        """Tell policies that look ahead what a batch to come of a pass asks for, per node type."""
        with self._lock:
            if number == self._current:
                for key, cache in self.caches.items():
                    cache.announce(ids[key])

    def submit(self, number: int, key: Any, ids: np.ndarray, allocate: Allocator, *, are_distinct: bool) -> RowsUnderWay:
        """Begin to read rows of a type for a batch of a pass; passes have numbers from 1."""
        with self._lock:
            around = self.is_aside or number != self._current
            return self.tables[key].submit(ids, allocate, are_distinct=are_distinct, around=around)

    def stats(self) -> dict[str, dict[str, Any]]:
        """Name of a tier -> what it was asked for; names carry the type where there are several."""
        return {self._label(key) + name: one.as_dict() for key, table in self.tables.items() for name, one in table.stats().items()}

    def _label(self, key: Any) -> str:
        return "" if len(self.tables) == 1 else f"{'/'.join(key) if isinstance(key, tuple) else key} "

    @property
    def disks(self) -> dict[str, Any]:
        """Tiers on disks, by what they hold."""
        tiers: dict[str, Tier] = {
            f"features, {self._label(key)}{tier.name}": tier for key, table in self.tables.items() for tier in stack_of(table.tier)
        }
        tiers |= {
            f"neighbour lists, {'/'.join(e)} disk" if len(self.beneath) > 1 else "neighbour lists, disk": t for e, t in self.beneath.items()
        }
        return {name: tier for name, tier in tiers.items() if isinstance(getattr(tier, "tier", tier), DiskTier)}

    @property
    def devices(self) -> dict[str, str]:
        """How rows reach a device, by what they are."""
        found = {f"features, {self._label(key)}{t.name}": t for key, table in self.tables.items() for t in stack_of(table.tier)}
        return {name: tier.describe() for name, tier in found.items() if isinstance(tier, PinnedTier)}

    @property
    def device_bytes(self) -> int:
        """Memory of a device that kept rows and their tables take."""
        return sum(cache.device_bytes for cache in self.caches.values())

    def most_disk_bytes(self, num_readers: int) -> int:
        """What the buffers of disks may come to with so many threads that read."""
        return sum(tier.most_bytes(num_readers) for tier in self.disks.values())

    @property
    def lists(self) -> dict[EdgeType, Lists]:
        """Where neighbour lists are read that do not come from a plain array."""
        adjacency = {} if self.graph is None else self.graph.adjacency
        return {e: csc.lists for e, csc in adjacency.items() if csc.lists is not None}

    def list_stats(self) -> dict[str, dict[str, Any]]:
        """Name of a tier of neighbour lists -> what it was asked for; names carry the edge type where there are several."""
        counted = {}
        for edge_type, lists in self.lists.items():
            label = "" if len(self.lists) == 1 else f"{'/'.join(edge_type)} "
            for tier, stats in lists.stats.items():
                counted[label + tier] = stats.as_dict()
        return counted

    @property
    def list_bytes(self) -> int:
        """Memory that kept neighbour lists and their tables take."""
        return sum(lists.resident_bytes for lists in self.lists.values())

    @property
    def resident_bytes(self) -> int:
        """Memory of all that is kept: rows, directories and states; neighbour lists and tables; buffers of disks."""
        pinned = [t for table in self.tables.values() for t in stack_of(table.tier) if isinstance(t, PinnedTier)]
        return self.list_bytes + sum(tier.resident_bytes for tier in (*self.caches.values(), *self.disks.values(), *pinned))


def make_caches(
    plan: Plan,
    fields: Sequence[Field],
    workload: Workload,
    features: Mapping[Any, TieredTable],
    *,
    is_mapped: bool,
    packed: FindPacked = no_packed,
    max_readers: int = 8,
    fit: Callable[[Caches], Fitted] | None = None,
    reader: torch.device | None = None,
) -> Caches:
    """Build what a plan asks for.

    Args:
        plan: see there.
        fields: node fields of the input.
        workload: what will be sampled; static policies look at it.
        features: tables of the user's, by node or edge type; policies are put over those of nodes.
        is_mapped: the arrays of the fields and of the graph are files.
        packed: finds copies of fields that are packed for a disk.
        max_readers: threads that read from a disk at once.
        reader: the device that rows are for (see `tensor_device`); None: the CPU.
        fit: shares a budget of memory out, given where everything is; needed where the plan has one.
    """
    bottom = _lay_out(
        plan, fields, workload.sampler.graph, features, is_mapped=is_mapped, packed=packed, max_readers=max_readers, reader=reader
    )
    if plan.is_plain and plan.host_memory is None and plan.device_policy is None:
        return bottom
    assert bottom.graph is not None
    over = {key: table for key, table in bottom.tables.items() if isinstance(key, str)}
    if plan.host_memory is None:
        # what is sampled to find out what is hot must not fill the page cache
        read_from = bottom.graph if plan.topology == "disk" else with_lists(bottom.graph, dict.fromkeys(bottom.beneath))
        workload, fitted = replace(workload, sampler=workload.sampler.over(read_from), max_batches=plan.presample_batches), None
        choices, kept = _share_out(plan, over, bottom.beneath, workload)
    else:
        assert fit is not None
        workload, fitted = replace(workload, sampler=workload.sampler.over(bottom.graph)), fit(bottom)
        choices, kept = _chosen(plan, over, workload, fitted), fitted.lists
    tables = dict(bottom.tables)
    for node_type, choice in choices.items():
        tables[node_type] = _with_cache(plan, tables[node_type], choice, reader)
    if is_mapped and (plan.map_threads or plan.topology == "disk"):  # after the passes in order that choices take
        for csc in bottom.graph.adjacency.values():
            if plan.map_threads:
                advise_random(csc.indices)
            csc.indptr.max(initial=0)  # brought in, in order; where memory is short, each page that was dropped must not bring megabytes
            advise_random(csc.indptr)
    window = max((choice.window for choice in choices.values()), default=0)
    graph = with_lists(bottom.graph, make_lists(plan, bottom.graph, bottom.beneath, kept))
    hold = plan.hold if fitted is None else fitted.memory.ahead.hold
    if fitted is not None:  # what was chosen by is of no more use, and as large as the graph
        fitted = replace(fitted, lists={}, hotness={})
    return Caches(tables, window, graph, bottom.loaded_bytes, bottom.beneath, hold, fitted)


def _with_cache(plan: Plan, table: TieredTable, choice: Choice, reader: torch.device | None) -> TieredTable:
    """A table with a cache above it: on the device where that reads the rows itself, or a policy of its own puts them there."""
    if isinstance(table.tier, PinnedTier):
        return DeviceTable(FusedCache(choice.make, table.tier, choice.content), table.kinds)
    if plan.device_policy is not None and reader is not None:
        return DeviceTable(CachedTier(choice.make, UploadTier(table.tier, reader), choice.content, reader=reader), table.kinds)
    return TieredTable(CachedTier(choice.make, table.tier, choice.content), table.kinds)


def _lay_out(
    plan: Plan,
    fields: Sequence[Field],
    given: Graph,
    features: Mapping[Any, TieredTable],
    *,
    is_mapped: bool,
    packed: FindPacked,
    max_readers: int,
    reader: torch.device | None,
) -> Caches:
    """Where all rows and lists are, with nothing kept of them."""
    tables = dict(features)
    _check_features(tables, given)
    if plan.is_plain and plan.host_memory is None and reader is None:
        return Caches(tables)
    graph = read_topology(plan, given, is_mapped=is_mapped)
    loaded_bytes = 0 if graph is given else sum(csc.indptr.nbytes + csc.indices.nbytes for csc in graph.adjacency.values())
    link = Link() if plan.slow_topology == SAME else None
    if not plan.has_plain_features or reader is not None:
        unserved = [one for one in fields if (one.key or NODE) not in tables]
        ours = _bottoms(plan, unserved, is_mapped=is_mapped, link=link, packed=packed, max_readers=max_readers, reader=reader)
        tables |= ours
        if not tables and not (plan.has_plain_features and plan.device_policy is None):
            raise UsageError("the plan keeps features in tiers, but there are no node features as arrays")
        if plan.features == "memory" and is_mapped:
            loaded_bytes += sum(table.num_rows * sum(table.tier.row_bytes) for table in ours.values())
    bottoms: dict[EdgeType, Tier] = {}
    is_file = is_mapped and plan.topology == "given"
    if plan.neighbor_policy is not None or plan.slow_topology is not None or plan.topology == "disk" or (plan.map_threads and is_file):
        bottoms = {
            e: bottom_of_lists(plan, csc, is_mapped=is_file, link=link, max_readers=max_readers)
            for e, csc in graph.adjacency.items()
            if csc.num_edges
        }
    return Caches(tables, 0, with_lists(graph, make_lists(plan, graph, bottoms, {})), loaded_bytes, bottoms)


def _chosen(plan: Plan, over: dict[Any, TieredTable], workload: Workload, fitted: Fitted) -> dict[Any, Choice]:
    """Policies within a budget: what can be ranked by the visits of the profile is."""
    choices: dict[Any, Choice] = {}
    window = fitted.memory.ahead.window
    if plan.policy is None:
        return choices
    for t in over:
        num_nodes, num_rows, hotness = over[t].num_rows, fitted.rows[t], fitted.hotness[t]
        if plan.policy == Belady.name:
            choices[t] = Choice(partial(Belady, num_nodes, num_rows, window, hotness), None, window)
        elif plan.policy == "presample":
            choices[t] = fixed_choice(num_nodes, plan_static(hotness, num_rows))
        else:
            choices[t] = choose_policy(plan.policy, workload, t, num_rows, num_epochs=plan.presample_epochs)
    return choices


def _share_out(
    plan: Plan, over: dict[Any, TieredTable], bottoms: Mapping[EdgeType, Tier], workload: Workload
) -> tuple[dict[Any, Choice], dict[EdgeType, np.ndarray]]:
    """(policy per node type, nodes per edge type whose neighbour lists are kept)."""
    adjacency, epochs = {e: workload.sampler.graph.adjacency[e] for e in bottoms}, plan.presample_epochs
    row_bytes = {t: sum(table.tier.row_bytes) for t, table in over.items()}
    if plan.neighbor_cache == SHARED:
        visits, (per_list, per_row) = workload.visits(epochs), measure_slopes(workload, over, bottoms)
        kept, rows = plan_shared(
            plan.cache, visits.lists, {t: visits.nodes[t] for t in over}, row_bytes, adjacency, plan.neighbor_layout,
            seconds_per_list_hit=per_list, seconds_per_row_hit=per_row,
        )  # fmt: skip
        return {t: fixed_choice(table.num_rows, rows[t]) for t, table in over.items()}, kept
    kept, choices = {}, {}
    policy, cache, name = plan.policy, plan.cache, "cache"
    if plan.device_policy is not None:
        policy, cache, name = plan.device_policy, plan.device_cache, "device_cache"
    if plan.neighbor_policy is not None:
        values = list_values(plan.neighbor_policy, workload, num_epochs=epochs)
        kept = plan_lists(plan.neighbor_cache, values, adjacency, plan.neighbor_layout)
    if policy is not None:
        num_rows = {t: table.num_rows for t, table in over.items()}
        capacity = plan_rows(cache, num_rows, row_bytes, name, is_static=policy in STATIC)
        choices = {t: choose_policy(policy, workload, t, capacity[t], window=plan.window, num_epochs=epochs) for t in over}
    return choices, kept


def _is_held(field: Field, plan: Plan) -> bool:
    """Whether a plan puts a field into tiers. Labels and other single numbers are not read from a disk: a page for eight bytes."""
    return isinstance(field.source, TensorRows) and (plan.features != "disk" or field.source.array.ndim > 1)


def _check_features(tables: Mapping[Any, TieredTable], graph: Graph) -> None:
    sizes = {**graph.num_nodes, **{e: csc.num_edges for e, csc in graph.adjacency.items()}}
    for key, table in tables.items():
        if key not in sizes:
            raise UsageError(f"features: {key!r} is no type of this graph; its types are {', '.join(map(repr, sizes))}")
        if table.num_rows != sizes[key]:
            raise InputError(f"features of {key!r} have {table.num_rows} rows for {sizes[key]} nodes or edges: give one row for each")


def _bottoms(
    plan: Plan,
    fields: Sequence[Field],
    *,
    is_mapped: bool,
    link: Link | None,
    packed: FindPacked,
    max_readers: int,
    reader: torch.device | None,
) -> dict[Any, TieredTable]:
    """The fields of every node type that are arrays."""
    by_type: dict[Any, list[Field]] = {}
    for one in fields:
        if _is_held(one, plan):
            by_type.setdefault(one.key or NODE, []).append(one)
    return {
        t: _bottom(plan, ours, is_mapped=is_mapped, link=link, packed=partial(packed, t), max_readers=max_readers, reader=reader)
        for t, ours in by_type.items()
    }


def _bottom(
    plan: Plan,
    fields: Sequence[Field],
    *,
    is_mapped: bool,
    link: Link | None,
    packed: PackedFields,
    max_readers: int,
    reader: torch.device | None,
) -> TieredTable:
    """The fields of one type where they are, read by the device if there is one; or read into memory, from a disk, or made slow."""
    sources = [cast(TensorRows, one.source) for one in fields]
    arrays = [source.array for source in sources]
    if plan.features == "memory" and is_mapped:
        arrays, is_mapped = [np.array(array) for array in arrays], False
    kinds = [RowKind(one.name, *source.kind) for one, source in zip(fields, sources, strict=True)]
    if reader is not None and plan.is_read_by_device:
        return DeviceTable(PinnedTier(arrays, reader), kinds)
    if plan.features == "disk":
        tier: Tier = _disk(arrays, packed([one.name for one in fields]), max_readers)
    else:
        for array in arrays if plan.map_threads and is_mapped else ():
            advise_random(array)
        tier = MappedTier(arrays, num_threads=plan.map_threads) if is_mapped else HostTier(arrays)
    if plan.slow is not None:
        tier = SlowTier(tier, link=link, **slow_options(plan.slow))
    return TieredTable(tier, kinds)


def _disk(arrays: Sequence[np.ndarray], packed: Packed | None, max_readers: int) -> Tier:
    """Rows from the files behind arrays, or from the packed copies of them where there are any."""
    files = [file_behind(array, "features", "features") for array in (packed.arrays if packed else arrays)]
    tier = DiskTier(files, len(arrays[0]), options=DiskOptions(max_channels=max_readers))
    return PackedTier(tier, packed.rows) if packed else tier
