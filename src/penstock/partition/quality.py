"""The quality of a partition: edges between parts, and balance.

In: a graph and the part that owns each node. Out: counts per part. Invariant: an edge belongs to the part of its destination, as in a
written partition, so every node and every edge is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import damaged_neighbor
from penstock.kernels.crossings import cpu as kernels
from penstock.records import Graph, NodeType


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Counts per part, over all types.

    Attributes:
        nodes, train: owned by the part.
        edges: into its nodes. crossing: those of them from other parts.
        halo: distinct nodes of other parts with edges into its nodes.
    """

    nodes: tuple[int, ...]
    train: tuple[int, ...]
    edges: tuple[int, ...]
    crossing: tuple[int, ...]
    halo: tuple[int, ...]

    @property
    def edge_cut(self) -> float:
        """Share of the edges whose ends have different owners."""
        return sum(self.crossing) / max(sum(self.edges), 1)

    def balance(self, name: str) -> float:
        """Return largest over mean of "nodes", "train", "edges" or "halo"; 1 means balanced, also if there are none."""
        counts = getattr(self, name)
        return max(counts) * len(counts) / sum(counts) if any(counts) else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return all counts, for JSON."""
        balances = {f"{name}_balance": self.balance(name) for name in ("nodes", "train", "edges")}
        counts = {name: list(getattr(self, name)) for name in ("nodes", "train", "edges", "crossing", "halo")}
        return {"num_parts": len(self.nodes), "edge_cut": self.edge_cut, **balances, **counts}


def measure(graph: Graph, parts: Mapping[NodeType, np.ndarray], num_parts: int, train: Mapping[NodeType, np.ndarray]) -> Quality:
    """Measure a partition.

    Args:
        graph: topology; its arrays may be memory-mapped.
        parts: node type -> int16[num_nodes], owner of each node, in [0, num_parts).
        num_parts: number of parts.
        train: node type -> ids of train nodes; types may be missing.
    Cost: a pass over all edges, and one more per 64 parts; 8 bytes per node.
    """
    graph.check_lists()
    nodes, of_train, edges, crossing, halo = (np.zeros(num_parts, np.int64) for _ in range(5))
    for node_type, owners in parts.items():
        nodes += np.bincount(owners, minlength=num_parts)
        of_train += np.bincount(owners[train.get(node_type, slice(0))], minlength=num_parts)
    for (src, name, dst), csc in graph.adjacency.items():
        bad = kernels.count_edges(csc.indptr, csc.indices, parts[src], parts[dst], edges, crossing)
        if bad >= 0:
            raise damaged_neighbor((src, name, dst), graph.num_nodes[src], bad, int(csc.indices[bad]))
    for first_part in range(0, num_parts, kernels.PARTS):
        marks = {node_type: np.zeros(owners.size, np.uint64) for node_type, owners in parts.items()}
        for (src, _, dst), csc in graph.adjacency.items():
            kernels.mark_halo(csc.indptr, csc.indices, parts[dst], first_part, marks[src])
        for node_type, owners in parts.items():
            kernels.count_marks(marks[node_type], owners, first_part, halo)
    counts = dict(nodes=nodes, train=of_train, edges=edges, crossing=crossing, halo=halo)
    return Quality(**{name: tuple(each.tolist()) for name, each in counts.items()})
