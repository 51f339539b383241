"""A short profile of a loader: some batches are sampled to measure their memory and the rows that they ask for.

In: a batch maker. Out: sizes, visits, and a trace of the rows that each batch asks for, restricted to one node in eight, chosen by a hash
(Waldspurger et al. 2015: a cache of an eighth of the size has an eighth of the misses).
The draws are not those of training, and no rows are gathered.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from torch_geometric.sampler.base import SubgraphType

from penstock.cache.presample import distinct_nodes, draw_apart, lists_read
from penstock.errors import UsageError
from penstock.feed.bidirectional import with_reverses
from penstock.feed.held import hold
from penstock.feed.maker import BatchMaker
from penstock.feed.subgraph import subgraph_of
from penstock.gather.hops import size_of
from penstock.records import EdgeType, NodeType, Sample
from penstock.sample.shared import PIECE
from penstock.sample.workspace import Workspace
from penstock.store.progress import told

MAX_BATCHES = 64
MAX_SECONDS = 20.0
MIN_BATCHES = 4
THINNING = 8
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class Profile:
    """The result of profiling.

    Attributes:
        num_batches: number of sampled batches.
        num_nodes: node type -> most nodes of a batch.
        num_edges: most edges of a batch, or most edges read at once.
        sample_bytes, held_bytes: most memory of a sample, as it is and held ahead.
        row_visits: node type -> uint8[num_nodes], number of batches that ask for each row (at most 255).
        list_visits: edge type -> uint8[num_dst], number of batches that read from each list, likewise.
        traces: node type -> per batch int32[n]: distinct rows asked for among the chosen nodes, renumbered from 0.
        trace_visits: node type -> uint8[m]: visits of the chosen nodes that occur, in the first half of the batches only, since a policy
            must not be judged on batches whose visits it knew.
        workspace_bytes: memory of one sampling thread.
    """

    num_batches: int = 0
    num_nodes: dict[NodeType, int] = field(default_factory=dict)
    num_edges: int = 0
    sample_bytes: int = 0
    held_bytes: int = 0
    row_visits: dict[NodeType, np.ndarray] = field(default_factory=dict)
    list_visits: dict[EdgeType, np.ndarray] = field(default_factory=dict)
    traces: dict[NodeType, list[np.ndarray]] = field(default_factory=dict)
    trace_visits: dict[NodeType, np.ndarray] = field(default_factory=dict)
    workspace_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Memory of the profile itself."""
        arrays = [*self.row_visits.values(), *self.list_visits.values(), *self.trace_visits.values()]
        return sum(a.nbytes for a in arrays) + sum(a.nbytes for trace in self.traces.values() for a in trace)


def take_profile(maker: BatchMaker, node_types: Iterable[NodeType], max_batches: int | None = None) -> Profile:
    """Sample batches of the first epoch for some time; `node_types`: types whose rows are traced."""
    if maker.sampler.induced:
        raise UsageError("a budget is fitted to sampled edges: take subgraph_type='directional', or give the caches' sizes in the plan")
    graph, sampler, profile = maker.sampler.graph, draw_apart(maker.sampler), Profile()
    batches = dataclasses.replace(maker.batches, sampler=sampler)
    workspace = sampler.workspace()
    profile.row_visits = {t: np.zeros(graph.num_nodes[t], np.uint8) for t in node_types}
    profile.list_visits = {e: np.zeros(csc.num_dst, np.uint8) for e, csc in graph.adjacency.items()}
    chosen: dict[NodeType, list[np.ndarray]] = {t: [] for t in profile.row_visits}
    started, num_batches = time.perf_counter(), min(max_batches or MAX_BATCHES, batches.num_batches)
    for index in told(range(num_batches), "sampling a short profile: batch", num_batches):
        if index >= MIN_BATCHES and time.perf_counter() - started > MAX_SECONDS:
            break
        sample = batches.draw(0, index, workspace)
        _measure(profile, sample, maker, workspace)
        for t, ids in distinct_nodes(sampler, sample).items():
            if t in chosen:
                _count(ids, profile.row_visits[t])
                chosen[t].append(ids[_is_chosen(ids)])
        for e, visits in profile.list_visits.items():
            _count(np.unique(lists_read(sampler, sample, e)), visits)
        profile.num_batches += 1
    for t, trace in chosen.items():
        known, numbers = np.unique(np.concatenate(trace), return_inverse=True)
        profile.traces[t] = np.split(numbers.astype(np.int32), np.cumsum([ids.size for ids in trace])[:-1])
        first_half = np.concatenate(profile.traces[t][: max(1, len(trace) // 2)])
        profile.trace_visits[t] = np.minimum(np.bincount(first_half, minlength=known.size), 255).astype(np.uint8)
    profile.workspace_bytes = workspace.num_bytes
    return profile


def _measure(profile: Profile, sample: Sample, maker: BatchMaker, workspace: Workspace) -> None:
    graph, walks = maker.sampler.sampled, maker.sampler.walks
    num_edges = sum(one.positions.size for one in sample.edges.values())
    subgraph, num_bytes = subgraph_of(sample), sample.num_bytes
    if maker.subgraph_type == SubgraphType.bidirectional:  # the sample is there while its edges are sorted
        subgraph = with_reverses(subgraph, maker.sampler.graph.is_homogeneous, workspace, np.empty)
        parts = [part for one in subgraph.edges.values() for part in (one.edge_index, one.row_ptr, one.positions)]
        num_bytes += sum(part.nbytes for part in parts if part is not None)
    positions = [one.positions for e, one in subgraph.edges.items() if graph.adjacency[e].edge_ids is not None]
    numbered = sum(each.nbytes for each in positions if each is not None)
    whole = num_bytes + numbered + (4 * num_edges if walks else 0)  # walks have weights too
    held = hold(subgraph, graph, np.empty)
    profile.sample_bytes = max(profile.sample_bytes, whole)
    profile.held_bytes = max(profile.held_bytes, held.nbytes if isinstance(held, np.ndarray) else whole)
    whole_lists = PIECE if maker.sampler.reads_whole_lists else 0
    starts = max(one.row_ptr.size - 1 for one in sample.edges.values()) if walks else 0
    at_once = min(walks.num_together, starts) * walks.num if walks else whole_lists
    profile.num_edges = max(profile.num_edges, at_once, num_edges)
    hops = {} if maker.padding is None else maker.padding.fit(sample)[1]
    for t, ids in sample.nodes.items():
        profile.num_nodes[t] = max(profile.num_nodes.get(t, 0), size_of(hops.get(t), ids.size))


def _count(ids: np.ndarray, visits: np.ndarray) -> None:
    """Add a visit of distinct ids; counts stop at 255."""
    seen = visits[ids]
    visits[ids] = seen + (seen < 255)


def _is_chosen(ids: np.ndarray) -> np.ndarray:
    return (ids.astype(np.uint64) * _GOLDEN) >> np.uint64(32) < np.uint64((1 << 32) // THINNING)
