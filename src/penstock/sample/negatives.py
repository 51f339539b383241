"""Negative links: pairs of nodes that no edge joins, drawn for the links of a batch.

In: candidates for either end, and the pairs that are not negatives. Out: pairs. Invariants: the pairs are a pure function of (candidates,
known links, links of the batch and their times, seed, epoch, batch); no end is later than its link; a pair that an edge joins is drawn
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock import rng
from penstock.errors import InputError, NotSupportedError, UsageError
from penstock.kernels.build_csc import cpu as build_kernels
from penstock.kernels.links import cpu
from penstock.records import EdgeType, Graph, NodeType, index_dtype
from penstock.store.budget import require_room
from penstock.store.tiers import Elements

ATTEMPTS = 64
"""Most attempts to draw a pair that no edge joins. If fewer than half of all pairs are edges, all attempts fail for at most one pair in
2**64."""

LONGEST = 2048
"""Longest list that is searched element by element, which takes less than a microsecond."""

AreEdges = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(int64[n] sources, int64[n] targets) -> bool[n], whether each pair is an edge."""

_NO_IDS, _NO_SUMS = np.empty(0, np.int64), np.empty(0, np.float64)


class Adjacency(NamedTuple):
    """Links by target, for looking up pairs: the sources of links into v are `indices[indptr[v]:indptr[v + 1]]`, in any order.

    Attributes:
        longest: longer lists are kept a second time, sorted: the sources of links into long_targets[i] (ascending) are
            long_sources[long_ptr[i]:long_ptr[i + 1]] (ascending).
    """

    indptr: np.ndarray
    indices: np.ndarray
    longest: int
    long_targets: np.ndarray
    long_ptr: np.ndarray
    long_sources: np.ndarray


def make_adjacency(indptr: np.ndarray, indices: np.ndarray, longest: int = LONGEST) -> Adjacency:
    """Prepare lists for looking up pairs. Cost: 4 bytes (8 from 2**31 nodes on) for each edge in a list longer than `longest`.

    Raises:
        BudgetError: this does not fit into the memory limit of this process's container.
    """
    degrees = np.diff(indptr)
    targets = np.flatnonzero(degrees > longest)
    ptr = np.concatenate([[0], np.cumsum(degrees[targets])]).astype(np.int64)
    num_bytes = int(ptr[-1]) * indices.itemsize
    require_room(num_bytes, "looking up negative links in long lists", "take exclude_positives=False, or more memory")
    sources = np.empty(int(ptr[-1]), indices.dtype)
    for target, first, end in zip(targets, ptr, ptr[1:], strict=False):
        sources[first:end] = np.sort(indices[indptr[target] : indptr[target + 1]])
    return Adjacency(indptr, indices, longest, targets, ptr, sources)


def known_edges(graph: Graph, edge_type: EdgeType, what: str) -> tuple[Adjacency | None, AreEdges | None]:
    """How it is found out that pairs are edges of a type: by its lists, or, of a partition, by asking. `what`: needs it, for messages."""
    csc = graph.adjacency[edge_type]
    if csc.are_edges is not None:
        return None, csc.are_edges
    graph.check_lists()
    return make_adjacency(csc.indptr, csc.all_indices(what)), None


NOTHING = make_adjacency(np.zeros(1, np.int64), np.empty(0, np.int32))._replace(indptr=_NO_IDS)


def adjacency_of(sources: np.ndarray, targets: np.ndarray, num_sources: int, num_targets: int) -> Adjacency:
    """Sort links by target. Memory: 4 bytes a link (8 from 2**31 nodes on) and 8 a target; for a moment, twice as much a link."""
    indices, numbers = (np.empty(sources.size, index_dtype(most)) for most in (num_sources, sources.size))
    return make_adjacency(build_kernels.build_csc(sources, targets, num_targets, indices, numbers), indices)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Nodes of one type that can be an end of a negative link.

    Attributes:
        num_nodes: number of nodes of the type.
        order: int64[num_nodes], the nodes by time, earliest first; empty without times.
        times: int64[num_nodes], their times in that order; empty without times.
        sums: float64[num_nodes], running sums of their weights in that order; empty if all nodes are equally likely.
    """

    num_nodes: int
    order: np.ndarray
    times: np.ndarray
    sums: np.ndarray

    def most(self, num_links: int, until: np.ndarray | None) -> np.ndarray:
        """int64[num_links]: number of candidates in time for each link; they are the first ones in `order`."""
        if until is None or not self.times.size:
            return np.full(num_links, self.num_nodes)
        return np.searchsorted(self.times, until, side="right")


def make_candidates(node_type: NodeType, num_nodes: int, weight: np.ndarray | None, times: np.ndarray | Elements | None) -> Candidates:
    """Make the candidates of a node type.

    Args:
        weight: number[num_nodes], finite, 0 or more; a node is drawn with probability proportional to it. None: all are equally likely.
        times: int[num_nodes], the time of each node, an array or `Elements` held by other processes; None: without times.
    Raises:
        UsageError: there are no nodes.
        InputError: weights are not valid.
        NotSupportedError: more than 2**32 nodes.
    Cost: 16 bytes a node with times, 8 with weights.
    """
    if not num_nodes:
        raise UsageError(f"there are no nodes of type '{node_type}' to draw negative links from")
    if num_nodes > 1 << 32:
        raise NotSupportedError(f"negative links are drawn from at most 2**32 nodes, and '{node_type}' has {num_nodes:,}")
    times = None if times is None else times[:]
    order = _NO_IDS if times is None else np.argsort(times, kind="stable")
    moments = _NO_IDS if times is None else times[order].astype(np.int64)
    if weight is None:
        return Candidates(num_nodes, order, moments, _NO_SUMS)
    if weight.shape != (num_nodes,):
        raise InputError(f"neg_sampling: weights are one number for each of the {num_nodes} nodes of '{node_type}', got {weight.shape}")
    with np.errstate(over="ignore"):
        total = weight.sum(dtype=np.float64) if weight.dtype.kind in "biuf" else np.nan
    if not 0 < total < np.inf or (weight < 0).any():
        raise InputError(f"neg_sampling: weights of '{node_type}' must be finite numbers, 0 or more, and not all 0")
    weight = weight.astype(np.float64)
    return Candidates(num_nodes, order, moments, np.cumsum(weight if times is None else weight[order]))


@dataclass(frozen=True, slots=True)
class Negatives:
    """How negative links are drawn.

    Attributes:
        amount: negatives for each link.
        sources, targets: candidates for the ends. Without sources, a negative keeps the source of its link.
        edges, given: links that are not negatives: the edges of the graph, and the loader's links if they are others. None: not looked up.
        are_edges: replaces `edges` in a partition: (int64[n] sources, int64[n] targets) -> bool[n], whether each pair is an edge.
    """

    amount: float
    sources: Candidates | None
    targets: Candidates
    edges: Adjacency | None = None
    given: Adjacency | None = None
    are_edges: AreEdges | None = None

    @property
    def are_exact(self) -> bool:
        """Whether drawn pairs are looked up, so that edges are drawn again."""
        return any(known is not None for known in (self.edges, self.given, self.are_edges))

    def count(self, num_links: int) -> int:
        """Number of negatives for `num_links` links, rounded up."""
        return math.ceil(num_links * self.amount)

    def draw(
        self, sources: np.ndarray, times: np.ndarray | None, *, seed: int, epoch: int, batch: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Draw the negatives of a batch. Negative i belongs to link i modulo n, and its ends are no later than this link.

        Args:
            sources: int64[n], sources of the links. times: int64[n], times of the links, or None.
        Returns:
            (int64[count] sources, int64[count] targets, number of pairs that are links although all attempts were used; 0 if no pairs are
            looked up).
        """
        count = self.count(sources.size)
        links = np.arange(count) % sources.size
        until = None if times is None else times[links]
        kept = sources[links] if self.sources is None else _NO_IDS
        drawn = np.empty(count, np.int64), np.empty(count, np.int64)
        of_sources = self.sources or self.targets
        how = (
            rng.derive_key(seed, epoch, rng.NEGATIVE), batch, np.ascontiguousarray(kept),
            of_sources.most(count, until), of_sources.order, of_sources.sums,
            self.targets.most(count, until), self.targets.order, self.targets.sums,
            self.edges or NOTHING, self.given or NOTHING,
        )  # fmt: skip
        is_positive = np.ones(count, np.uint8)
        if self.are_edges is None:
            cpu.draw_negatives(*how, 0, ATTEMPTS, is_positive, *drawn)
        else:
            self._draw_in_rounds(how, self.are_edges, is_positive, drawn)
        return *drawn, int(is_positive.sum())

    def _draw_in_rounds(
        self,
        how: tuple[Any, ...],
        are_edges: AreEdges,
        is_positive: np.ndarray,
        drawn: tuple[np.ndarray, np.ndarray],
    ) -> None:
        """The same with other processes: all pairs that are still links make their next attempt together, so that each attempt asks the
        other processes once."""
        for attempt in range(ATTEMPTS):
            left = np.flatnonzero(is_positive)
            if not left.size:
                return
            cpu.draw_negatives(*how, attempt, attempt + 1, is_positive, *drawn)
            asked = left[is_positive[left] == 0]  # the other pairs are links of the loader
            is_positive[asked] = are_edges(drawn[0][asked], drawn[1][asked])
