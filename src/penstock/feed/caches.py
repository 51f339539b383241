"""The tables of a loader: what a plan keeps in faster memory, made once and kept over all epochs.

In: per node or edge type a table that serves the fields it holds, and the graph that the sampler reads (`penstock.feed.setup.choices` makes
them). Out: rows. Invariant: a loader with any plan yields the same batches, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from penstock.gather import CachedTier, RowsUnderWay, SpooledTier, TieredTable
from penstock.gather.stack import stack_of
from penstock.records import Allocator, EdgeType, Graph, NodeType
from penstock.sample.lists import Lists
from penstock.store.tiers import DiskTier, PinnedTier, Tier
from penstock.threads import Guard

if TYPE_CHECKING:
    from penstock.feed.fit import Fitted

T = TypeVar("T")


@dataclass(slots=True)
class Caches:
    """The tables of a loader, by node or edge type, and which pass steers their policies.

    Only the latest pass over the loader does. Batches of an earlier pass, for which perhaps nobody waits any more, read around the caches.

    Attributes:
        tables: node or edge type (the homogeneous ones are `NODE` and `EDGE`) -> table.
        window: batches announced ahead, the current one included; 0 where no policy looks ahead.
        graph: the graph that the sampler reads; None: the input's.
        beneath: edge type -> the tier that has all its neighbour lists, where they are read from one.
        kept: edge type -> nodes whose neighbour lists are kept, best first.
        loaded_bytes: rows and topology that were read into memory whole.
        hold: what is held of batches announced: see `Plan`.
        fitted: how a budget of memory was shared out; None without one.
        is_aside: see `aside`.
        most_bytes: bytes of rows of the largest batch so far, among those larger than a budget has counted on.
        states: states of the fields that the tables were made of, see `penstock.feed.fields.states_of`.
    """

    tables: dict[Any, TieredTable] = field(default_factory=dict)
    window: int = 0
    graph: Graph | None = None
    loaded_bytes: int = 0
    beneath: Mapping[EdgeType, Tier] = field(default_factory=dict)
    kept: Mapping[EdgeType, np.ndarray] = field(default_factory=dict)
    hold: str = "samples"
    fitted: Fitted | None = None
    is_aside: bool = False
    most_bytes: int = 0
    states: Mapping[tuple[Any, str], tuple[Any, ...]] = field(default_factory=dict)
    _current: int = 0
    _guard: Guard = field(default_factory=Guard)

    @property
    def top(self) -> dict[Any, CachedTier]:
        """The topmost tier of each table, where a policy stands over it."""
        return {key: table.tier for key, table in self.tables.items() if isinstance(table.tier, CachedTier)}

    @property
    def of_nodes(self) -> dict[NodeType, TieredTable]:
        """The tables of node types."""
        return {key: table for key, table in self.tables.items() if isinstance(key, str)}

    @property
    def directories(self) -> dict[NodeType, np.ndarray]:
        """Node type -> int32[num_nodes]: the slot of each node in its topmost cache, negative for none; of static caches only."""
        return {t: cache.policy.slots for t, cache in self.top.items() if isinstance(t, str) and cache.is_static}

    def tiers_of(self, *kinds: type[T]) -> list[T]:
        """All tiers of rows that are instances of `kinds`, anywhere in their stacks."""
        return [tier for table in self.tables.values() for tier in stack_of(table.tier) if isinstance(tier, kinds)]

    def begin(self) -> int:
        """Begin a new pass, and return its number. What was announced in the pass before and not asked for is forgotten."""
        if self.is_aside:
            return 0
        with self._guard.lock:
            self._current += 1
            for cache in self.top.values():
                cache.restart()
            return self._current

    def aside(self) -> Caches:
        """The same tables for a loader beside this one, which steers no policy: it reads around caches that its reads would change."""
        return replace(self, window=0, is_aside=True)

    def only(self, tables: Mapping[Any, TieredTable]) -> Caches:
        """Only `tables`, and the input's own graph, without a budget: for batches that are made again beside those of this loader."""
        return replace(self.aside(), tables=dict(tables), graph=None, fitted=None)

    def put(self, tables: Mapping[Any, TieredTable]) -> None:
        """Replace tables without a cache by tables with one; reads under way end in the table where they began."""
        with self._guard.lock:
            self.tables.update(tables)

    def announce(self, number: int, ids: Mapping[Any, np.ndarray]) -> None:
        """Tell policies that look ahead the ids, per node type, that a coming batch of pass `number` will ask for."""
        with self._guard.lock:
            if number == self._current:
                for key, cache in self.top.items():
                    cache.announce(ids[key])

    def submit(self, number: int, key: Any, ids: Any, allocate: Allocator, *, are_distinct: bool, **how: np.ndarray | None) -> RowsUnderWay:
        """Begin to read rows of a type for a batch of pass `number` (from 1). `ids`, `how`: see `TieredTable.submit`."""
        with self._guard.lock:
            around = self.is_aside or number != self._current
            return self.tables[key].submit(ids, allocate, are_distinct=are_distinct, around=around, **how)

    def looked_at(self) -> list[NodeType]:
        """Node types whose ids the host needs, to decide what to keep or to read."""
        return [key for key, table in self.tables.items() if isinstance(key, str) and not getattr(table, "is_asked_by_device", False)]

    def stats(self) -> dict[str, dict[str, Any]]:
        """Name of a tier -> its counts; names begin with the type where there are several."""
        return {self._label(key) + name: one.as_dict() for key, table in self.tables.items() for name, one in table.stats().items()}

    def _label(self, key: Any) -> str:
        """The prefix of the name of a tier: its type; nothing where that is the only node type, or the only type that has a table."""
        others = [one for one in self.tables if isinstance(one, str) or isinstance(key, tuple)]
        return "" if others == [key] else f"{'/'.join(key) if isinstance(key, tuple) else key} "

    def _named(self) -> dict[str, Tier]:
        """All tiers of rows, by what they hold."""
        return {f"features, {self._label(key)}{tier.name}": tier for key, table in self.tables.items() for tier in stack_of(table.tier)}

    @property
    def disks(self) -> dict[str, Any]:
        """Tiers on disks, by what they hold."""
        tiers = {name: getattr(tier, "kept", tier) for name, tier in self._named().items()}
        tiers |= {
            f"neighbour lists, {'/'.join(e)} disk" if len(self.beneath) > 1 else "neighbour lists, disk": t for e, t in self.beneath.items()
        }
        return {name: tier for name, tier in tiers.items() if isinstance(getattr(tier, "tier", tier), DiskTier)}

    @property
    def devices(self) -> dict[str, str]:
        """What rows are -> how a device reads them."""
        return {name: tier.describe() for name, tier in self._named().items() if isinstance(tier, PinnedTier)}

    @property
    def device_bytes(self) -> int:
        """Memory of a device that kept rows and their tables take, and single numbers."""
        return sum(tier.device_bytes for tier in (*self.tiers_of(CachedTier), *self.tiers_of(PinnedTier)))

    def most_disk_bytes(self, num_readers: int) -> int:
        """Most bytes that buffers of disks may take with `num_readers` threads that read rows; one thread reads lists, for all."""
        of_lists = list(self.beneath.values())
        return sum(tier.most_bytes(1 if tier in of_lists else num_readers) for tier in self.disks.values())

    @property
    def lists(self) -> dict[EdgeType, Lists]:
        """Edge type -> where its neighbour lists are read, if not from a plain array."""
        adjacency = {} if self.graph is None else self.graph.adjacency
        return {e: csc.lists for e, csc in adjacency.items() if csc.lists is not None}

    def list_stats(self) -> dict[str, dict[str, Any]]:
        """Name of a tier of neighbour lists -> its counts; names begin with the edge type where there are several."""
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
        kept = self.tiers_of(CachedTier, SpooledTier, PinnedTier)
        return self.list_bytes + sum(tier.resident_bytes for tier in (*kept, *self.disks.values()))
