"""Neighbour lists read from a tier, or from a neighbour cache in memory above a tier, instead of from one array.

In: expanded nodes and the positions drawn for them. Out: the neighbours at these positions. Invariant: the same neighbours as from the
plain array; only the time differs. `indptr` is always in memory, so drawing positions needs no list.
Source: layout direct, Ginex 3.2; layout prefix, DUCATI (a hit is one comparison, at the price of a permutation of the nodes).
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
"""Nodes handled at a time; temporary arrays would otherwise have an element per node of the graph."""
_PIECE = 1 << 18
"""Neighbours read at a time while a cache is filled."""


@dataclass(slots=True)
class ListStats(Totals):
    """Counts of the reads of neighbour lists from one place.

    Attributes:
        num_reads: reads; each covers many lists.
        num_lists: lists from which at least one neighbour was read.
        num_edges, num_bytes: neighbours read, and their bytes.
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
        """Bytes of the kept lists and of the table that finds them."""
        ...

    @property
    def stats(self) -> dict[str, ListStats]:
        """Name of a place -> counts of its reads; fastest place first."""
        ...

    def read(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray) -> None:
        """Read neighbours.

        Args:
            nodes: int64[n], the expanded nodes.
            row_ptr: int64[n + 1]; the positions of nodes[i] are `positions[row_ptr[i] - row_ptr[0] : row_ptr[i + 1] - row_ptr[0]]`.
            positions: int64[m], in the whole adjacency.
            neighbors: indices.dtype[m], receives the neighbours.
        """
        ...


class TierLists:
    """Lists read from a tier whose rows are the elements of `indices`. On a disk, one read serves all waiting threads (`JointReads`). With
    a partition, lists of the process's own part (`RemoteTier.is_own`) are counted separately."""

    resident_bytes = 0

    def __init__(self, tier: Tier) -> None:
        self.tier, self._counted = tier, {name: ListStats() for name in (*getattr(tier, "peers", ()), tier.name)}
        self._is_own = getattr(tier, "is_own", None)
        self._joint = JointReads(tier) if isinstance(tier, DiskTier) else None

    @property
    def stats(self) -> dict[str, ListStats]:
        """Counts of the tier's reads."""
        return self._counted

    def read(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray) -> None:
        """Read neighbours; a position drawn twice is read twice."""
        self.read_at(positions, neighbors, np.arange(positions.size), _begins(row_ptr))

    def read_at(self, positions: np.ndarray, neighbors: np.ndarray, places: np.ndarray, begins: np.ndarray) -> None:
        """Read the neighbour at positions[i] to neighbors[places[i]]. Positions of one list are adjacent; those of list j begin at
        begins[j]."""
        started = time.perf_counter()
        out = neighbors.view(np.uint8)
        num_bytes = self.tier.submit(positions, [out], places).wait() if self._joint is None else self._joint.read(positions, out, places)
        self._count(positions, begins, num_bytes, time.perf_counter() - started)

    def _count(self, positions: np.ndarray, begins: np.ndarray, num_bytes: int, seconds: float) -> None:
        """Count a read. Own lists are copied while other processes answer, so the time counts for the others if there are any."""
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
    """What both layouts share: one array with the lists of chosen nodes, and the tier with all lists."""

    def __init__(self, csc: CSC, chosen: np.ndarray, slow: Tier) -> None:
        self._indptr, self._slow, self._hits = csc.indptr, TierLists(slow), ListStats()
        self._cached = np.empty(sum(int(csc.degrees(nodes).sum()) for nodes in _blocks(chosen)), csc.indices.dtype)

    @property
    def stats(self) -> dict[str, ListStats]:
        """Hits, and reads of the tier beneath; the latter include the filling of the cache."""
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
        """Read the neighbours of kept lists. Writes the indices of all other positions to `missed`, and returns the number of these."""


class DirectLists(_KeptLists):
    """Lists of chosen nodes in memory, found by a table with one entry per node.

    Args:
        csc: the whole adjacency.
        chosen: int32 or int64 ids of the nodes whose lists are kept.
        slow: the tier with all lists; its rows are the elements of `indices`. Each chosen list is read once.
    Cost: memory: 4 bytes per node (8 from 2**31 kept edges on), and the lists.
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
        """Bytes of the table and the lists."""
        return self._starts.nbytes + self._cached.nbytes

    def _read_kept(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray, missed: np.ndarray) -> int:
        return cpu.read_direct(self._indptr, nodes, row_ptr, positions, self._starts, self._cached, neighbors, missed)


class PrefixLists(_KeptLists):
    """Lists of the best nodes in memory, in the order of rank.

    Args:
        csc: the whole adjacency.
        chosen: int32 or int64 ids of the nodes whose lists are kept, best first. All other nodes get the next ranks, in the order of ids.
        slow: the tier with all lists; its rows are the elements of `indices`. Each chosen list is read once.
    Cost: memory: 4 bytes per node (8 from 2**31 nodes on), 8 per kept node, and the lists.
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
        """Bytes of the ranks, the offsets of kept lists, and the lists."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ranks of all nodes, offsets of kept lists, and the lists; see `penstock.kernels.cached_lists.reference.read_prefix`."""
        return self._ranks, self._ends, self._cached

    def _read_kept(self, nodes: np.ndarray, row_ptr: np.ndarray, positions: np.ndarray, neighbors: np.ndarray, missed: np.ndarray) -> int:
        return cpu.read_prefix(self._indptr, nodes, row_ptr, positions, self._ranks, self._ends, self._cached, neighbors, missed)


LAYOUTS = {"direct": DirectLists, "prefix": PrefixLists}
"""Name of a layout -> its class."""


def with_lists(graph: Graph, lists: Mapping[EdgeType, Lists | None]) -> Graph:
    """The same graph; neighbours of the edge types in `lists` are read from there, or from `indices` where the value is None."""
    adjacency = {e: replace(csc, lists=lists.get(e, csc.lists)) for e, csc in graph.adjacency.items()}
    return replace(graph, adjacency=adjacency)


def _blocks(nodes: np.ndarray) -> Iterator[np.ndarray]:
    return (nodes[first : first + _BLOCK] for first in range(0, nodes.size, _BLOCK))


def _load_lists(csc: CSC, nodes: np.ndarray, slow: TierLists, cached: np.ndarray, begins: np.ndarray) -> None:
    """Read the list of nodes[i] to cached[begins[i]:]. Nodes ascend, so a disk is read in the order of its file. A list longer than a piece
    takes several reads, and is counted in each."""
    starts, degrees = csc.indptr[nodes], csc.degrees(nodes)
    ends = np.cumsum(degrees)
    for first in range(0, int(ends[-1]), _PIECE):
        numbers = np.arange(first, min(first + _PIECE, int(ends[-1])))
        lists = np.searchsorted(ends, numbers, side="right")
        numbers -= (ends - degrees)[lists]
        slow.read_at(starts[lists] + numbers, cached, begins[lists] + numbers, np.flatnonzero(np.diff(lists, prepend=-1)))


def _begins(row_ptr: np.ndarray) -> np.ndarray:
    """int64: where the positions of each list begin; lists without positions are left out."""
    return row_ptr[:-1][row_ptr[1:] > row_ptr[:-1]] - row_ptr[0]


def _missed_begins(begins: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Where the missed lists begin among `missed`. A list is missed whole or not at all."""
    at = np.searchsorted(missed, begins)
    return at[missed[np.minimum(at, missed.size - 1)] == begins] if missed.size else at[:0]
