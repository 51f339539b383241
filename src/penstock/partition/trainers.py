"""The second level of a partition: the nodes of each part, divided among the trainers of its machine.

In: a graph and the part of each node. Out: the trainer of each node within its part. Invariant: the part of a node and the place of its
data do not change: all trainers of a part read the same rows. Only the trainer that has the node as a seed is decided, by the method that
chose the parts, over the edges within each part. Source: DistDGLv2 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.partition.methods import assign
from penstock.records import CSC, Graph, NodeType, index_dtype


def assign_trainers(
    graph: Graph,
    owners: Mapping[NodeType, np.ndarray],
    num_parts: int,
    num_trainers: int,
    method: str,
    *,
    train: Mapping[NodeType, np.ndarray],
    seed: int,
) -> dict[NodeType, np.ndarray]:
    """Decide which trainer of its part each node belongs to.

    Args:
        graph, num_parts, method, train, seed: as for `assign`. owners: its result.
        num_trainers: of each part.
    Returns:
        node type -> int16[num_nodes], in [0, num_trainers).
    Cost: that of `assign` for each part, and 24 bytes per edge of the largest part.
    """
    found = {t: np.zeros(count, np.int16) for t, count in graph.num_nodes.items()}
    is_train = {t: np.zeros(count, np.bool_) for t, count in graph.num_nodes.items()}
    for node_type, ids in train.items():
        is_train[node_type][ids] = True
    for part in range(num_parts):
        nodes = {t: np.flatnonzero(each == part) for t, each in owners.items()}
        within, trained = take_nodes(graph, nodes), {t: np.flatnonzero(is_train[t][ids]) for t, ids in nodes.items()}
        for node_type, each in assign(within, num_trainers, method, train=trained, seed=seed).items():
            found[node_type][nodes[node_type]] = each
    return found


def take_nodes(graph: Graph, nodes: Mapping[NodeType, np.ndarray]) -> Graph:
    """Return the subgraph of some nodes, int64[n] per type, ascending, with the edges between them; the i-th node of a type gets id i."""
    numbers, adjacency = {}, {}
    for node_type, ids in nodes.items():
        numbers[node_type] = np.full(graph.num_nodes[node_type], -1, index_dtype(ids.size))
        numbers[node_type][ids] = np.arange(ids.size)
    for edge_type, csc in graph.adjacency.items():
        firsts = csc.indptr[nodes[edge_type[2]]]
        degrees = csc.indptr[nodes[edge_type[2]] + 1] - firsts
        ends = np.concatenate([[0], np.cumsum(degrees)])
        sources = numbers[edge_type[0]][csc.indices[np.repeat(firsts - ends[:-1], degrees) + np.arange(ends[-1])]]
        stay = sources >= 0
        adjacency[edge_type] = CSC(np.concatenate([[0], np.cumsum(stay)])[ends], sources[stay])
    return Graph({t: ids.size for t, ids in nodes.items()}, adjacency, graph.is_homogeneous)
