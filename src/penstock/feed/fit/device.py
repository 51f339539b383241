"""Host memory that a device needs: for budgets of host memory.

In: where rows and lists are, whether the device samples, and a short profile. Out: bytes. Invariant: the result is an upper bound of the
memory in use at the same time. None of it was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cache.choose import STATIC
from penstock.cache.fifo import FIFO
from penstock.feed.fit.profile import Profile
from penstock.gather import sizes_of
from penstock.gather.stack import stack_of
from penstock.plan import Plan, plan_rows
from penstock.plan.capacity import DIRECTORY_BYTES_PER_NODE, STATE_BYTES_PER_ROW, STATIC_DIRECTORY_BYTES_PER_NODE
from penstock.records import Graph, NodeType
from penstock.sample.device_graph import topology_bytes
from penstock.store.tiers import PinnedTier
from penstock.store.tiers.pinned import PIECE_BYTES

if TYPE_CHECKING:
    from penstock.feed.caches import Caches

ID_BYTES = 8
ROUNDING = 2
"""torch allocates pinned memory in powers of two, and keeps it: a copy takes at most twice its bytes."""
FOUND_BYTES_PER_NODE = 24
"""Memory for ranking the rows of a static cache whose size is determined later: visits, ranked ids, and a block of the ranking."""
FIFO_BYTES_PER_NODE = 4
"""Memory of FIFO's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What a device needs of the host.

    Attributes:
        is_drawing: whether it samples; then the samples are in its memory.
        pinned_bytes: host memory that it reads and that must stay resident. copied_bytes: the part of it that is copies and already held.
        placing_bytes: host memory for copying the topology to it.
        types_read: node types whose rows it reads directly.
        rows: node type -> rows kept on it; None: as many as fit.
    """

    is_drawing: bool = False
    pinned_bytes: int = 0
    copied_bytes: int = 0
    placing_bytes: int = 0
    types_read: frozenset[NodeType] = frozenset()
    rows: Mapping[NodeType, int] | None = field(default_factory=dict)


def device_use(plan: Plan, caches: Caches, *, topology: str, is_mapped: bool) -> DeviceUse:
    """Return what a device needs, from where rows and lists are.

    Args:
        plan: resolved.
        caches: tables and lists, without caches.
        topology: where the device reads lists to sample (`Drawing.topology`); "host": the CPU samples.
        is_mapped: graph and arrays are mapped files; then only this function counts the parts that the device reads as process memory.
    """
    assert caches.graph is not None
    pinned = caches.tiers_of(PinnedTier)
    lists = topology_bytes(caches.graph).lists if topology == "pinned" and is_mapped and plan.topology == "given" else 0
    copied = sum(tier.resident_bytes for tier in pinned)
    return DeviceUse(
        is_drawing=topology != "host",
        pinned_bytes=sum(tier.mapped_bytes for tier in pinned) + copied + lists,
        copied_bytes=copied,
        placing_bytes=0 if topology == "host" else min(PIECE_BYTES, _largest_bytes(caches.graph)),
        types_read=frozenset(t for t, table in caches.of_nodes.items() if isinstance(stack_of(table.tier)[-1], PinnedTier)),
        rows=rows_on_device(plan, caches),
    )


def _largest_bytes(graph: Graph) -> int:
    """Return the size of the largest array of a topology; arrays are copied to a device one after the other."""
    arrays = [array for csc in graph.adjacency.values() for array in (csc.indptr, csc.indices, csc.edge_ids, csc.sums)]
    return max((array.nbytes for array in arrays if array is not None), default=0)


def rows_on_device(plan: Plan, caches: Caches) -> dict[NodeType, int] | None:
    """Return node type -> rows that the device keeps by its own policy; None: determined after the first steps."""
    if plan.device_policy is None:
        return {}
    if plan.device_cache is None:
        return None
    return plan_rows(plan.device_cache, *sizes_of(caches.of_nodes), "device_cache", is_static=plan.device_policy in STATIC)


def batch_bytes(profile: Profile, row_bytes: Mapping[NodeType, int], use: DeviceUse | None) -> tuple[int, int]:
    """Return the host memory of a batch, in bytes: (its sample, its rows); with a device, only what passes through the host."""
    counts = profile.num_nodes
    if use is None:
        return profile.sample_bytes, sum(counts.get(t, 0) * width for t, width in row_bytes.items())
    through_host = {t: width for t, width in row_bytes.items() if t not in use.types_read}
    sample = ID_BYTES * sum(counts.values()) if use.is_drawing else profile.sample_bytes
    return sample, sum(counts.get(t, 0) * width for t, width in through_host.items())


def state_bytes(plan: Plan, graph: Graph, use: DeviceUse | None) -> int:
    """Return the host memory for caches on a device: directories, and states of dynamic policies. FIFO's directory is made on the host and
    moved to the device, if the device reads the rows directly."""
    if use is None or plan.device_policy is None:
        return 0
    counts = {t: count for t, count in graph.num_nodes.items() if use.rows is None or t in use.rows}
    rows = counts if use.rows is None else use.rows
    if plan.device_policy in STATIC:
        return (STATIC_DIRECTORY_BYTES_PER_NODE + FOUND_BYTES_PER_NODE * (use.rows is None)) * sum(counts.values())
    gone = {t: count for t, count in counts.items() if plan.device_policy == FIFO.name and t in use.types_read}
    of_nodes = (DIRECTORY_BYTES_PER_NODE + 1) * sum(counts[t] for t in counts.keys() - gone.keys())
    return of_nodes + STATE_BYTES_PER_ROW * sum(rows[t] for t in rows.keys() - gone.keys()) + FIFO_BYTES_PER_NODE * sum(gone.values())
