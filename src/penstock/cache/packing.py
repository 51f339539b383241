"""Layouts of packed rows: orders of the nodes of one type in which rows that are read together share pages.

In: accesses counted in sampled epochs, and the graph. Out: int[num_nodes], the node of each row. Invariants: every node occurs once; a pure
function of its arguments; linear in nodes and edges.
How: a rarely read row is read mostly through one neighbour list. The node of that list is the row's companion: the neighbour with the most
reads of its list, times the share of the list that is drawn. Rows with the same companion are adjacent, and near companions follow each
other (by communities, or by ids, which is as good in crawled graphs). If a cache keeps the hottest rows, they go first, so that they take
no space on the pages of the others.
Source: DiskGNN (SIGMOD'25) packs what batches sampled in advance read; Bandana (MLSys'19) puts embeddings that are read together into the
same blocks by partitioning a hypergraph. What was tried and refused, with figures: docs/design/layout.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from penstock import rng
from penstock.cache.hotness import plan_static
from penstock.cache.presample import distinct_nodes, draw_apart, iterate_samples
from penstock.errors import UsageError, damaged_neighbor
from penstock.kernels.companions import cpu as companion_kernels
from penstock.kernels.count_pages import cpu as page_kernels
from penstock.order.communities import place_nodes
from penstock.order.grouping import BLOCK, group_by, invert
from penstock.order.orders import permutation
from penstock.records import EdgeType, Graph, NodeType, index_dtype
from penstock.sample.batches import SampledBatches
from penstock.store.format import DATA_OFFSET

HOTNESS = "hotness"
RANDOM = "random"
COMMUNITY = "community"
COACCESS = "coaccess"
IDS = "coaccess-ids"
HOT = "hot-"
BANDS = "bands-"
LAYOUTS = (COACCESS, IDS, COMMUNITY, *(HOT + name for name in (COACCESS, IDS, COMMUNITY)), BANDS + COACCESS, HOTNESS)
"""Names of orders. coaccess: by companion, companions ordered by community; coaccess-ids: companions ordered by id; community: without
companions. hot-: rows that a cache keeps go first. bands-: by visits in bands of powers of two, within a band by companion."""

NEVER_READ = 0.1
"""Assumed readings of a list that was not read in the sampled epochs: less than one, more than none."""


@dataclass(frozen=True, slots=True)
class Accesses:
    """Accesses in sampled epochs.

    Attributes:
        visits: node type -> uint[num_nodes]: number of batches that read a row.
        readings: node type -> uint[num_nodes]: number of batches that read a node's neighbour list.
    """

    visits: dict[NodeType, np.ndarray]
    readings: dict[NodeType, np.ndarray]


def record_accesses(batches: SampledBatches, advance: Callable[[int], None] = lambda batches: None) -> Accesses:
    """Sample an epoch, with other draws than those of training, and count accesses; `advance`: called with numbers of batches."""
    dtype = np.min_scalar_type(batches.num_batches)  # each batch counts once
    found = Accesses(*({name: np.zeros(count, dtype) for name, count in batches.sampler.graph.num_nodes.items()} for _ in range(2)))
    apart = draw_apart(batches.sampler)
    for sample in iterate_samples(replace(batches, sampler=apart), epochs=range(1)):
        for node_type, ids in distinct_nodes(apart, sample).items():
            found.visits[node_type][ids] += 1
        for node_type, counts in sample.num_nodes_per_hop.items():
            found.readings[node_type][sample.nodes[node_type][: sum(counts[:-1])]] += 1
        advance(1)
    return found


class Layouts:
    """Orders of the nodes of one type, made on request; common parts are computed once.

    Args:
        graph, node_type: whose rows are ordered.
        accesses: counted accesses.
        fanouts: of training, per edge type; -1 draws all.
        num_hot: rows that a cache above the disk keeps.
        seed: of the random order.
    """

    def __init__(
        self,
        graph: Graph,
        node_type: NodeType,
        accesses: Accesses,
        fanouts: dict[EdgeType, tuple[int, ...]],
        *,
        num_hot: int = 0,
        seed: int = 0,
    ) -> None:
        self._graph, self._node_type, self._fanouts = graph, node_type, fanouts
        self._readings = accesses.readings
        self._visits = accesses.visits[node_type]
        self._num_hot = num_hot
        self._seed = seed
        self._made: tuple[str, np.ndarray] | None = None

    def make(self, name: str) -> np.ndarray:
        """Return int32[num_nodes] (int64 from 2**31 on): the node of each row, by one of LAYOUTS or "random".

        Orders that differ only in the rows that go first share the rest, so making them one after the other is cheaper (see `plain_of`).
        """
        num_nodes = self._visits.size
        if name == RANDOM:
            return permutation(num_nodes, 0, num_nodes, rng.derive_key(self._seed, 0, rng.PRESAMPLE)).astype(self._dtype)
        if name == HOTNESS:
            return self._hottest_first(np.arange(num_nodes, dtype=self._dtype))
        if name not in LAYOUTS:
            raise UsageError(f"a layout is one of {', '.join((*LAYOUTS, RANDOM))}; got {name!r}")
        plain = plain_of(name)
        assert plain in (COACCESS, IDS, COMMUNITY), f"{name} has no branch here"
        if self._made is None or self._made[0] != plain:
            self._made = None
            self._made = plain, self._by_place(plain)
        nodes = self._made[1]
        if name.startswith(BANDS):
            return group_by(nodes, lambda some: 64 - np.frexp(self._visits[some])[1], 65)  # bands 0; 1; 2 to 3; 4 to 7; ...
        if not name.startswith(HOT):
            return nodes
        hot = plan_static(self._visits, self._num_hot).astype(self._dtype)
        is_cold = np.ones(num_nodes, np.bool_)
        is_cold[hot] = False
        return np.concatenate([hot, nodes[is_cold[nodes]]])

    @property
    def _dtype(self) -> type:
        return index_dtype(sum(self._graph.num_nodes.values()))

    def _by_place(self, name: str) -> np.ndarray:
        """Order rows by companion, within one the hottest first; a node that is in no list is its own companion."""
        counts = self._graph.num_nodes
        firsts = dict(zip(counts, np.cumsum([0, *counts.values()])[:-1].tolist(), strict=True))
        first, count = firsts[self._node_type], self._visits.size
        near = np.arange(sum(counts.values()), dtype=self._dtype) if name == IDS else self._near
        own = near if count == near.size else near[(near >= first) & (near < first + count)] - near.dtype.type(first)
        if name == COMMUNITY:
            return own
        own = self._hottest_first(own)
        places = invert(near)
        del near
        companions = choose_companions(self._graph, self._node_type, self._readings, self._fanouts, firsts)

        def place_of(nodes: np.ndarray) -> np.ndarray:
            chosen = companions[nodes]
            return places[np.where(chosen < 0, nodes + first, chosen)]

        return group_by(own, place_of, places.size)

    def _hottest_first(self, nodes: np.ndarray) -> np.ndarray:
        """Sort nodes by visits, most first; a stable sort."""
        most = int(self._visits.max(initial=0))
        return group_by(nodes, lambda some: most - self._visits[some].astype(np.int64), most + 1)

    @cached_property
    def _near(self) -> np.ndarray:
        """int[num_nodes of all types]: an order in which near nodes follow each other."""
        return place_nodes(self._graph)


def plain_of(name: str) -> str:
    """Return the name of the order without the rows that go first."""
    return name.removeprefix(HOT).removeprefix(BANDS)


def choose_companions(
    graph: Graph,
    node_type: NodeType,
    readings: dict[NodeType, np.ndarray],
    fanouts: dict[EdgeType, tuple[int, ...]],
    firsts: dict[NodeType, int],
) -> np.ndarray:
    """Return int32[num_nodes] (int64 from 2**31 nodes on): the node through whose list each node of a type is read most often; -1 if it is
    in no list.

    Args:
        readings: how often each list was read.
        fanouts: per edge type; -1 draws all.
        firsts: node type -> offset that is added to its nodes.
    """
    graph.check_lists()
    dtype = index_dtype(sum(graph.num_nodes.values()))
    best, companions = np.zeros(graph.num_nodes[node_type], np.float32), np.full(graph.num_nodes[node_type], -1, dtype)
    for edge_type, csc in graph.adjacency.items():
        drawn = next((fanout for fanout in reversed(fanouts[edge_type]) if fanout), 0)  # most lists are read in the last hop
        if edge_type[0] != node_type or drawn == 0:
            continue
        scores = _scores(csc.indptr, readings[edge_type[2]], drawn)
        bad = companion_kernels.choose_companions(csc.indptr, csc.indices, scores, firsts[edge_type[2]], best, companions)
        if bad >= 0:
            raise damaged_neighbor(edge_type, best.size, bad, int(csc.indices[bad]))
    return companions


def _scores(indptr: np.ndarray, readings: np.ndarray, drawn: int) -> np.ndarray:
    """Return float32[num_dst]: how often a row is read through each list."""
    scores = np.empty(indptr.size - 1, np.float32)
    for first in range(0, scores.size, BLOCK):
        block = slice(first, first + BLOCK)
        degrees = np.maximum(np.diff(indptr[first : first + BLOCK + 1]), 1)
        share = np.minimum(drawn / degrees, 1.0) if drawn > 0 else np.ones(degrees.size)
        scores[block] = (readings[block] + NEVER_READ) * share
    return scores


def count_pages(batches: Iterable[np.ndarray], rows: np.ndarray, row_bytes: int, *, page_bytes: int = 4096) -> np.ndarray:
    """Count the pages that batches read.

    Args:
        batches: int64[n] ids each.
        rows: int32 or int64[num_rows]: the row of each id in the file.
        row_bytes: of a row; rows may straddle pages, or be larger than one.
        page_bytes: size of a page.
    Returns:
        int64[num_batches, 2]: distinct pages, and runs of consecutive pages, each of which one request can read.
    """
    if row_bytes == 0 or rows.size == 0:
        return np.zeros((sum(1 for _ in batches), 2), np.int64)
    counts = []
    marks = np.zeros(-(-(DATA_OFFSET + rows.size * row_bytes) // page_bytes), np.int32)
    for number, ids in enumerate(batches):
        ids = np.ascontiguousarray(ids, np.int64)
        counts.append(np.zeros(2, np.int64))
        page_kernels.count_pages(ids, rows, row_bytes, DATA_OFFSET, page_bytes, 2 * number + 1, marks, counts[-1])
    return np.array(counts, np.int64).reshape(-1, 2)
