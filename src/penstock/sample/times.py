"""Timestamps of edges. Each neighbour list is sorted by time once, so that the edges that a sample may take are consecutive.

In: a graph, and a time for every edge, or every node, of some types. Out: the same graph, with the times of each list in order.
Invariant: `indices` does not change; positions of sampled edges refer to it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.errors import InputError, MissingFieldError, UsageError
from penstock.kernels.time_windows import cpu
from penstock.records import CSC, EDGE, NODE, EdgeType, Graph, NodeType, check_neighbors, index_dtype
from penstock.store import Store
from penstock.store.budget import require_room
from penstock.store.fingerprint import fingerprint
from penstock.store.tiers import Elements

logger = logging.getLogger("penstock")

PYG_NAMES = {"edge_time": "time"}
"""PyG's name of a field -> its name in a store."""

PIECE = 1 << 22
"""Edges whose times are read at once."""

_NARROW = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class TimeRule:
    """Which edges are in time for a seed.

    Attributes:
        is_strict: an edge with exactly the seed's time is too late.
        window: an edge that is earlier than the seed's time by more than this is too early; None: no edge is.
    """

    is_strict: bool = False
    window: int | None = None

    @property
    def reach(self) -> int:
        """How much earlier than `until` an edge may be; -1: as early as it likes."""
        return -1 if self.window is None else self.window - self.is_strict

    def until(self, moments: np.ndarray) -> np.ndarray:
        """int64[n]: the latest time of an edge for each of int64[n] moments of seeds."""
        return moments - self.is_strict

    def allows(self, times: np.ndarray, moment: int) -> np.ndarray:
        """bool[n]: which edges, of int[n] times, are in time for a seed at `moment`."""
        return (times < moment if self.is_strict else times <= moment) & (self.window is None or times >= moment - self.window)

    def describe(self) -> dict[str, Any]:
        """For a loader's state; empty for PyG's rule."""
        return ({"temporal_rule": "<"} if self.is_strict else {}) | ({} if self.window is None else {"time_window": self.window})


ANY_EARLIER = TimeRule()
"""PyG's rule."""


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The times of nodes or edges, by type. Edges of types without times are in time for every seed.

    Attributes:
        of_nodes: node type -> int[num_nodes], an array, or `Elements` held by other processes. An edge has its source's time.
        of_edges: edge type -> int[num_edges], likewise.
        name: the user's name of the field, for messages.
        by_position: times of edges are in CSC order; else they are indexed by the user's numbers of the edges.
        rule: which edges are in time.
    """

    of_nodes: Mapping[NodeType, np.ndarray | Elements] = field(default_factory=dict)
    of_edges: Mapping[EdgeType, np.ndarray | Elements] = field(default_factory=dict)
    name: str = "time"
    by_position: bool = False
    rule: TimeRule = ANY_EARLIER

    def of_seeds(self, node_type: NodeType, seeds: np.ndarray) -> np.ndarray:
        """int64[n]: the time of each seed, that of its node. Raises UsageError if nodes of the type have no times."""
        if node_type not in self.of_nodes:
            raise UsageError(f"give input_time, the time of each seed: seeds are of type {node_type!r}, which has no {self.name!r}")
        return self.of_nodes[node_type][seeds].astype(np.int64)

    def in_time(self, edge_type: EdgeType, csc: CSC, positions: np.ndarray, moment: int) -> np.ndarray:
        """bool[n]: which of the edges at `positions` in the lists are in time for a seed at `moment`."""
        if edge_type in self.of_edges:
            numbers = positions if self.by_position or csc.edge_ids is None else csc.edge_ids[positions]
            return self.rule.allows(self.of_edges[edge_type][numbers], moment)
        if edge_type[0] in self.of_nodes:
            return self.rule.allows(self.of_nodes[edge_type[0]][csc.indices[positions]], moment)
        return np.ones(positions.size, dtype=bool)


def choose_times(
    nodes: Mapping[NodeType, Collection[str]],
    edges: Mapping[EdgeType, Collection[str]],
    name: str,
    source: str,
    stored_as: Mapping[str, str] | None = None,
) -> tuple[list[NodeType], dict[EdgeType, str]]:
    """Return (node types that have the field `name`; edge type -> name of its field). One of the two is empty.

    Args:
        nodes, edges: type -> names of its fields.
        source: for messages.
        stored_as: PyG's name of an edge field -> its name in a store. If nodes have a field of the store's name, too, the name means it.
    Raises:
        MissingFieldError: neither nodes nor edges have the field. UsageError: both have it.
    """
    stored = stored_as or {}
    of_nodes = [node_type for node_type, fields in nodes.items() if name in fields]
    names = (name, stored.get(name, name))
    of_edges = {edge_type: found for edge_type, fields in edges.items() if (found := next((n for n in names if n in fields), None))}
    if of_nodes and name in stored.values():
        if of_edges:
            pyg_name = next(known for known, field in stored.items() if field == name)
            _warn_of_two(name, ", ".join(of_nodes), ", ".join("/".join(e) for e in of_edges), pyg_name)
        of_edges = {}
    if of_nodes and of_edges:
        raise UsageError(f"time_attr={name!r}: both nodes and edges have it, and it can mean one only: give one of them another name")
    if not of_nodes and not of_edges:
        there = sorted({field for fields in (*nodes.values(), *edges.values()) for field in fields if isinstance(field, str)})
        have = f"; they have {', '.join(there)}" if there else ""
        raise MissingFieldError(f"{source}: neither nodes nor edges have a field {name!r} with times{have}")
    return of_nodes, of_edges


@functools.cache
def _warn_of_two(name: str, nodes: str, edges: str, pyg_name: str) -> None:
    logger.warning(
        "time_attr=%r means the times of nodes (%s): edges with some of their own (%s) may be later than a seed; time_attr=%r means those",
        name, nodes, edges, pyg_name,
    )  # fmt: skip


def store_times(store: Store, name: str) -> Timestamps:
    """Return the times in a store's field `name`, of nodes or of edges. Raises as `choose_times`, and InputError for bfloat16."""
    of_nodes, of_edges = choose_times(
        {t: store.node_fields(t) for t in store.node_types}, {e: store.edge_fields(e) for e in store.edge_types}, name, str(store.path),
        PYG_NAMES,
    )  # fmt: skip
    specs = [*(store.node_fields(t)[name] for t in of_nodes), *(store.edge_fields(e)[stored] for e, stored in of_edges.items())]
    if any(spec.dtype == "bfloat16" for spec in specs):  # its bits would be taken for whole numbers
        raise times_are_bfloat16(store.path, name)
    nodes, edges = {t: store.node_field(name, t) for t in of_nodes}, {e: store.edge_field(stored, e) for e, stored in of_edges.items()}
    return Timestamps(nodes, edges, name, by_position=True)


def times_are_bfloat16(source: object, name: str) -> InputError:
    """Return the error for times that are stored as bfloat16."""
    return InputError(f"{source}: {name} is bfloat16: times are whole numbers")


def with_times(graph: Graph, times: Timestamps) -> Graph:
    """Return the same graph, with the times of its edges, sorted within each list.

    Raises:
        InputError: times are not one whole number per node or edge.
        BudgetError: the result does not fit into the memory limit of this process's container.
    Cost: two passes over the edges, three if lists are not in order. Memory: 4 bytes an edge if all times of an edge type fit in 32 bits,
    else 8; for edge types whose lists are not in order, 4 more (8 from 2**31 edges on).
    """
    check_times(graph, times)
    graph.check_lists()
    given: dict[EdgeType, Any] = {e: times.of_edges.get(e, times.of_nodes.get(e[0])) for e in graph.adjacency}
    dtypes = {e: _narrowest(values) for e, values in given.items() if values is not None}
    sizes = {e: graph.adjacency[e].num_edges for e in dtypes}
    most = sum(sizes[e] * (dtype.itemsize + np.dtype(index_dtype(sizes[e])).itemsize) for e, dtype in dtypes.items())
    require_room(most, f"sampling by {times.name}", "leave time_attr out, or take more memory")
    ordered = {e: _in_order(e, graph, times, given[e], dtype) for e, dtype in dtypes.items()}
    return replace(graph, adjacency=graph.adjacency | ordered)


def check_times(graph: Graph, times: Timestamps) -> None:
    """Raise InputError unless times are one whole number per node or edge, of types that the graph has."""
    for key, values in (*times.of_nodes.items(), *times.of_edges.items()):
        label = times.name if key in (NODE, EDGE) else f"{times.name} of {key}"
        if key not in graph.num_nodes and key not in graph.adjacency:
            raise InputError(f"{label}: the graph has no such {'edges' if isinstance(key, tuple) else 'nodes'}")
        count = graph.adjacency[key].num_edges if isinstance(key, tuple) else graph.num_nodes[key]
        if fault := _fault(values, count, "edge" if isinstance(key, tuple) else "node"):
            raise InputError(f"{label} {fault}")


def as_moments(values: np.ndarray, num_seeds: int, name: str = "input_time", owner: str = "input node") -> np.ndarray:
    """Return `values` as int64[num_seeds], the time of each seed; raises UsageError unless they are one whole number per seed.

    Args:
        name, owner: what the message calls the argument and a seed.
    """
    if fault := _fault(values, num_seeds, owner):
        raise UsageError(f"{name} {fault}")
    return values.astype(np.int64)


def check_moments(moments: np.ndarray, times: Timestamps) -> np.ndarray:
    """Return int64[n] `moments`, the times of seeds. Raises UsageError if the rule is "<" and int64 has no time before one of them."""
    if times.rule.is_strict and moments.size and moments.min() == np.iinfo(np.int64).min:
        raise UsageError(f"temporal_rule='<': a seed's time is {moments.min()}, and int64 has no earlier time: take a later one")
    return moments


def _fault(values: np.ndarray | Elements, count: int, owner: str) -> str:
    """What is wrong with the times, for a message; "" if nothing is."""
    if values.shape != (count,) or values.dtype.kind not in "iu":
        hint = ": count seconds, or smaller units" if values.dtype.kind == "f" else ""
        return f"must be one whole number per {owner}, int [{count}]; got {values.dtype} {list(values.shape)}{hint}"
    if values.dtype == np.uint64 and values.size and int(values[:].max()) > np.iinfo(np.int64).max:
        return f"goes up to {values[:].max()}, beyond int64: subtract the earliest time"
    return ""


def time_bytes(graph: Graph) -> int:
    """Bytes that the times of a graph take, with the order of its lists by time."""
    of_others = [csc.draws.resident_bytes for csc in graph.adjacency.values() if csc.timed is not None and csc.draws is not None]
    arrays = [array for csc in graph.adjacency.values() for array in (csc.times, csc.by_time) if array is not None]
    return sum(of_others) + sum(array.nbytes for array in arrays)


def _narrowest(values: np.ndarray) -> np.dtype:
    """int32 if it holds all values, else int64."""
    is_narrow = values.size == 0 or (_NARROW.min <= values.min() and values.max() <= _NARROW.max)
    return np.dtype(np.int32 if is_narrow else np.int64)


def _in_order(edge_type: EdgeType, graph: Graph, times: Timestamps, given: Any, dtype: np.dtype) -> CSC:
    """The lists of one edge type with their times, sorted within each list; also the order by time (`by_time`) if lists are not in it."""
    csc = graph.adjacency[edge_type]
    found = np.empty(csc.num_edges, dtype)
    for first in range(0, csc.num_edges, PIECE):
        piece = slice(first, min(first + PIECE, csc.num_edges))
        found[piece] = given[_owners(edge_type, csc, graph, times, piece)]
    is_disordered, longest = cpu.look_for_disorder(csc.indptr, found)
    timed = fingerprint(given)
    if not is_disordered:
        return replace(csc, times=found, timed=timed)
    order = np.arange(csc.num_edges, dtype=index_dtype(csc.num_edges))
    cpu.order_by_time(csc.indptr, found, order, np.empty(longest, found.dtype), np.empty(longest, order.dtype))
    return replace(csc, times=found, by_time=order, timed=timed)


def _owners(edge_type: EdgeType, csc: CSC, graph: Graph, times: Timestamps, piece: slice) -> np.ndarray | slice:
    """Indices of the times of a piece of the edges, in the array of times given by the user."""
    if edge_type in times.of_edges:
        return piece if times.by_position or csc.edge_ids is None else csc.edge_ids[piece]
    sources = csc.indices[piece]
    check_neighbors(edge_type, graph.num_nodes[edge_type[0]], range(piece.start, piece.stop), sources)
    return sources
