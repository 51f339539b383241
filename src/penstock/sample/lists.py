"""Neighbour lists that are not read from one array: from a tier, or, for chosen nodes, from a cache in memory above the tier.

In: expanded nodes and the positions drawn for them. Out: the neighbours at these positions. Invariant: the same neighbours as from the
plain array, in another time. `indptr` is always in memory, so drawing needs none of this.
Source: direct addressing, Ginex 3.2; the prefix, DUCATI (membership is one comparison, at the price of a permutation of the nodes).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from penstock.kernels.cached_lists import cpu
from penstock.records import CSC, EdgeType, Graph, index_dtype
from penstock.sample.joint import JointReads
from penstock.store.tiers import DiskTier, Tier
from penstock.store.tiers.tier import Totals

_BLOCK = 1 << 16
"""Nodes per piece, where temporary arrays would otherwise be as long as the graph."""
_PIECE = 1 << 18
"""Neighbours read at a time while a cache is filled."""


@dataclass(slots=True)
class ListStats(Totals):
    """Counts of the reads of neighbour lists from one place.

    Attributes:
        num_reads: reads, of many lists each.
        num_lists: lists of which anything was read.
        num_edges, num_bytes: neighbours read.
        seconds: time that callers spent.
    """

    num_reads: int = 0
    num_lists: int = 0
    num_edges: int = 0
    num_bytes: int = 0
    seconds: float = 0.0

    def add(self, num_lists: int, num_edges: int, num_bytes: int, seconds: float) -> None:
        """Count one more read."""
        with self._guard.lock:
            self.num_reads += 1
            self.num_lists += num_lists
            self.num_edges += num_edges
            self.num_bytes += num_bytes
            self.seconds += seconds


class Lists(Protocol):
    """Where a sampler reads neighbours."""

    @property
    def resident_bytes(self) -> int:
        """Memory of the lists that are kept, with the table that finds them."""
        ...

    @property
    def stats(self) -> dict[str, ListStats]:
        """Name of a place -> what it was asked for, from the fastest down."""
        ...

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
    """Lists read from a tier whose rows are the elements of `indices`. From a disk, one read serves all threads that wait (`JointReads`).
    Of a partition, lists of the process's own part (`RemoteTier.is_own`) are counted separately."""

    resident_bytes = 0

    def __init__(self, tier: Tier) -> None:
        self.tier, self._counted = tier, {name: ListStats() for name in (*getattr(tier, "peers", ()), tier.name)}
        self._is_own = getattr(tier, "is_own", None)
        self._joint = JointReads(tier) if isinstance(tier, DiskTier) else None

    @property
    def stats(self) -> dict[str, ListStats]:
        """What the tier was asked for."""
        return self._counted

    def read(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray) -> None:
        """Read neighbours; a position drawn twice is read twice."""
        self.read_at(positions, neighbors, np.arange(positions.size), _begins(row_ptr))

    def read_at(self, positions: np.ndarray, neighbors: np.ndarray, places: np.ndarray, begins: np.ndarray) -> None:
        """Read the neighbour at positions[i] to neighbors[places[i]]; the positions of each list follow each other, from `begins` on."""
        started = time.perf_counter()
        out = neighbors.view(np.uint8)
        num_bytes = self.tier.submit(positions, [out], places).wait() if self._joint is None else self._joint.read(positions, out, places)
        self._count(positions, begins, num_bytes, time.perf_counter() - started)

    def _count(self, positions: np.ndarray, begins: np.ndarray, num_bytes: int, seconds: float) -> None:
        """Count a read. Own lists are copied while other processes answer, so the time counts for those, where there are any."""
        *own, others = self._counted.values()
        num_lists, num_edges = begins.size, positions.size
        if self._is_own is not None:
            is_own = self._is_own(positions[begins])
            num_own, own_edges = int(is_own.sum()), int(np.diff(begins, append=num_edges)[is_own].sum())
            own_bytes = own_edges * sum(self.tier.row_bytes)
            own[0].add(num_own, own_edges, own_bytes, 0.0 if own_edges < num_edges else seconds)
            num_lists, num_edges, num_bytes = num_lists - num_own, num_edges - own_edges, num_bytes - own_bytes
        if num_edges or not own:
            others.add(num_lists, num_edges, num_bytes, seconds)


class _KeptLists(ABC):
    """What both layouts share: the lists of chosen nodes in one array, and the tier that has all of them."""

    def __init__(self, csc: CSC, chosen: np.ndarray, slow: Tier) -> None:
        self._indptr, self._slow, self._hits = csc.indptr, TierLists(slow), ListStats()
        self._cached = np.empty(sum(int(csc.degrees(nodes).sum()) for nodes in _blocks(chosen)), csc.indices.dtype)

    @property
    def stats(self) -> dict[str, ListStats]:
        """Hits, and reads of the tier beneath, which include the filling of the cache."""
        return {"cache": self._hits, **self._slow.stats}

    def read(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray) -> None:
        """Read neighbours."""
        started = time.perf_counter()
        missed = np.empty(positions.size, np.int64)
        missed = missed[: self._read_kept(nodes, row_ptr, positions, neighbors, missed)]
        begins = _begins(row_ptr)
        missed_begins = _missed_begins(begins, missed)
        num_hits = positions.size - missed.size
        self._hits.add(begins.size - missed_begins.size, num_hits, num_hits * neighbors.itemsize, time.perf_counter() - started)
        if missed.size:
            self._slow.read_at(positions[missed], neighbors, missed, missed_begins)

    @abstractmethod
    def _read_kept(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray, missed: np.ndarray) -> int:
        """Read the kept lists, and write the indices of all other positions to `missed`. Returns how many those are."""


class DirectLists(_KeptLists):
    """Lists of chosen nodes in memory, found by a table with one entry per node.

    Args:
        csc: the whole adjacency.
        chosen: int32 or int64 ids of the nodes whose lists are kept.
        slow: where all lists are, rows are the elements of `indices`; read once for the chosen.
    Cost: 4 bytes per node (8 from 2**31 kept edges on) and the lists.
    """

    def __init__(self, csc: CSC, chosen: np.ndarray, slow: Tier) -> None:
        super().__init__(csc, chosen, slow)
        self._starts = np.full(csc.num_dst, -1, index_dtype(self._cached.size))
        begin = 0
        for nodes in _blocks(np.sort(chosen)):
            ends = begin + np.cumsum(csc.degrees(nodes))
            begins = np.concatenate([[begin], ends[:-1]])
            _load_lists(csc, nodes, self._slow, self._cached, begins)
            self._starts[nodes], begin = begins, int(ends[-1])

    @property
    def resident_bytes(self) -> int:
        """Table and lists."""
        return self._starts.nbytes + self._cached.nbytes

    def _read_kept(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray, missed: np.ndarray) -> int:
        return cpu.read_direct(self._indptr, nodes, row_ptr, positions, self._starts, self._cached, neighbors, missed)


class PrefixLists(_KeptLists):
    """Lists of the best nodes in memory, in the order of rank.

    Args:
        csc: the whole adjacency.
        chosen: int32 or int64 ids of the nodes whose lists are kept, best first; the others follow in the order of their ids.
        slow: where all lists are, rows are the elements of `indices`; read once for the chosen.
    Cost: 4 bytes per node, 8 per kept node, and the lists.
    """

    def __init__(self, csc: CSC, chosen: np.ndarray, slow: Tier) -> None:
        super().__init__(csc, chosen, slow)
        self._ends = np.zeros(chosen.size + 1, np.int64)
        for first, nodes in zip(range(1, chosen.size + 1, _BLOCK), _blocks(chosen), strict=True):
            self._ends[first : first + nodes.size] = self._ends[first - 1] + np.cumsum(csc.degrees(nodes))
        for ranks in _blocks(np.argsort(chosen, kind="stable")):
            _load_lists(csc, chosen[ranks], self._slow, self._cached, self._ends[ranks])
        self._ranks = np.full(csc.num_dst, -1, index_dtype(csc.num_dst))
        self._ranks[chosen] = np.arange(chosen.size, dtype=self._ranks.dtype)
        begin = chosen.size
        for first in range(0, csc.num_dst, _BLOCK):
            block = self._ranks[first : first + _BLOCK]
            at = np.flatnonzero(block < 0)
            block[at] = np.arange(begin, begin + at.size)
            begin += at.size

    @property
    def resident_bytes(self) -> int:
        """Permutation, where each kept list begins, and lists."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ranks, where each kept list begins, and the lists; see `penstock.kernels.cached_lists.reference.read_prefix`."""
        return self._ranks, self._ends, self._cached

    def _read_kept(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray, missed: np.ndarray) -> int:
        return cpu.read_prefix(self._indptr, nodes, row_ptr, positions, self._ranks, self._ends, self._cached, neighbors, missed)


LAYOUTS = {"direct": DirectLists, "prefix": PrefixLists}
"""How kept lists are found."""


def with_lists(graph: Graph, lists: Mapping[EdgeType, Lists | None]) -> Graph:
    """The same graph, with the neighbours of some edge types read elsewhere; None: from the plain array."""
    adjacency = {e: replace(csc, lists=lists.get(e, csc.lists)) for e, csc in graph.adjacency.items()}
    return replace(graph, adjacency=adjacency)


def _blocks(nodes: np.ndarray) -> Iterator[np.ndarray]:
    return (nodes[first : first + _BLOCK] for first in range(0, nodes.size, _BLOCK))


def _load_lists(csc: CSC, nodes: np.ndarray, slow: TierLists, cached: np.ndarray, begins: np.ndarray) -> None:
    """Read the list of nodes[i] to cached[begins[i]:]. Nodes ascend, so that a disk is read in the order of its file. A list that is longer
    than a piece is read in several, and counted in each."""
    starts, degrees = csc.indptr[nodes], csc.degrees(nodes)
    ends = np.cumsum(degrees)
    for first in range(0, int(ends[-1]), _PIECE):
        numbers = np.arange(first, min(first + _PIECE, int(ends[-1])))
        lists = np.searchsorted(ends, numbers, side="right")
        numbers -= (ends - degrees)[lists]
        slow.read_at(starts[lists] + numbers, cached, begins[lists] + numbers, np.flatnonzero(np.diff(lists, prepend=-1)))


def _begins(row_ptr: np.ndarray) -> np.ndarray:
    """Where the positions of each list begin, without lists of which nothing is read."""
    return row_ptr[:-1][row_ptr[1:] > row_ptr[:-1]] - row_ptr[0]


def _missed_begins(begins: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Where the same lists begin among `missed`, those of them that are there; a list is missed whole or not at all."""
    at = np.searchsorted(missed, begins)
    return at[missed[np.minimum(at, missed.size - 1)] == begins] if missed.size else at[:0]
