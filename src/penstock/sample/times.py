"""Times of edges: neighbour lists in the order of time, made once, so that what a sample may take of a list is its beginning.

In: a graph, and a time for every edge, or every node, of some types. Out: the same graph, whose adjacency carries times in order.
Invariant: lists stay where they are; what is sampled says positions in them, whoever reads those.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.errors import InputError, MissingFieldError, UsageError, damaged_neighbor
from penstock.kernels.time_windows import cpu
from penstock.records import CSC, EDGE, NODE, EdgeType, Graph, NodeType, index_dtype
from penstock.store import Store
from penstock.store.budget import require_room

PYG_NAMES = {"edge_time": "time"}
"""What PyG calls a field of a store."""

PIECE = 1 << 22
"""Edges whose times are read at once."""

_NARROW = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class Times:
    """Times of edges or of nodes, each kind by its types; types that are not there have none, and their edges are always taken.

    Attributes:
        of_nodes: node type -> int[num_nodes]. An edge is as late as its source.
        of_edges: edge type -> int[num_edges].
        name: what the user calls them, for messages.
        by_position: those of edges are in CSC order; else by the user's numbers of the edges.
    """

    of_nodes: Mapping[NodeType, np.ndarray] = field(default_factory=dict)
    of_edges: Mapping[EdgeType, np.ndarray] = field(default_factory=dict)
    name: str = "time"
    by_position: bool = False

    def of_seeds(self, node_type: NodeType, seeds: np.ndarray) -> np.ndarray:
        """int64[n]: those of the seeds themselves; UsageError where they have none."""
        if node_type not in self.of_nodes:
            owner = f"edges have {self.name!r}" if self.of_edges else f"{node_type!r} has no {self.name!r}"
            raise UsageError(f"input_time is needed: {owner}, which does not say when a seed looks at the graph")
        return self.of_nodes[node_type][seeds].astype(np.int64)


def choose_times(
    nodes: Mapping[NodeType, Collection[str]],
    edges: Mapping[EdgeType, Collection[str]],
    name: str,
    source: str,
    stored_as: Mapping[str, str] | None = None,
) -> tuple[list[NodeType], dict[EdgeType, str]]:
    """Return (node types that have a field of that name; edge type -> its field): one of the two is empty.

    `stored_as`: another name that those of edges may have, where nobody has a field of that very name.
    Raises:
        MissingFieldError: nobody has it. UsageError: nodes and edges have it.
    """
    of_nodes = [node_type for node_type, fields in nodes.items() if name in fields]
    of_edges = {edge_type: name for edge_type, fields in edges.items() if name in fields}
    if of_nodes and of_edges:
        raise UsageError(f"time_attr={name!r}: both nodes and edges have it, and it can mean one only: give one of them another name")
    if not of_nodes and not of_edges:
        stored = (stored_as or {}).get(name, name)
        of_edges = {edge_type: stored for edge_type, fields in edges.items() if stored in fields}
    if not of_nodes and not of_edges:
        raise MissingFieldError(f"{source}: neither nodes nor edges have a field {name!r} to say when they came")
    return of_nodes, of_edges


def store_times(store: Store, name: str) -> Times:
    """Return the times that a store has under a name, of nodes or of edges."""
    of_nodes, of_edges = choose_times(
        {t: store.node_fields(t) for t in store.node_types}, {e: store.edge_fields(e) for e in store.edge_types}, name, str(store.path),
        PYG_NAMES,
    )  # fmt: skip
    specs = [*(store.node_fields(t)[name] for t in of_nodes), *(store.edge_fields(e)[stored] for e, stored in of_edges.items())]
    if any(spec.dtype == "bfloat16" for spec in specs):  # whose bits would pass for whole numbers
        raise InputError(f"{store.path}: {name} is bfloat16: times are whole numbers")
    nodes, edges = {t: store.node_field(name, t) for t in of_nodes}, {e: store.edge_field(stored, e) for e, stored in of_edges.items()}
    return Times(nodes, edges, name, by_position=True)


def with_times(graph: Graph, times: Times) -> Graph:
    """Return the same graph, whose lists are known in the order of time.

    Raises InputError for anything but one whole number per node or edge; BudgetError where it does not fit into the container around this
    process.
    Cost: two passes over the edges, three where lists are not in order; 4 bytes an edge where all times lie within 32 bits, else 8, and
    4 (8 from 2**31 edges on) where an edge type's lists are not in order already.
    """
    check_times(graph, times)
    graph.check_lists()
    timed = {e: csc for e, csc in graph.adjacency.items() if _times_of(e, times) is not None}
    most = sum(csc.num_edges * (8 + np.dtype(index_dtype(csc.num_edges)).itemsize) for csc in timed.values())
    require_room(most, f"sampling by {times.name}", "leave time_attr out, or take more memory")
    return replace(graph, adjacency={e: _in_order(e, csc, graph, times) if e in timed else csc for e, csc in graph.adjacency.items()})


def check_times(graph: Graph, times: Times) -> None:
    """Raise InputError for anything but one whole number per node or edge."""
    for key, values in (*times.of_nodes.items(), *times.of_edges.items()):
        is_edge = isinstance(key, tuple)
        label = times.name if key in (NODE, EDGE) else f"{times.name} of {key}"
        count = graph.adjacency[key].num_edges if isinstance(key, tuple) else graph.num_nodes[key]
        if values.shape != (count,) or values.dtype.kind not in "iu":
            what = "edge" if is_edge else "node"
            raise InputError(
                f"{label} must be one whole number per {what}, int [{count}]; got {values.dtype} {list(values.shape)}"
                + (": count seconds, or smaller units" if values.dtype.kind == "f" else "")
            )
        if values.dtype == np.uint64 and values.size and int(values.max()) > np.iinfo(np.int64).max:
            raise InputError(f"{label} goes up to {values.max()}, beyond int64: subtract where it begins")


def time_bytes(graph: Graph) -> int:
    """Memory that the times of a graph take, with the order of its lists."""
    arrays = [array for csc in graph.adjacency.values() for array in (csc.times, csc.by_time) if array is not None]
    return sum(array.nbytes for array in arrays)


def as_moments(values: Any, num_seeds: int) -> np.ndarray:
    """Return int64[num_seeds]: when each seed looks at the graph, or raise UsageError."""
    moments = np.asarray(values)
    if moments.shape != (num_seeds,) or moments.dtype.kind not in "iu":
        raise UsageError(
            f"input_time must be one whole number for each of the {num_seeds} input nodes; got {moments.dtype} {list(moments.shape)}"
        )
    return moments.astype(np.int64)


def _times_of(edge_type: EdgeType, times: Times) -> np.ndarray | None:
    return times.of_edges.get(edge_type, times.of_nodes.get(edge_type[0]))


def _in_order(edge_type: EdgeType, csc: CSC, graph: Graph, times: Times) -> CSC:
    """The lists of one edge type with their times, in order, and the order itself where that is not how they lie."""
    given = _times_of(edge_type, times)
    assert given is not None
    is_narrow = given.size == 0 or (_NARROW.min <= given.min() and given.max() <= _NARROW.max)
    found = np.empty(csc.num_edges, np.int32 if is_narrow else np.int64)
    for first in range(0, csc.num_edges, PIECE):
        piece = slice(first, min(first + PIECE, csc.num_edges))
        found[piece] = given[_owners(edge_type, csc, graph, times, piece)]
    is_disordered, longest = cpu.look_for_disorder(csc.indptr, found)
    if not is_disordered:
        return replace(csc, times=found)
    order = np.arange(csc.num_edges, dtype=index_dtype(csc.num_edges))
    cpu.order_by_time(csc.indptr, found, order, np.empty(longest, found.dtype), np.empty(longest, order.dtype))
    return replace(csc, times=found, by_time=order)


def _owners(edge_type: EdgeType, csc: CSC, graph: Graph, times: Times, piece: slice) -> np.ndarray | slice:
    """Whose times those of some edges are."""
    if edge_type in times.of_edges:
        return piece if times.by_position or csc.edge_ids is None else csc.edge_ids[piece]
    sources, num_src = csc.indices[piece], graph.num_nodes[edge_type[0]]
    if sources.min() < 0 or sources.max() >= num_src:
        bad = int(np.flatnonzero((sources < 0) | (sources >= num_src))[0])
        raise damaged_neighbor(edge_type, num_src, piece.start + bad, int(sources[bad]))
    return sources
