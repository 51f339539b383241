"""Neighbourhoods by random walks: the nodes that short walks from a node visit most, with the numbers of visits.

In: nodes, and lists of in-neighbours. Out: for each node, the `fanout` nodes that its walks visited most, and how often. Invariant: a walk
is a pure function of (seed, epoch, batch, hop, its start, its number). All walks take each step together, so one read gets the next
neighbours of all walks, also from a disk.
Source: PinSAGE, Ying et al., KDD 2018; visits are counted as by DGL's `RandomWalkNeighborSampler`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from penstock import rng
from penstock.errors import NotSupportedError, UsageError, argument, damaged_list
from penstock.kernels.random_walks import cpu
from penstock.kernels.random_walks.reference import NOBODY
from penstock.records import CSC, EDGE, EdgeType, Graph, check_neighbors
from penstock.sample.workspace import Workspace

MOST_STEPS = 1 << 19
"""Most steps, in total, of the walks that proceed together. The walks of one node always proceed together."""

MAX_STEPS = rng.MAX_DRAWS // 2
"""Most steps, in total, of the walks of a node: each step takes a block of random words."""

WALKED = "walks"
"""Relation of the edges that walks make in a typed graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """Random walks that define neighbourhoods: in each hop, the neighbours of a node are the `num_neighbors` nodes that its walks visit
    most.

    Attributes:
        num: number of walks from each node.
        length: most steps of a walk, each to a random in-neighbour; with a path, the most times that a walk follows the path.
        end: probability that a walk ends after a step (after the path), in [0, 1). DGL's `termination_prob`.
        path: edge types, for typed graphs. The destination type of the first is the type where walks begin. The destination type of each
            other one is the source type of the one before it. The source type of the last is the type where walks begin; visits are counted
            on nodes of this type.
    Raises:
        UsageError: a value that is not allowed.
    """

    num: int
    length: int
    end: float = 0.5
    path: Sequence[EdgeType] | None = None

    def __post_init__(self) -> None:
        for name in ("num", "length"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise UsageError(f"Walks: {name} must be a whole number from 1, got {value!r}")
        if not isinstance(self.end, Real) or not 0 <= self.end < 1:
            raise UsageError(f"Walks: end is the probability that a walk is over after a step, in [0, 1); got {self.end!r}")
        if self.path is not None:
            if not isinstance(self.path, (list, tuple)) or any(not isinstance(e, (list, tuple)) or len(e) != 3 for e in self.path):
                raise UsageError(f"Walks: path is a list of edge types, each (source, relation, destination); got {self.path!r}")
            object.__setattr__(self, "path", tuple(tuple(edge_type) for edge_type in self.path))
        if (num_steps := self.num * self.length * len(self.path or (EDGE,))) > MAX_STEPS:
            raise UsageError(f"Walks: {num_steps:,} steps from each node are too many, at most {MAX_STEPS:,}: take fewer or shorter walks")

    def along(self, graph: Graph) -> Walks:
        """The same walks with their path, checked against a graph. Raises UsageError if the path does not fit the graph."""
        path = self.path
        if path is None:
            if not graph.is_homogeneous:
                raise UsageError(
                    "walks in a typed graph need a path of edge types that leads back to where it began, for instance Walks(..., "
                    "path=[('user', 'rates', 'item'), ('item', 'rev_rates', 'user')]) from items over users to items"
                )
            path = [EDGE]
        unknown = [edge_type for edge_type in path if edge_type not in graph.adjacency]
        if not path or unknown:
            what = f"{unknown[0]} is not an edge type of this graph" if unknown else "it is empty"
            raise UsageError(f"the path of walks: {what}; the edge types are {list(graph.adjacency)}")
        for one, after in zip(path, [*path[1:], path[0]], strict=True):
            if one[0] != after[2]:
                raise UsageError(
                    f"the path of walks: after {one} a walk is at '{one[0]}', and {after} ends in '{after[2]}': each edge type must end "
                    "in the source type of the one before, and the first in that of the last"
                )
        return replace(self, path=tuple(path))

    @property
    def edge_type(self) -> EdgeType:
        """Type of the edges that walks make, from visited nodes to starts. The path must be known: see `along`."""
        assert self.path
        node_type = self.path[0][2]
        return EDGE if self.path[0] == EDGE else (node_type, WALKED, node_type)

    @property
    def num_together(self) -> int:
        """Number of nodes whose walks proceed together: one read gets the next neighbour of all their walks."""
        return max(1, MOST_STEPS // (self.num * self.length))

    @property
    def of_all(self) -> int:
        """`end` times 2**32, rounded down: a walk continues if a random 32-bit word is not below this number."""
        return math.floor(self.end * (1 << 32))

    def describe(self) -> str:
        """One line, for a loader's state."""
        path = "" if self.path is None else " along " + ", ".join("/".join(edge_type) for edge_type in self.path)
        return f"{self.num} of length {self.length}, end {float(self.end)}{path}"


def check_walks(graph: Graph, walks: Walks, *, replace: bool, induced: bool, shared_draws: int, layer_wise: bool) -> Walks:
    """Return the walks with their path. Raises UsageError or NotSupportedError for options that walks exclude."""
    name = "walks"
    if not isinstance(walks, Walks):
        raise UsageError(f"{name} must be a penstock.Walks, got {type(walks).__name__}")
    if replace or shared_draws or layer_wise:
        what = "replace=True" if replace else argument("shared_draws" if shared_draws else "layer_wise")
        raise UsageError(f"{name} choose the nodes that they visit most, and draw nothing from lists: leave out {what}")
    if induced:
        raise UsageError(f"{name} make edges of their own: take subgraph_type='directional'")
    if any(csc.timed is not None or csc.sums is not None for csc in graph.adjacency.values()):
        raise NotSupportedError(f"{name} go to any neighbour, at any time, with the same probability: leave out weight_attr and time_attr")
    return walks.along(graph)


def sampled_graph(graph: Graph, walks: Walks) -> Graph:
    """The graph that defines the types of samples by walks: the same nodes, and one edge type, whose edges have no ids."""
    assert walks.path
    return replace(graph, adjacency={walks.edge_type: graph.adjacency[walks.path[0]]}).without_edge_numbers()


def sample_walks(
    graph: Graph, walks: Walks, starts: np.ndarray, copies: np.ndarray | None, fanout: int, place: tuple, workspace: Workspace,
    offsets: np.ndarray, make_room: Callable[[int], np.ndarray],
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Find the neighbourhoods of int64[n] `starts`.

    Args:
        copies: int64[n], part of the counter; None: all are 0.
        fanout: number of visited nodes to take; negative takes all.
        place: (key, batch, hop).
        offsets: int64[n + 1]: offsets[0] is given; offsets[i + 1], where the edges of start i end, is written.
        make_room: size -> int64[>= size], which receives the numbers of visits.
    Returns:
        (int64[m] visited nodes, in scratch or newly allocated, m).
    Raises:
        CorruptStoreError: a list outside the edges, or a neighbour that is not a node. NotSupportedError: a list that is too long.
    """
    num, length, piece = walks.num, walks.length, walks.num_together
    found = [np.empty((2, 0), np.int64)]
    for first in range(0, starts.size, piece):
        some = starts[first : first + piece]
        of_walks, of_counts, chosen = workspace.walk_scratch(some.size, num, length)
        take_walks(graph, walks, some, None if copies is None else copies[first : first + piece], place, *of_walks)
        taken = cpu.count_visits(of_walks[-1], some.size, num, length, fanout, *of_counts, offsets[first:], *chosen)
        found.append(chosen[:, :taken] if starts.size <= piece else chosen[:, :taken].copy())
    counts, neighbors = found[-1] if len(found) <= 2 else np.concatenate(found, axis=1)
    make_room(counts.size)[: counts.size] = counts
    return neighbors, neighbors.size


def take_walks(graph: Graph, walks: Walks, starts, copies, place: tuple, nodes, walkers, positions, visits) -> None:
    """Walk from int64[n] `starts`. Writes int64[n * num * length] `visits`, by start, walk and step; NOBODY where a walk is over."""
    visits.fill(NOBODY)
    cpu.begin(starts, walks.num, nodes, walkers)
    path, count, step = walks.path or (), starts.size * walks.num, 0
    for turn in range(walks.length):
        for part, edge_type in enumerate(path):
            csc, end = graph.adjacency[edge_type], walks.of_all if turn and part == 0 else 0
            indices = csc.indices if csc.lists is None else None
            how = copies, walks.num, step, end, *place
            count, bad = cpu.take_step(csc.indptr, indices, csc.num_edges, starts, *how, nodes, walkers, count, positions)
            if bad >= 0:
                raise _bad_list(edge_type, csc, int(nodes[bad]))
            found, at = csc.indices, positions
            if csc.lists is not None:
                found, at = np.empty(count, csc.indices.dtype), None
                if count:
                    csc.lists.read(nodes[:count], np.arange(count + 1), positions[:count], found)
            num_src, of_turn = graph.num_nodes[edge_type[0]], visits if part == len(path) - 1 else None
            if not cpu.arrive(found, at, num_src, walks.length, turn, nodes, walkers, count, of_turn):
                check_neighbors(edge_type, num_src, positions, nodes[:count])
            step += 1


def _bad_list(edge_type: EdgeType, csc: CSC, node: int) -> Exception:
    first, last = int(csc.indptr[node]), int(csc.indptr[node + 1])
    if not 0 <= first <= last <= csc.num_edges:
        return damaged_list(edge_type, node, csc.num_edges)
    return NotSupportedError(
        f"edges {'/'.join(edge_type)}: a node has {last - first:,} neighbours, and walks reach at most {rng.MAX_DEGREE:,}"
    )
