"""Which neighbour lists to keep within a number of bytes, by the visits of a short profile, where tables of floats would not fit.

In: counts of visits, of which most are 0. Out: reads that are saved by each number of bytes, and the lists kept. Only visited lists are
looked at: memory follows the profile, not the graph.

What was visited once in a few batches will mostly not be visited in the next ones, so counts are not what keeping a list saves. Turing's
estimate of that (Good 1953): lists that were visited k times will be visited as often as those with k + 1 visits were, each of which had k
beside any one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.cache.hotness import blocks
from penstock.records import CSC, EdgeType, index_dtype

FEW = 30
"""Lists with the same count, from which on the estimate is better than the count itself."""


class VisitedLists:
    """The visited lists of all edge types, best first by visits per byte (DUCATI's density).

    Args:
        visits: edge type -> uint[num_dst], how often anything is read of each list.
        adjacency: their lengths.
    About 14 to 20 bytes a visited list, and twice that while they are ranked.
    """

    def __init__(self, visits: Mapping[EdgeType, np.ndarray], adjacency: Mapping[EdgeType, CSC]) -> None:
        self._edge_types = list(adjacency)
        nodes, sizes, counts, owners = [], [], [], []
        for number, (edge_type, csc) in enumerate(adjacency.items()):
            dtype = index_dtype(csc.num_dst)
            for block in blocks(csc.num_dst):
                visited = block.start + np.flatnonzero(visits[edge_type][block])
                lengths = csc.degrees(visited)
                visited, lengths = visited[lengths > 0], lengths[lengths > 0]
                nodes.append(visited.astype(dtype))
                sizes.append(lengths * csc.indices.dtype.itemsize)
                counts.append(visits[edge_type][visited])
                owners.append(np.full(visited.size, number, np.uint8))
        whole_sizes, whole_counts = _join(sizes, np.int64), _join(counts, np.uint8)
        worth = reliable(whole_counts)[whole_counts]
        ranking = np.argsort(-(worth / whole_sizes).astype(np.float32), kind="stable")
        self._ends = np.cumsum(whole_sizes[ranking])
        del whole_sizes
        self._num_visits = float(whole_counts.sum(dtype=np.int64))
        self._saved = np.cumsum(worth[ranking], dtype=np.float64).astype(np.float32)
        self._nodes, self._owners = _join(nodes, np.int32)[ranking], _join(owners, np.uint8)[ranking]

    @property
    def num_bytes(self) -> int:
        """Of all visited lists."""
        return int(self._ends[-1]) if self._ends.size else 0

    def misses(self, num_bytes: int) -> float:
        """Reads of lists that remain when the best ones within so many bytes are kept, in as many batches as the profile had."""
        count = self._count(num_bytes)
        return self._num_visits - (float(self._saved[count - 1]) if count else 0.0)

    def keep(self, num_bytes: int) -> dict[EdgeType, np.ndarray]:
        """Edge type -> nodes whose lists are kept, best first."""
        count = self._count(num_bytes)
        nodes, owners = self._nodes[:count], self._owners[:count]
        return {edge_type: nodes[owners == number] for number, edge_type in enumerate(self._edge_types)}

    def _count(self, num_bytes: int) -> int:
        return int(np.searchsorted(self._ends, num_bytes, side="right"))


def reliable(counts: np.ndarray) -> np.ndarray:
    """Return float32[256]: visits to expect of a list that was visited 0, 1, ... times, in as many batches more; never more than it had.

    Args:
        counts: uint8[n], visits of each list that was visited at all.
    """
    number = np.bincount(counts, minlength=257).astype(np.float64)  # of lists, by their visits
    had = np.arange(256, dtype=np.float64)
    expected = np.where(number[:-1] >= FEW, (had + 1) * number[1:] / np.maximum(number[:-1], 1), had)
    return np.maximum.accumulate(np.minimum(expected, had)).astype(np.float32)


def _join(pieces: list[np.ndarray], dtype: Any) -> np.ndarray:
    """One array of the pieces, which are let go."""
    whole = np.concatenate(pieces) if pieces else np.empty(0, dtype)
    pieces.clear()
    return whole
