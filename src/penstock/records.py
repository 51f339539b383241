"""The records that all packages share: graphs as arrays, and the sampled neighbourhood of one batch of seeds.

All graphs are typed: a homogeneous graph has one node type and one edge type (`NODE`, `EDGE`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.errors import NotSupportedError, damaged_list, damaged_neighbor

_BLOCK = 1 << 18

NodeType = str
EdgeType = tuple[str, str, str]
"""(source node type, relation, destination node type)."""

NODE: NodeType = "node"
EDGE: EdgeType = ("node", "to", "node")

NODE_NAMES = ("n_id", "num_sampled_nodes", "input_id", "batch_size", "num_nodes")
EDGE_NAMES = ("edge_index", "row_ptr", "e_id", "num_sampled_edges")
"""Attributes that batches have, as PyG names them; no field may have one of these names."""

Allocator = Callable[[int, Any], np.ndarray]
"""(number of elements, dtype) -> one-dimensional array, contents undefined. `numpy.empty` is one; a buffer pool is another."""


def reverses_of(edge_type: EdgeType, edge_types: Collection[EdgeType]) -> tuple[list[EdgeType], list[EdgeType]]:
    """The edge types that hold the reverses of one by PyG's names (`ToUndirected`), and a type itself that joins a node type to itself; and
    all types that join the two node types the other way, which may or may not do so."""
    source, name, target = edge_type
    named = [e for e in ((target, f"rev_{name}", source), (target, name.removeprefix("rev_"), source)) if e in edge_types]
    others = [e for e in edge_types if (e[0], e[2]) == (target, source) and e != edge_type]
    return list(dict.fromkeys([edge_type] * (source == target) + named)), others


def index_dtype(most: int) -> type:
    """The smallest dtype for numbers up to `most`: int32, or int64 from 2**31 on."""
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64


Span = tuple[str, float, float, int]
"""A piece of work: (kind, begin, end, ident of the thread), times of `time.perf_counter`."""


@dataclass(frozen=True, slots=True)
class CSC:
    """In-neighbour lists of one edge type: the list of v is `indices[indptr[v]:indptr[v + 1]]`, in the original order.

    Attributes:
        indptr: int64[num_dst + 1].
        indices: int32 or int64[num_edges], source nodes.
        edge_ids: int32 or int64[num_edges]: the user's number of the edge at each position; None: the number is the position itself.
        lists: where the sampler reads neighbours (see `penstock.sample.lists`); None: in `indices`.
        sums: int64[num_edges], running sums of the edges' weights within each list (see `penstock.sample.weights`); None: uniform.
        guide: uint32[num_edges // 8 + 1], where searches in the sums of long lists begin; given with `sums`.
        times: int32 or int64[num_edges], times of edges, ascending within each list (see `penstock.sample.times`); None: without times.
        by_time: int32 or int64[num_edges], the positions of the edges in the order of time; None: the lists are in that order.
        timed: fingerprint of the given times; None without times.
        told: in a partition: fingerprint of the whole graph's `indices`. The `indices` here are all -1, and `lists` reads them from the
            processes that have them.
        numbers: in a partition: reads the `edge_ids`, if there are any, from the processes that have them
            (`penstock.store.tiers.Elements`).
        draws: in a partition: draws by weight or by time in the processes that have the lists, see `penstock.exchange.draws`.
        are_edges: in a partition: function (int64[n] sources, int64[n] targets) -> bool[n], whether each pair is an edge.
    """

    indptr: np.ndarray
    indices: np.ndarray
    edge_ids: np.ndarray | None = None
    lists: Any = None
    sums: np.ndarray | None = None
    guide: np.ndarray | None = None
    times: np.ndarray | None = None
    by_time: np.ndarray | None = None
    timed: str | None = None
    told: str | None = None
    numbers: Any = None
    are_edges: Any = None
    draws: Any = None

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        """Return int64[n]: the lengths of the lists of int64[n] `nodes`."""
        return self.indptr[nodes + 1] - self.indptr[nodes]

    def all_indices(self, what: str) -> np.ndarray:
        """Return the `indices`, for code that reads all of them; NotSupportedError, naming `what`, if other processes have them."""
        if self.told is not None:
            raise NotSupportedError(f"{what} reads all neighbour lists, and those of a partition are with several processes: leave it out")
        return self.indices

    @property
    def num_dst(self) -> int:
        """Number of destination nodes."""
        return self.indptr.size - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.indices.size


@dataclass(frozen=True, slots=True)
class Graph:
    """The topology a sampler reads. The order of the edge types belongs to the graph: it is in the random counter.

    Attributes:
        num_nodes: node type -> count.
        adjacency: edge type -> in-neighbour lists of its destination type.
        is_homogeneous: whether batches are `Data` rather than `HeteroData`.
        out_degrees: node type -> uint32 or int64[num_nodes]; given in a partition, where they cannot be counted.
    """

    num_nodes: dict[NodeType, int]
    adjacency: dict[EdgeType, CSC]
    is_homogeneous: bool
    out_degrees: dict[NodeType, np.ndarray] = field(default_factory=dict)

    @property
    def is_partitioned(self) -> bool:
        """Whether several processes have the neighbour lists."""
        return any(csc.told is not None for csc in self.adjacency.values())

    @property
    def node_types(self) -> list[NodeType]:
        """Node types in their order."""
        return list(self.num_nodes)

    @property
    def edge_types(self) -> list[EdgeType]:
        """Edge types in their order."""
        return list(self.adjacency)

    def first_from(self, node_type: NodeType) -> int:
        """Return the number of the first edge type whose source is `node_type`; random counters use it as the number of the node type."""
        return next(number for number, edge_type in enumerate(self.adjacency) if edge_type[0] == node_type)

    def without_edge_numbers(self) -> Graph:
        """Return the same graph without the user's edge numbers, which would be read one by one."""
        return replace(self, adjacency={e: replace(csc, edge_ids=None, numbers=None) for e, csc in self.adjacency.items()})

    def check_lists(self) -> None:
        """Raise CorruptStoreError if a list lies outside the edges; for code that then follows all lists. One pass over the row
        pointers."""
        for edge_type, csc in self.adjacency.items():
            for first in range(0, csc.num_dst, _BLOCK):
                ends = csc.indptr[first : first + _BLOCK + 1]
                bad = np.flatnonzero((ends[:-1] < 0) | (ends[1:] < ends[:-1]) | (ends[1:] > csc.num_edges))
                if bad.size:
                    raise damaged_list(edge_type, first + int(bad[0]), csc.num_edges)


def check_neighbors(edge_type: EdgeType, num_src: int, positions: Sequence[int] | np.ndarray, neighbors: np.ndarray) -> None:
    """Raise CorruptStoreError if one of int[n] `neighbors`, read at int[n] `positions`, is not in [0, num_src)."""
    if neighbors.size and not 0 <= neighbors.min() <= neighbors.max() < num_src:
        bad = np.flatnonzero((neighbors < 0) | (neighbors >= num_src))[0]
        raise damaged_neighbor(edge_type, num_src, int(positions[bad]), int(neighbors[bad]))


@dataclass(slots=True)
class SampledEdges:
    """The sampled edges of one edge type, grouped by destination: a CSC over the batch's own node positions.

    Attributes:
        edge_index: int64[2, num_edges]: row 0 the source, row 1 the destination, both as positions in `Sample.nodes`; row 1 ascends.
        row_ptr: int64[num_rows + 1]: the edges into destination i are `row_ptr[i]:row_ptr[i + 1]`; nodes past the last row were
            not expanded and have none.
        positions: int64[num_edges], position of each edge in `CSC.indices`; with random walks, how often they visited the source.
        num_per_hop: number of edges sampled at each hop; None if edges do not belong to hops (induced).
    """

    edge_index: np.ndarray
    row_ptr: np.ndarray
    positions: np.ndarray
    num_per_hop: list[int] | None


@dataclass(slots=True)
class Sample:
    """The sampled neighbourhood of one batch of seeds.

    Attributes:
        nodes: node type -> int64[n], global ids in first-seen order; the seeds of a type come first, as given.
        edges: edge type -> sampled edges.
        num_nodes_per_hop: node type -> nodes first seen at each hop, seeds at index 0.
        trees: node type -> int64[n], the seed that each node belongs to; None unless sampling is disjoint.
        marks: node type -> int32[n], slot of each row in the trainer's cache, -1 for none; only for node types that the sampler looked up.
    """

    nodes: dict[NodeType, np.ndarray]
    edges: dict[EdgeType, SampledEdges]
    num_nodes_per_hop: dict[NodeType, list[int]]
    trees: dict[NodeType, np.ndarray] | None = field(default=None)
    marks: dict[NodeType, np.ndarray] = field(default_factory=dict)

    @property
    def num_seeds(self) -> dict[NodeType, int]:
        """Number of seeds of each node type."""
        return {node_type: counts[0] for node_type, counts in self.num_nodes_per_hop.items()}

    @property
    def num_bytes(self) -> int:
        """Bytes of its nodes and edges."""
        of_edges = (array.nbytes for each in self.edges.values() for array in (each.edge_index, each.row_ptr, each.positions))
        return sum(ids.nbytes for ids in self.nodes.values()) + sum(of_edges)
