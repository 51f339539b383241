"""Which neighbour lists to keep within a number of bytes, by the visits of a short profile, where tables of floats would not fit.

In: counts of visits, of which most are 0. Out: reads that are saved by each number of bytes, and the lists kept. Only visited lists are
looked at: memory follows the profile, not the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.records import CSC, EdgeType


class VisitedLists:
    """The visited lists of all edge types, best first by visits per byte (DUCATI's density).

    Args:
        visits: edge type -> uint[num_dst], how often anything is read of each list.
        adjacency: their lengths.
    """

    def __init__(self, visits: Mapping[EdgeType, np.ndarray], adjacency: Mapping[EdgeType, CSC]) -> None:
        self._edge_types, nodes, sizes, counts, owners = list(adjacency), [], [], [], []
        for number, (edge_type, csc) in enumerate(adjacency.items()):
            visited = np.flatnonzero(visits[edge_type])
            lengths = csc.indptr[visited + 1] - csc.indptr[visited]
            visited, lengths = visited[lengths > 0], lengths[lengths > 0]
            nodes.append(visited)
            sizes.append(lengths * csc.indices.dtype.itemsize)
            counts.append(visits[edge_type][visited].astype(np.float32))
            owners.append(np.full(visited.size, number, np.uint8))
        whole_sizes, whole_counts = np.concatenate(sizes), np.concatenate(counts)
        ranking = np.argsort(-(whole_counts / whole_sizes), kind="stable")
        self._nodes, self._owners = np.concatenate(nodes)[ranking], np.concatenate(owners)[ranking]
        self._ends, self._saved = np.cumsum(whole_sizes[ranking]), np.cumsum(whole_counts[ranking], dtype=np.float64)

    @property
    def num_bytes(self) -> int:
        """Of all visited lists."""
        return int(self._ends[-1]) if self._ends.size else 0

    def misses(self, num_bytes: int) -> float:
        """Reads of lists that remain when the best ones within so many bytes are kept."""
        count = self._count(num_bytes)
        return float(self._saved[-1] - (self._saved[count - 1] if count else 0)) if self._saved.size else 0.0

    def keep(self, num_bytes: int) -> dict[EdgeType, np.ndarray]:
        """Edge type -> int64 nodes whose lists are kept, best first."""
        count = self._count(num_bytes)
        nodes, owners = self._nodes[:count], self._owners[:count]
        return {edge_type: nodes[owners == number] for number, edge_type in enumerate(self._edge_types)}

    def _count(self, num_bytes: int) -> int:
        return int(np.searchsorted(self._ends, num_bytes, side="right"))
