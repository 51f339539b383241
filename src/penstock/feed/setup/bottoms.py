"""The lowest tiers of a loader, which have all rows and all neighbour lists.

In: a plan, the fields of an input, its graph. Out: `Caches` without caches: a table for each node type, over the tier that has all its
rows, and for each edge type whose fields a device reads. Invariant: rows and lists are the same as in the arrays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.errors import BudgetError, InputError, NotSupportedError, TierError, UsageError, argument
from penstock.feed.caches import Caches
from penstock.feed.fields import Field, TensorRows
from penstock.feed.setup.topology import bottom_of_lists, file_behind, make_lists, read_topology
from penstock.gather import DeviceTable, RowKind, TieredTable
from penstock.plan import SAME, Plan, slow_options
from penstock.records import EDGE, NODE, EdgeType, Graph, NodeType
from penstock.sample.lists import with_lists
from penstock.store.budget import require_room
from penstock.store.device_memory import look_at_device_memory
from penstock.store.huge_pages import copy_to_own_pages
from penstock.store.tiers import DiskOptions, DiskTier, HostTier, Link, MappedTier, PackedTier, PinnedTier, SlowTier, Tier, advise_random

if TYPE_CHECKING:
    import torch

    from penstock.store.packing import Packed

logger = logging.getLogger("penstock")

SMALL_SHARE = 1 / 16
"""Share of the device's free memory for the single numbers (labels, say) of one type."""

PackedFields = Callable[[Sequence[str]], "Packed | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How rows and lists are reached.

    Attributes:
        is_mapped: the arrays of the fields and of the graph are mapped files.
        is_whole: there are no features beside the fields (a `FeatureStore` may have others).
        packed: (node type, names of fields) -> their copies that are packed for a disk, or None.
        max_readers: threads that read from a disk at once, at most.
        reader: the device that rows are for (see `tensor_device`); None: the CPU.
    """

    is_mapped: bool
    is_whole: bool
    packed: Callable[[NodeType, Sequence[str]], Packed | None]
    max_readers: int
    reader: torch.device | None


def lay_out(
    plan: Plan,
    fields: Sequence[Field],
    edge_fields: Sequence[Field],
    given: Graph,
    tables: Mapping[Any, TieredTable],
    access: Access,
) -> Caches:
    """Make the lowest tiers. Fields of edges stay where they are; a device reads them by itself where it can."""
    reader, tables = access.reader, dict(tables)
    _check_tables(tables, given)
    if given.is_partitioned:
        _refuse_elsewhere(plan)
    if plan.is_plain and plan.host_memory is None and reader is None:
        return Caches(tables, graph=given if given.is_partitioned else None)
    graph = read_topology(plan, given, is_mapped=access.is_mapped)
    loaded_bytes = 0 if graph is given else sum(csc.indptr.nbytes + csc.indices.nbytes for csc in graph.adjacency.values())
    link = Link() if plan.slow_topology == SAME else None
    if not plan.has_plain_features or reader is not None:
        unserved = [one for one in fields if (one.key or NODE) not in tables]
        ours = _bottoms(plan, unserved, access, link)
        tables |= ours
        is_wanted = not plan.has_plain_features or plan.device_policy is not None
        if not tables and is_wanted and not (access.is_whole and all(isinstance(one.source, TensorRows) for one in fields)):
            raise UsageError(
                "the plan keeps features in tiers, and none of the fields is an array in memory or in a file: leave the plan out"
            )
        if plan.features == "memory" and access.is_mapped:
            loaded_bytes += sum(table.num_rows * table.row_bytes - getattr(table.tier, "device_bytes", 0) for table in ours.values())
    if reader is not None and (plan.is_read_by_device or not access.is_mapped):
        tables |= _read_by(reader, [one for one in edge_fields if (one.key or EDGE) not in tables])
    bottoms = _beneath_lists(plan, graph, access, link)
    graph = with_lists(graph, make_lists(plan, graph, bottoms, {}))
    return Caches(tables, graph=graph, loaded_bytes=loaded_bytes, beneath=bottoms)


def _beneath_lists(plan: Plan, graph: Graph, access: Access, link: Link | None) -> dict[EdgeType, Tier]:
    """Edge type -> the tier that has all its neighbour lists; empty where the sampler reads the arrays."""
    is_file = access.is_mapped and plan.topology == "given"
    if plan.neighbor_policy is None and plan.slow_topology is None and plan.topology != "disk" and not (plan.map_threads and is_file):
        return {}
    return {
        e: csc.lists.tier
        if csc.told is not None
        else bottom_of_lists(plan, csc, is_mapped=is_file, link=link, max_readers=access.max_readers)
        for e, csc in graph.adjacency.items()
        if csc.num_edges
    }


def _is_held(field: Field, plan: Plan) -> bool:
    """Whether a plan puts a field into tiers. Labels and other single numbers are not read from a disk: that reads a page for 8 bytes."""
    return isinstance(field.source, TensorRows) and (plan.features != "disk" or field.source.array.ndim > 1)


def _refuse_elsewhere(plan: Plan) -> None:
    """Raise where a plan says where or how to read rows and lists that are with the processes of a partition."""
    for name in ("host_memory", "spool", "features", "topology", "slow", "slow_topology", "map_threads"):
        if (value := getattr(plan, name)) not in (None, "given", 0):
            raise NotSupportedError(
                f"{argument(name, value)}: rows and neighbour lists of a partition are with its processes, in mapped files: leave it out"
            )


def _check_tables(tables: Mapping[Any, TieredTable], graph: Graph) -> None:
    sizes = {**graph.num_nodes, **{e: csc.num_edges for e, csc in graph.adjacency.items()}}
    for key, table in tables.items():
        if key not in sizes:
            raise UsageError(f"tables: {key!r} is no type of this graph; its types are {', '.join(map(repr, sizes))}")
        if table.num_rows != sizes[key]:
            raise InputError(f"the table of {key!r} has {table.num_rows} rows for {sizes[key]} nodes or edges: give one row for each")


def _bottoms(plan: Plan, fields: Sequence[Field], access: Access, link: Link | None) -> dict[Any, TieredTable]:
    """Node type -> the table of its fields that are arrays."""
    held = [one for one in fields if _is_held(one, plan)]
    if plan.features == "memory" and access.is_mapped:
        num_bytes = sum(cast(TensorRows, one.source).array.nbytes for one in held)
        require_room(num_bytes, argument("features", "memory"), f"leave them in files, or read them by {argument('features', 'disk')}")
    return {t: _bottom(plan, ours, access, link, partial(access.packed, t)) for t, ours in _by_type(held, NODE).items()}


def _by_type(fields: Sequence[Field], only: Any) -> dict[Any, list[Field]]:
    """Type -> its fields; fields of a homogeneous graph are of the `only` type."""
    by_type: dict[Any, list[Field]] = {}
    for one in fields:
        by_type.setdefault(one.key or only, []).append(one)
    return by_type


def _read_by(reader: torch.device, fields: Sequence[Field]) -> dict[Any, TieredTable]:
    """Edge type -> the table of its fields, which the device reads in memory of the host; without types that it cannot read there."""
    tables: dict[Any, TieredTable] = {}
    for edge_type, ours in _by_type([one for one in fields if isinstance(one.source, TensorRows)], EDGE).items():
        sources = [cast(TensorRows, one.source) for one in ours]
        try:
            tier = _pinned([source.array for source in sources], reader)
        except (BudgetError, TierError) as error:
            logger.warning("fields of edges %s are looked up on the host: %s", "/".join(edge_type), error)
            continue
        kinds = [RowKind(one.name, *source.kind) for one, source in zip(ours, sources, strict=True)]
        tables[edge_type] = DeviceTable(tier, kinds, are_mostly_distinct=True)
    return tables


def _bottom(plan: Plan, fields: Sequence[Field], access: Access, link: Link | None, packed: PackedFields) -> TieredTable:
    """The table of the fields of one type: where they are, in memory, or on a disk; behind a simulated device; or read by a device."""
    is_mapped, reader = access.is_mapped, access.reader
    sources = [cast(TensorRows, one.source) for one in fields]
    arrays = [source.array for source in sources]
    if plan.features == "memory" and is_mapped:
        arrays, is_mapped = [copy_to_own_pages(array) for array in arrays], False
    kinds = [RowKind(one.name, *source.kind) for one, source in zip(fields, sources, strict=True)]
    if reader is not None and plan.is_read_by_device:
        return DeviceTable(_pinned(arrays, reader), kinds)
    if plan.features == "disk":
        tier: Tier = _disk(arrays, None if plan.spool is not None else packed([one.name for one in fields]), access.max_readers)
    else:
        for array in arrays if plan.map_threads and is_mapped else ():
            advise_random(array)
        tier = MappedTier(arrays, num_threads=plan.map_threads) if is_mapped else HostTier(arrays)
    if plan.slow is not None:
        tier = SlowTier(tier, link=link, **slow_options(plan.slow))
    return TieredTable(tier, kinds)


def _pinned(arrays: Sequence[np.ndarray], reader: torch.device) -> PinnedTier:
    """A tier of arrays that the device reads over the link; labels and other single numbers lie in its memory, if that has room."""
    return PinnedTier(arrays, reader, small_bytes=int(SMALL_SHARE * look_at_device_memory(reader).free))


def _disk(arrays: Sequence[np.ndarray], packed: Packed | None, max_readers: int) -> Tier:
    """A tier of the files behind arrays, or of their packed copies where there are any."""
    files = [file_behind(array, "features", "features") for array in (packed.arrays if packed else arrays)]
    tier = DiskTier(files, len(arrays[0]), options=DiskOptions(max_channels=max_readers))
    return PackedTier(tier, packed.rows) if packed else tier
