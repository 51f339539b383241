"""Where a loader's neighbour lists live: where they are, in memory, on a disk or a simulated device; and a cache of some of them.

In: a plan, a graph, and the nodes whose lists are kept. Out: the graph that the sampler reads. Invariant: samples are the same, bit for
bit, whatever the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from penstock.errors import UsageError, argument
from penstock.plan import SAME, Plan, slow_options
from penstock.records import CSC, EdgeType, Graph
from penstock.sample.lists import LAYOUTS, Lists, TierLists
from penstock.store.budget import require_room
from penstock.store.huge_pages import copy_to_own_pages
from penstock.store.tiers import DiskOptions, DiskTier, HostTier, Link, MappedTier, RowFile, SlowTier, Tier


def read_topology(plan: Plan, graph: Graph, *, is_mapped: bool) -> Graph:
    """Return the graph, with its arrays read into memory if they are files and the plan asks for that."""
    if plan.topology != "memory" or not is_mapped:
        return graph
    num_bytes = sum(csc.indptr.nbytes + csc.indices.nbytes for csc in graph.adjacency.values())
    require_room(num_bytes, argument("topology", "memory"), "leave the neighbour lists in files")
    return Graph(graph.num_nodes, {e: _in_memory(csc) for e, csc in graph.adjacency.items()}, graph.is_homogeneous)


def bottom_of_lists(plan: Plan, csc: CSC, *, is_mapped: bool, link: Link | None = None, max_readers: int = 8) -> Tier:
    """Make the tier of all neighbour lists of one edge type; its rows are the elements of `indices`.

    `link`: of the simulated device that has the features, too; `max_readers`: threads that read from a disk at once.
    """
    if plan.topology == "disk":
        file = file_behind(csc.indices, "topology", "neighbour lists")
        tier: Tier = DiskTier([file], csc.num_edges, options=DiskOptions(max_channels=max_readers))
    else:
        tier = MappedTier([csc.indices], num_threads=plan.map_threads) if is_mapped else HostTier([csc.indices])
    device = plan.slow if plan.slow_topology == SAME else plan.slow_topology
    return tier if device is None else SlowTier(tier, link=link, **slow_options(device, "slow_topology"))


def file_behind(array: np.ndarray, option: str, what: str) -> RowFile:
    """The file that an array is mapped from; UsageError if it is in memory. `option`: the setting of the plan that asks for the disk."""
    file = RowFile.behind(array)
    if file is None:
        raise UsageError(
            f"{argument(option, 'disk')}, which the recipe ginex and a budget of memory ask for too, reads from files, and the {what} are "
            "in memory: ingest the graph into a store, or open the array by np.load(..., mmap_mode='r')"
        )
    return file


def make_lists(plan: Plan, graph: Graph, bottoms: Mapping[EdgeType, Tier], kept: Mapping[EdgeType, np.ndarray]) -> dict[EdgeType, Lists]:
    """Put caches of the `kept` lists (int64 nodes, best first) over the tiers that have all lists; edge types without edges have none."""
    layout = LAYOUTS[plan.neighbor_layout]
    lists: dict[EdgeType, Lists] = {}
    for edge_type, bottom in bottoms.items():
        chosen = kept.get(edge_type, np.empty(0, np.int64))
        lists[edge_type] = layout(graph.adjacency[edge_type], chosen, bottom) if chosen.size else TierLists(bottom)
    return lists


def _in_memory(csc: CSC) -> CSC:
    copies = {name: copy_to_own_pages(array) for name in ("indptr", "indices", "edge_ids") if (array := getattr(csc, name)) is not None}
    return replace(csc, **copies)
