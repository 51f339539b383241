"""Communities of nodes. Seeds grouped by community are nearer to each other than in the order of a traversal.

In: the undirected view of a graph. Out: a community per node; positions of seeds. Invariant: nothing is random.
A breadth-first traversal leaves a community at its first edge to another one, and then visits both alternately; label propagation first
finds which nodes belong together. docs/design/orders.md compares the two.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.label_communities import cpu as kernels
from penstock.order.grouping import BLOCK, group_by
from penstock.order.traversal import traverse_nodes
from penstock.order.view import UndirectedView, view_undirected
from penstock.records import Graph, index_dtype

MAX_ROUNDS = 3
SETTLED = 0.01
"""Rounds end when less than this share of the nodes changes, or after MAX_ROUNDS: on a citation graph, 3, 5 and 8 rounds gave the same
cache hits."""

SHARE, LEAST = 1 / 128, 256
"""Largest community: this share of the nodes, or this number if that is more. A community as large as a cache would not help."""


def label_communities(view: UndirectedView) -> np.ndarray:
    """Find communities by label propagation.

    Args:
        view: of the graph.
    Returns:
        int32[num_nodes] (int64 from 2**31 on): community of each node, identified by one of its nodes.
    Cost: one pass over all edges per round, in the order in which they are stored; 12 bytes per node (24 from 2**31 on).
    """
    labels = np.arange(view.num_nodes, dtype=view.id_dtype)
    if not view.indptrs:
        return labels
    sizes, counts = np.ones_like(labels), np.zeros_like(labels)
    max_size = max(int(SHARE * view.num_nodes), LEAST)
    for _ in range(MAX_ROUNDS):
        if kernels.propagate(*view.arrays, max_size, labels, sizes, counts) < SETTLED * view.num_nodes:
            break
    return labels


def place_nodes(graph: Graph) -> np.ndarray:
    """Order all nodes so that near ones follow each other: by a traversal, then community by community.

    Returns:
        int32[num_nodes of all types] (int64 from 2**31 on), ids of the undirected view: type after type.
    """
    view = view_undirected(graph)
    nodes, communities = traverse_nodes(view), label_communities(view)
    del view
    return put_together(nodes, communities)


def put_together(positions: np.ndarray, communities: np.ndarray) -> np.ndarray:
    """Group positions by community; communities are in the order of their first positions.

    Args:
        positions: int[num_seeds], in the order of a traversal, which is kept within a community.
        communities: int[num_seeds], of each seed; not negative.
    Returns:
        int[num_seeds]: the positions, reordered.
    Cost: 4 bytes per position beside the result, and 4 per possible community number (8 from 2**31 on).
    """
    count = positions.size
    firsts = np.full(int(communities.max(initial=-1)) + 1, count, index_dtype(count))
    for begin in range((count - 1) // BLOCK * BLOCK, -1, -BLOCK):  # backwards, so that the first one is written last
        block = communities[positions[begin : begin + BLOCK]]
        firsts[block[::-1]] = np.arange(begin, begin + block.size, dtype=firsts.dtype)[::-1]
    return group_by(positions, lambda some: firsts[communities[some]], count)
