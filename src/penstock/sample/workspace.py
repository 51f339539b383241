"""Scratch memory of a sampling thread, and arrays that grow while a sample is drawn.

In: sizes. Out: arrays, contents undefined unless stated. Invariant: from batch to batch, only sizes and facts about the graph's lists are
kept.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.random_walks import cpu as walk
from penstock.kernels.sample_neighbors import cpu as draw
from penstock.kernels.sample_shared import cpu as shared
from penstock.kernels.sample_weighted import cpu as weighted
from penstock.records import Allocator, EdgeType, Graph
from penstock.sample.compaction import make_table


class Growing:
    """A one-dimensional array that grows; `values` is the part in use. It starts with the size that earlier batches needed."""

    __slots__ = ("_allocate", "_array", "_hints", "_name", "size")

    def __init__(self, name: object, dtype: type, allocate: Allocator, hints: dict[object, int]) -> None:
        self._name = name
        self._allocate = allocate
        self._hints = hints
        self.size = 0
        self._array = allocate(hints.get(name, 0), dtype)

    def room(self, extra: int) -> np.ndarray:
        """Return the unused end of the array, with at least `extra` elements. It may be reallocated; elements in use keep their values."""
        needed = self.size + extra
        if needed > self._array.size:
            grown = self._allocate(max(needed, self._array.size + self._array.size // 4), self._array.dtype)
            grown[: self.size] = self.values
            self._array = grown
        return self._array[self.size :]

    @property
    def values(self) -> np.ndarray:
        """The elements in use."""
        return self._array[: self.size]

    @property
    def whole(self) -> np.ndarray:
        """The array with its unused end."""
        return self._array

    def finish(self) -> np.ndarray:
        """Return the elements in use, and remember their number for the next batch."""
        self._hints[self._name] = max(self._hints.get(self._name, 0), self.size + self.size // 16)
        return self.values


class Scratch:
    """Scratch memory of draws from lists."""

    def __init__(self) -> None:
        self._neighbors: dict[np.dtype, np.ndarray] = {}
        self._bitmap = np.empty(0, np.uint64)
        self.tile = np.empty(draw.SCRATCH_OFFSETS, np.int64), np.empty(draw.SCRATCH_WORDS, np.uint32)
        self._weighted = np.empty(0, np.int64), np.empty(0, np.uint32)
        self._windows = np.empty(0, np.int64)

    def neighbors(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Return scratch for at least `count` neighbour ids."""
        if dtype not in self._neighbors or self._neighbors[dtype].size < count:
            self._neighbors[dtype] = np.empty(count + count // 4, dtype)
        return self._neighbors[dtype]

    def weighted_scratch(self, fanout: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scratch for drawing by weight."""
        sizes = weighted.scratch_sizes(fanout)
        if self._weighted[0].size < sizes[0] or self._weighted[1].size < sizes[1]:
            self._weighted = np.empty(sizes[0], np.int64), np.empty(sizes[1], np.uint32)
        return self._weighted

    def windows(self, num_nodes: int) -> np.ndarray:
        """Return int64 scratch for the windows of `num_nodes` lists, two elements each."""
        if self._windows.size < 2 * num_nodes:
            self._windows = np.empty(2 * num_nodes + num_nodes // 2, np.int64)
        return self._windows

    @property
    def num_bytes(self) -> int:
        """Memory of the scratch arrays."""
        return sum(array.nbytes for array in (*self._neighbors.values(), *self.tile, *self._weighted, self._windows, self._bitmap))

    def bitmap(self, longest: int) -> np.ndarray:
        """Return a zeroed bitmap over a neighbour list of length `longest`, empty for 0. Kernels zero it again after use."""
        words = (longest + 63) // 64
        if self._bitmap.size < words:
            self._bitmap = np.zeros(words, dtype=np.uint64)
        return self._bitmap[:words]


class LayerScratch:
    """Scratch memory of layer-wise sampling: a hop's whole lists, relabelled.

    Attributes:
        ids: int64, global ids: the nodes of the batch, then the candidates in the order in which they are seen.
        sources: int64[m]: for each edge into the hop, the position of its source in `ids`.
    """

    def __init__(self) -> None:
        self.ids = Growing("ids", np.int64, np.empty, {})
        self._sources, self._numbers, self._candidates = np.empty(0, np.int64), np.empty(0, np.uint64), np.empty((2, 0), np.uint64)
        self.sources = self._sources

    def begin(self, nodes: np.ndarray, num_edges: int) -> None:
        """Begin a hop with `num_edges` edges; `nodes`: int64[n], the nodes of the batch."""
        self.ids.size = 0
        self.ids.room(nodes.size)[: nodes.size] = nodes
        self.ids.size = nodes.size
        if self._sources.size < num_edges:
            self._sources = np.empty(num_edges + num_edges // 4, np.int64)
        self.sources = self._sources[:num_edges]

    def scratch(self, num_numbers: int, num_candidates: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return uint64[>= num_numbers] for the numbers of a list, and uint64[num_candidates] and int64[num_candidates]."""
        if self._numbers.size < num_numbers:
            self._numbers = np.empty(num_numbers + num_numbers // 4, np.uint64)
        if self._candidates.shape[1] < num_candidates:
            self._candidates = np.empty((2, num_candidates + num_candidates // 4), np.uint64)
        first, places = self._candidates[:, :num_candidates]
        return self._numbers, first, places.view(np.int64)

    @property
    def num_bytes(self) -> int:
        """Memory of the scratch arrays."""
        return sum(array.nbytes for array in (self.ids.whole, self._sources, self._numbers, self._candidates))


class Workspace(Scratch):
    """Scratch memory of one sampling thread: compaction tables and buffers. No other thread uses it."""

    def __init__(self, graph: Graph, *, disjoint: bool) -> None:
        super().__init__()
        spare = any(csc.lists is not None for csc in graph.adjacency.values())
        self.tables = {t: make_table(count, wide_keys=disjoint, spare=spare) for t, count in graph.num_nodes.items()}
        self.hints: dict[object, int] = {}
        self._plain = {e: np.empty(0, np.uint64) for e in graph.adjacency}
        self._shared: tuple[np.ndarray, ...] = ()
        self._walks: tuple[np.ndarray, ...] = ()
        self._sorting: dict[type, np.ndarray] = {}
        self.layer = LayerScratch()

    @property
    def num_bytes(self) -> int:
        """Memory of tables and scratch arrays."""
        shared = sum(array.nbytes for array in (*self._plain.values(), *self._shared, *self._walks, *self._sorting.values()))
        return super().num_bytes + shared + self.layer.num_bytes + sum(table.num_bytes for table in self.tables.values())

    def sorting(self, num_edges: int, dtype: type) -> np.ndarray:
        """Return scratch[5, num_edges] to sort edges with."""
        if dtype not in self._sorting or self._sorting[dtype].size < 5 * num_edges:
            self._sorting[dtype] = np.empty(5 * (num_edges + num_edges // 8), dtype)
        return self._sorting[dtype][: 5 * num_edges].reshape(5, num_edges)

    def shared_scratch(self, edge_type: EdgeType, num_dst: int, longest: int) -> tuple[np.ndarray, ...]:
        """Return scratch for shared draws: what is known of the lists of an edge type (a bitmap over destinations), then arrays for lists
        of up to `longest` neighbours."""
        if not self._plain[edge_type].size:
            self._plain[edge_type] = np.zeros((num_dst + 63) // 64, np.uint64)
        if not self._shared or self._shared[0].size < longest + shared.VECTOR:
            size = longest + longest // 4 + shared.VECTOR
            ids, repeats, numbers = (np.empty(size, dtype) for dtype in (np.uint64, np.uint32, np.uint64))
            self._shared = ids, repeats, np.zeros(shared.table_size(size), np.int32), numbers
        return self._plain[edge_type], *self._shared

    def walk_scratch(self, num_starts: int, num: int, length: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], np.ndarray]:
        """Return scratch for `num` walks of `length` steps from each of `num_starts` nodes.

        Returns:
            (arrays for the walks, the last one for visits; arrays for counting the visits of one start; int64[2, num_starts * num * length]
            for the counts and ids of visited nodes).
        """
        num_walks, most = num_starts * num, num * length
        visits, size = num_walks * length, walk.table_size(most)
        sizes = num_walks, num_walks, num_walks, visits, 2 * visits, most, most, most + 1
        if not self._walks or self._walks[-1].size < size or any(a.size < n for a, n in zip(self._walks, sizes, strict=False)):
            *others, ranks = (np.empty(n, np.int64) for n in sizes)
            ranks[:] = 0  # kernels zero it again after each use
            self._walks = *others, ranks, np.empty(size, np.int32)
        *of_walks, visited, chosen, ids, times, ranks, table = self._walks
        return (*of_walks, visited[:visits]), (table[:size], ids, times, ranks), chosen[: 2 * visits].reshape(2, visits)
