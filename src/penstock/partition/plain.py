"""Partitioning at random."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock import rng
from penstock.order.grouping import BLOCK
from penstock.order.orders import permutation
from penstock.partition.kinds import by_type, count_kinds, label_kinds
from penstock.records import Graph, NodeType


def assign_random(graph: Graph, num_parts: int, *, train: Mapping[NodeType, np.ndarray], seed: int) -> dict[NodeType, np.ndarray]:
    """Distribute the nodes of each kind in random order; edges are not read.

    Returns:
        node type -> int16[num_nodes]. Parts differ by at most one node, in each kind and in all.
    Cost: 12 bytes per node.
    Source: Euler, and DGL for its largest graphs.
    """
    kinds = label_kinds(graph, train)
    owners, dealt = np.empty(kinds.size, np.int16), 0
    for kind, count in enumerate(count_kinds(graph, kinds).tolist()):
        nodes, key = np.flatnonzero(kinds == kind), rng.derive_key(seed, kind, rng.PARTITION)
        for first in range(0, count, BLOCK):
            some = nodes[first : first + BLOCK]
            owners[some] = (dealt + permutation(count, first, first + some.size, key)) % num_parts
        dealt += count
    return by_type(graph, owners)
