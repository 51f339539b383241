"""The tables of a loader: what a plan keeps in faster memory, made once and kept over all epochs.

In: a plan, an input and its fields. Out: per node type a `TieredTable` that serves the fields it holds; the rest stays as it was.
Invariant: a loader with any plan yields the same batches, bit for bit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from penstock.cache.choose import Workload, choose_policy
from penstock.errors import InputError, UsageError, argument
from penstock.feed.fields import Field, TensorRows
from penstock.gather import CachedTier, RowKind, RowsUnderWay, TieredTable
from penstock.gather.table import stack_of
from penstock.plan import Plan, plan_rows, slow_options
from penstock.records import NODE, Allocator, Graph
from penstock.store.tiers import DiskTier, HostTier, MappedTier, RowFile, SlowTier, Tier


@dataclass(slots=True)
class Caches:
    """Tables by node type, and whose turn it is to steer them.

    One pass over the loader at a time steers the policies, the latest one; batches of a pass before, which nobody may be waiting for any
    more, read around the caches.

    Attributes:
        tables: node or edge type (the homogeneous ones are `NODE` and `EDGE`) -> table.
        window: batches to be announced, the current one included; 0 where no policy looks ahead.
    """

    tables: dict[Any, TieredTable] = field(default_factory=dict)
    window: int = 0
    _current: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pid: int = field(default_factory=os.getpid)

    @property
    def caches(self) -> dict[Any, CachedTier]:
        """The tables that a policy stands over."""
        return {key: table.tier for key, table in self.tables.items() if isinstance(table.tier, CachedTier)}

    def begin(self) -> int:
        """A new pass begins. Returns its number; what was announced in the one before and not asked for is forgotten."""
        if self._pid != os.getpid():  # a forked child: a thread of the parent may have held the lock
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            self._current += 1
            for cache in self.caches.values():
                cache.restart()
            return self._current

    def announce(self, number: int, ids: Mapping[Any, np.ndarray]) -> None:
        """Tell policies that look ahead what a batch to come of a pass asks for, per node type."""
        with self._lock:
            if number == self._current:
                for key, cache in self.caches.items():
                    cache.announce(ids[key])

    def submit(self, number: int, key: Any, ids: np.ndarray, allocate: Allocator, *, are_distinct: bool) -> RowsUnderWay:
        """Begin to read rows of a type for a batch of a pass; passes have numbers from 1."""
        with self._lock:
            around = number != self._current
            return self.tables[key].submit(ids, allocate, are_distinct=are_distinct, around=around)

    def stats(self) -> dict[str, dict[str, Any]]:
        """Name of a tier -> what it was asked for; names carry the type where there are several."""
        return {self._label(key) + name: one.as_dict() for key, table in self.tables.items() for name, one in table.stats().items()}

    def _label(self, key: Any) -> str:
        return "" if len(self.tables) == 1 else f"{'/'.join(key) if isinstance(key, tuple) else key} "

    @property
    def disks(self) -> dict[str, DiskTier]:
        """Tiers on disks, under the names that they have in `stats`."""
        tiers = {self._label(key) + tier.name: tier for key, table in self.tables.items() for tier in stack_of(table.tier)}
        return {name: tier for name, tier in tiers.items() if isinstance(tier, DiskTier)}

    @property
    def resident_bytes(self) -> int:
        """Memory that the kept rows, directories and states take, and the buffers of disks."""
        return sum(tier.resident_bytes for tier in (*self.caches.values(), *self.disks.values()))


def make_caches(plan: Plan, fields: Sequence[Field], workload: Workload, features: Mapping[Any, TieredTable], *, is_mapped: bool) -> Caches:
    """Build what a plan asks for.

    Args:
        plan: see there.
        fields: node fields of the input.
        workload: what will be sampled; static policies look at it.
        features: tables of the user's, by node or edge type; policies are put over those of nodes.
        is_mapped: the arrays of the fields are files.
    """
    tables = dict(features)
    _check_features(tables, workload.sampler.graph)
    if plan.is_plain:
        return Caches(tables)
    for node_type in {one.key or NODE: None for one in fields if isinstance(one.source, TensorRows)}:
        if node_type not in tables:
            ours = [one for one in fields if (one.key or NODE) == node_type and _is_held(one, plan)]
            if ours:
                tables[node_type] = _bottom(plan, ours, is_mapped=is_mapped)
    if not tables:
        raise UsageError("the plan keeps features in tiers, but there are no node features as arrays")
    if plan.policy is None:
        return Caches(tables)
    return Caches(tables, _put_policies_over(tables, plan, workload))


def _put_policies_over(tables: dict[Any, TieredTable], plan: Plan, workload: Workload) -> int:
    """Put the plan's policy over the tables of nodes. Returns how many batches it wants to be told of."""
    over = {key: table for key, table in tables.items() if isinstance(key, str)}
    rows = plan_rows(
        plan.cache, {t: table.num_rows for t, table in over.items()}, {t: sum(table.tier.row_bytes) for t, table in over.items()}
    )
    window = 0
    for node_type, table in over.items():
        capacity = rows[node_type]
        choice = choose_policy(str(plan.policy), workload, node_type, capacity, window=plan.window, num_epochs=plan.presample_epochs)
        tables[node_type] = TieredTable(CachedTier(choice.make, table.tier, choice.content), table.kinds)
        window = choice.window
    return window


def _is_held(field: Field, plan: Plan) -> bool:
    """Whether a plan puts a field into tiers. Labels and other single numbers are not read from a disk: a page for eight bytes."""
    return isinstance(field.source, TensorRows) and (plan.features != "disk" or field.source.array.ndim > 1)


def _file_of(field: Field) -> RowFile:
    file = RowFile.behind(cast(TensorRows, field.source).array)
    if file is None:
        raise UsageError(
            f"{argument('features', 'disk')} reads features from files, and {field.name} is in memory: ingest the graph into a store, "
            "or open the array by np.load(..., mmap_mode='r')"
        )
    return file


def _check_features(tables: Mapping[Any, TieredTable], graph: Graph) -> None:
    sizes = {**graph.num_nodes, **{e: csc.num_edges for e, csc in graph.adjacency.items()}}
    for key, table in tables.items():
        if key not in sizes:
            raise UsageError(f"features: {key!r} is no type of this graph; its types are {', '.join(map(repr, sizes))}")
        if table.num_rows != sizes[key]:
            raise InputError(f"features of {key!r} have {table.num_rows} rows for {sizes[key]} nodes or edges: give one row for each")


def _bottom(plan: Plan, fields: Sequence[Field], *, is_mapped: bool) -> TieredTable:
    """The fields of one type where they are, or read into memory, or made slow."""
    sources = [cast(TensorRows, one.source) for one in fields]
    arrays = [source.array for source in sources]
    if plan.features == "memory" and is_mapped:
        arrays, is_mapped = [np.array(array) for array in arrays], False
    if plan.features == "disk":
        tier: Tier = DiskTier([_file_of(one) for one in fields], len(arrays[0]))
    else:
        tier = MappedTier(arrays) if is_mapped else HostTier(arrays)
    if plan.slow is not None:
        tier = SlowTier(tier, **slow_options(plan.slow))
    return TieredTable(tier, [RowKind(one.name, *source.kind) for one, source in zip(fields, sources, strict=True)])
