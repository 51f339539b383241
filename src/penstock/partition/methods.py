"""Choosing which part owns each node, by the name of a method.

In: a graph, its train nodes and a number of parts. Out: the owner of each node. Invariants: every node has one owner; the result is a pure
function of the arguments; nodes of a type, and train nodes of a type, are balanced as far as the method can (`quality.py` measures it).
Methods treat all node types as one id space, and edges as undirected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.errors import NodeIdError, UsageError, argument
from penstock.partition.blocks import assign_blocks
from penstock.partition.kinds import Method
from penstock.partition.metis import assign_metis
from penstock.partition.plain import assign_random
from penstock.partition.streaming import assign_greedy, assign_pagraph
from penstock.records import Graph, NodeType


@dataclass(frozen=True, slots=True)
class Entry:
    """A method, and the memory that it takes beside the mapped graph, measured with 0.2M and 1M nodes, 2M and 12M edges."""

    method: Method
    node_bytes: int
    edge_bytes: int = 0


METHODS = {
    "random": Entry(assign_random, 20),
    "ldg": Entry(assign_greedy, 42),
    "bgl": Entry(assign_blocks, 110),
    "pagraph": Entry(assign_pagraph, 36),
    "metis": Entry(assign_metis, 130, 110),
}

MAX_PARTS = (1 << 15) - 1


def most_bytes(graph: Graph, method: str) -> int:
    """Return the approximate memory for choosing owners."""
    entry = METHODS[method]
    return entry.node_bytes * sum(graph.num_nodes.values()) + entry.edge_bytes * sum(csc.num_edges for csc in graph.adjacency.values())


def assign(
    graph: Graph, num_parts: int, method: str, *, train: Mapping[NodeType, np.ndarray], seed: int
) -> dict[NodeType, np.ndarray]:  # fmt: skip
    """Decide which part owns each node.

    Args:
        graph: topology; its arrays may be memory-mapped.
        num_parts: in [1, 2**15); may exceed the number of nodes.
        method: a name in METHODS.
        train: node type -> int64[n], ids of train nodes; types may be missing.
        seed: in [0, 2**64), for methods that draw (`random`, `bgl`, `metis`).
    Returns:
        node type -> int16[num_nodes], in [0, num_parts).
    """
    check_choice(num_parts, method, MAX_PARTS)
    _check_train(graph, train)
    if sum(graph.num_nodes.values()) == 0:
        return {node_type: np.empty(0, np.int16) for node_type in graph.num_nodes}
    owners = METHODS[method].method(graph, num_parts, train=train, seed=seed)
    for node_type, count in graph.num_nodes.items():
        found = owners.get(node_type, np.empty(0))
        if found.dtype != np.int16 or found.shape != (count,) or (count and not 0 <= found.min() <= found.max() < num_parts):
            gave = f"{found.dtype}{list(found.shape)}" + (f", from {found.min()} to {found.max()}" if found.size else "")
            raise UsageError(f"{method}: gives int16[{count}] in [0, {num_parts}) for the nodes of type '{node_type}'; it gave {gave}")
    return owners


def check_choice(num_parts: int, method: str, most: int) -> None:
    """Raise UsageError for an unknown method, or a number of parts outside [1, `most`]."""
    if method not in METHODS:
        raise UsageError(f"{argument('method')} must be one of {', '.join(METHODS)}; got {method!r}")
    if not 1 <= num_parts <= most:
        raise UsageError(f"{argument('num_parts')} must lie in [1, {most}], got {num_parts}")


def _check_train(graph: Graph, train: Mapping[NodeType, np.ndarray]) -> None:
    for node_type, ids in train.items():
        if node_type not in graph.num_nodes:
            raise UsageError(f"train: '{node_type}' is no node type of this graph; they are {', '.join(graph.num_nodes)}")
        count = graph.num_nodes[node_type]
        bad = np.flatnonzero((ids < 0) | (ids >= count))
        if bad.size:
            raise NodeIdError(
                f"train: {bad.size} of {ids.size} ids lie outside [0, {count}), the ids of node type '{node_type}'; first is "
                f"[{bad[0]}] = {ids[bad[0]]}"
            )
