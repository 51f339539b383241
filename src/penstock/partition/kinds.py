"""Kinds of nodes: the train nodes of a type, and its other nodes. A partition balances every kind.

In: a graph and its train nodes. Out: arrays over one id space, type after type, as in the undirected view. Invariant: if every part has its
share of every kind, it has its share of each type and of the train nodes of each type (the constraints of DistDGLv2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from penstock.kernels.greedy_parts import cpu as kernels
from penstock.order.view import UndirectedView, view_undirected
from penstock.records import CSC, Graph, NodeType
from penstock.store.progress import told

SLACK_PERCENT = 5
"""Percentage by which a part may exceed its share of a kind, in methods that choose owners node by node."""

PIECE = 1_000_000
"""Nodes that are placed at a time."""

SETTLED = 0.01
"""Passes end when less than this share of the nodes moves."""


class Method(Protocol):
    """A function that decides which part owns each node: pure; its arguments were checked by `assign`. If it reads neighbours, it raises
    CorruptStoreError for one that is no node (`view_parts` does)."""

    def __call__(
        self, graph: Graph, num_parts: int, *, train: Mapping[NodeType, np.ndarray], seed: int
    ) -> dict[NodeType, np.ndarray]:  # fmt: skip
        """Return node type -> int16[num_nodes], in [0, num_parts)."""
        ...


def label_kinds(graph: Graph, train: Mapping[NodeType, np.ndarray]) -> np.ndarray:
    """Return uint16[num_nodes of all types]: twice the number of a node's type, plus 1 for train nodes."""
    kinds = np.repeat(np.arange(len(graph.num_nodes), dtype=np.uint16) * 2, list(graph.num_nodes.values()))
    first = 0
    for node_type, count in graph.num_nodes.items():
        kinds[first : first + count][train.get(node_type, slice(0))] |= 1
        first += count
    return kinds


def count_kinds(graph: Graph, kinds: np.ndarray) -> np.ndarray:
    """Return int64[2 * number of types]: the number of nodes of each kind."""
    return np.bincount(kinds, minlength=2 * len(graph.num_nodes))


def share_out(counts: np.ndarray, num_parts: int, slack_percent: int | np.ndarray = SLACK_PERCENT) -> np.ndarray:
    """Return int64, of the shape of `counts`: the capacity of each part, rounded up."""
    return -(-counts * (100 + slack_percent) // (100 * num_parts))


def view_parts(graph: Graph) -> UndirectedView:
    """Return the undirected view; for a graph without edge types one with an empty list, as kernels need at least one."""
    nothing = {(each, "", each): CSC(np.zeros(1, np.int64), np.empty(0, np.int32)) for each in graph.node_types[:1]}
    return view_undirected(Graph(graph.num_nodes, graph.adjacency or nothing, False))


def stream(
    view: UndirectedView, order: np.ndarray, kinds: np.ndarray, num_parts: int, counts: np.ndarray, owners: np.ndarray, num_passes: int
) -> None:
    """Pass over all nodes in a given order, up to `num_passes` times, and move each to its best part; `owners` is modified.

    Cost: per pass, all edges once, and nodes * parts steps.
    """
    met, capacities = np.zeros(num_parts, np.int64), share_out(counts, num_parts)
    pieces = [order[first : first + PIECE] for first in range(0, order.size, PIECE)]
    for number in range(1, num_passes + 1):
        sizes = np.zeros((counts.size, num_parts), np.int64)
        what = f"choosing owners, pass {number} of at most {num_passes}: million nodes"
        moved = (kernels.place(*view.arrays, piece, kinds, capacities, sizes, owners, met) for piece in pieces)
        if sum(told(moved, what, len(pieces))) < SETTLED * order.size:
            break


def by_type(graph: Graph, owners: np.ndarray) -> dict[NodeType, np.ndarray]:
    """Return the owners by node type, as views."""
    ends = np.cumsum(list(graph.num_nodes.values()))
    return dict(zip(graph.num_nodes, np.split(owners, ends[:-1]), strict=True))
