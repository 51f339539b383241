"""Neighbour lists that do not all live in one array: read from a tier, or kept in memory for chosen nodes over something slower.

In: expanded nodes and the positions drawn for them. Out: the neighbours at these positions. Invariant: the same neighbours as from the
plain array; the sampler cannot tell the difference but by the time. `indptr` is always in memory, so drawing needs none of this.
Source: direct addressing, Ginex 3.2; the prefix, DUCATI (membership is one comparison, at the price of a permutation of the nodes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np

from penstock.kernels.cached_lists import cpu
from penstock.records import CSC, EdgeType, Graph
from penstock.store.tiers import Tier, TierStats


class Lists(Protocol):
    """Where a sampler reads neighbours."""

    stats: TierStats

    def read(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray) -> None:
        """Read neighbours.

        Args:
            nodes: int64[n], the expanded nodes.
            row_ptr: int64[n + 1]; the positions of nodes[i] are row_ptr[i] - row_ptr[0] to row_ptr[i + 1] - row_ptr[0].
            positions: int64[m], in the whole adjacency.
            neighbors: indices.dtype[m], the result.
        """
        ...


class TierLists:
    """Lists read from a tier whose rows are the elements of `indices`."""

    def __init__(self, tier: Tier) -> None:
        self._tier, self.stats = tier, tier.stats

    def read(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray) -> None:
        """Read neighbours; a position drawn twice is read twice."""
        _read_at(self._tier, positions, neighbors, np.arange(positions.size))


class DirectLists:
    """Lists of chosen nodes in memory, found by a table with one entry per node.

    Args:
        csc: the whole adjacency.
        chosen: int64 ids of the nodes whose lists are kept.
        slow: where all lists are, rows are the elements of `indices`; read once for the chosen.
    Cost: 4 bytes per node (8 from 2**31 kept edges on) and the lists.
    """

    def __init__(self, csc: CSC, chosen: np.ndarray, slow: Tier) -> None:
        self._indptr, self._slow, self.stats = csc.indptr, slow, TierStats()
        ends, self._cached = _load_lists(csc, chosen, slow)
        self._starts = np.full(csc.num_dst, -1, np.int32 if self._cached.size < 1 << 31 else np.int64)
        self._starts[chosen] = ends[:-1]
        self.resident_bytes = self._starts.nbytes + self._cached.nbytes

    def read(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray) -> None:
        """Read neighbours."""
        missed = np.empty(positions.size, np.int64)
        count = cpu.read_direct(self._indptr, nodes, row_ptr, positions, self._starts, self._cached, neighbors, missed)
        _read_missed(self, self._slow, positions, neighbors, missed[:count])


class PrefixLists:
    """Lists of the best-ranked nodes in memory, in the order of rank.

    Args:
        csc: the whole adjacency.
        ranking: int64[num_dst], all nodes, best first.
        num_kept: how many of them are kept.
        slow: where all lists are, rows are the elements of `indices`; read once for those.
    Cost: 4 bytes per node, 8 per kept node, and the lists.
    """

    def __init__(self, csc: CSC, ranking: np.ndarray, num_kept: int, slow: Tier) -> None:
        self._indptr, self._slow, self.stats = csc.indptr, slow, TierStats()
        self._prefix_ptr, self._cached = _load_lists(csc, ranking[:num_kept], slow)
        self._ranks = np.empty(csc.num_dst, np.int32 if csc.num_dst < 1 << 31 else np.int64)
        self._ranks[ranking] = np.arange(csc.num_dst)
        self.resident_bytes = self._ranks.nbytes + self._prefix_ptr.nbytes + self._cached.nbytes

    def read(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray) -> None:
        """Read neighbours."""
        missed = np.empty(positions.size, np.int64)
        ranks, prefix_ptr = self._ranks, self._prefix_ptr
        count = cpu.read_prefix(self._indptr, nodes, row_ptr, positions, ranks, prefix_ptr, self._cached, neighbors, missed)
        _read_missed(self, self._slow, positions, neighbors, missed[:count])


def with_lists(graph: Graph, lists: dict[EdgeType, Lists]) -> Graph:
    """The same graph, with the neighbours of some edge types read elsewhere."""
    adjacency = {e: replace(csc, lists=lists.get(e)) for e, csc in graph.adjacency.items()}
    return Graph(graph.num_nodes, adjacency, graph.is_homogeneous)


def choose_lists(hotness: np.ndarray, csc: CSC, max_bytes: int) -> np.ndarray:
    """Nodes whose lists are worth keeping: the hottest that fit, int64, best first; an empty list costs nothing and is left out."""
    ranking = np.argsort(-np.asarray(hotness, dtype=np.float64), kind="stable")
    degrees = np.diff(csc.indptr)[ranking]
    fits = np.cumsum(degrees) * csc.indices.dtype.itemsize <= max_bytes
    return ranking[fits & (degrees > 0)]


def _load_lists(csc: CSC, chosen: np.ndarray, slow: Tier) -> tuple[np.ndarray, np.ndarray]:
    """(int64[n + 1] where each list begins and ends, the lists one after the other)."""
    degrees = csc.indptr[chosen + 1] - csc.indptr[chosen]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(degrees)])
    cached = np.empty(int(ends[-1]), csc.indices.dtype)
    for first, last in _pieces(ends):
        row_ptr = ends[first : last + 1]
        positions = np.repeat(csc.indptr[chosen[first:last]] - row_ptr[:-1], degrees[first:last]) + np.arange(row_ptr[0], row_ptr[-1])
        _read_at(slow, positions, cached, np.arange(row_ptr[0], row_ptr[-1]))
    return ends, cached


def _pieces(ends: np.ndarray, most: int = 1 << 22) -> Iterable[tuple[int, int]]:
    """Ranges of lists of at most so many elements together, but one list at least."""
    first = 0
    while first < ends.size - 1:
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + most, side="right")) - 1)
        yield first, last
        first = last


def _read_missed(lists: DirectLists | PrefixLists, slow: Tier, positions: np.ndarray, neighbors: np.ndarray, missed: np.ndarray) -> None:
    num_hits = positions.size - missed.size
    lists.stats.add(num_hits, num_hits * neighbors.itemsize, 0.0)
    if missed.size:
        _read_at(slow, positions[missed], neighbors, missed)


def _read_at(tier: Tier, positions: np.ndarray, neighbors: np.ndarray, places: np.ndarray) -> None:
    tier.submit(positions, [neighbors.view(np.uint8)], places).wait()
