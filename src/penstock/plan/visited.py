"""Chooses the neighbour lists to keep within a number of bytes, by the visits in a short profile, where tables of floats would not fit.

In: numbers of visits; most are 0. Out: for any number of bytes, the reads that it saves, and the lists to keep. Only visited lists are
ranked, so memory is linear in the profile, not in the graph. Other lists are taken only if all visited ones fit.

Most lists that were visited once in a few batches are not visited in the next ones, so a count is not what keeping the list saves. Turing's
estimate (Good 1953) is better: with N_k the number of lists that were visited k times, such a list will be visited (k + 1) * N_(k+1) / N_k
times in as many batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.cache.hotness import blocks
from penstock.records import CSC, EdgeType, index_dtype

FEW = 30
"""From this many lists with the same count on, the estimate is better than the count itself."""
OTHER_BYTES = 24
"""Memory of a kept list that was not visited, beside its neighbours: its node, and its place."""


class VisitedLists:
    """The visited lists of all edge types, best first by expected visits per byte (DUCATI's density).

    Args:
        visits: edge type -> uint8[num_dst], number of reads of each list.
        adjacency: edge type -> lists; gives their lengths.
    Cost: about 14 to 20 bytes a visited list, and twice that while they are ranked.
    """

    def __init__(self, visits: Mapping[EdgeType, np.ndarray], adjacency: Mapping[EdgeType, CSC]) -> None:
        self._adjacency, self._visits = adjacency, visits
        nodes = []
        sizes = []
        counts = []
        owners = []
        owner_dtype = np.min_scalar_type(len(adjacency))
        for number, (edge_type, csc) in enumerate(adjacency.items()):
            dtype = index_dtype(csc.num_dst)
            for block in blocks(csc.num_dst):
                visited = block.start + np.flatnonzero(visits[edge_type][block])
                lengths = csc.degrees(visited)
                visited, lengths = visited[lengths > 0], lengths[lengths > 0]
                nodes.append(visited.astype(dtype))
                sizes.append(lengths * csc.indices.dtype.itemsize)
                counts.append(visits[edge_type][visited])
                owners.append(np.full(visited.size, number, owner_dtype))
        whole_sizes, whole_counts = _join(sizes, np.int64), _join(counts, np.uint8)
        worth = reliable(whole_counts)[whole_counts]
        ranking = np.argsort(-(worth / whole_sizes).astype(np.float32), kind="stable")
        self._ends = np.cumsum(whole_sizes[ranking])
        del whole_sizes
        self._num_visits = float(whole_counts.sum(dtype=np.int64))
        self._saved = np.cumsum(worth[ranking], dtype=np.float64).astype(np.float32)
        self._nodes, self._owners = _join(nodes, np.int32)[ranking], _join(owners, owner_dtype)[ranking]

    @property
    def num_bytes(self) -> int:
        """Bytes of all visited lists."""
        return int(self._ends[-1]) if self._ends.size else 0

    def misses(self, num_bytes: int) -> float:
        """Expected number of misses, in as many batches as the profile had, if the best lists within `num_bytes` are kept."""
        count = self._count(num_bytes)
        return self._num_visits - (float(self._saved[count - 1]) if count else 0.0)

    def keep(self, num_bytes: int) -> dict[EdgeType, np.ndarray]:
        """Edge type -> ids of nodes whose lists are kept within `num_bytes`, best first. If all visited lists fit, others follow in the
        order of ids."""
        count = self._count(num_bytes)
        nodes, owners = self._nodes[:count], self._owners[:count]
        kept = {edge_type: nodes[owners == number] for number, edge_type in enumerate(self._adjacency)}
        if count == self._nodes.size:
            left = num_bytes - self.num_bytes
            for edge_type, best in kept.items():
                others, left = self._others(edge_type, left)
                kept[edge_type] = np.concatenate([best, others])
        return kept

    def _others(self, edge_type: EdgeType, num_bytes: int) -> tuple[np.ndarray, int]:
        """Return (ids of nodes whose lists were not visited, as many as fit into `num_bytes`; bytes left)."""
        csc, pieces = self._adjacency[edge_type], []
        for block in blocks(csc.num_dst):
            others = block.start + np.flatnonzero(self._visits[edge_type][block] == 0)
            lengths = csc.degrees(others)
            others, lengths = others[lengths > 0], lengths[lengths > 0]
            ends = np.cumsum(lengths * csc.indices.dtype.itemsize + OTHER_BYTES)
            count = int(np.searchsorted(ends, num_bytes, side="right"))
            pieces.append(others[:count].astype(index_dtype(csc.num_dst)))
            num_bytes -= int(ends[count - 1]) if count else 0
            if count < others.size:
                break
        return _join(pieces, index_dtype(csc.num_dst)), num_bytes

    def _count(self, num_bytes: int) -> int:
        return int(np.searchsorted(self._ends, num_bytes, side="right"))


def reliable(counts: np.ndarray) -> np.ndarray:
    """Return float32[256]: expected visits, in as many more batches, of a list that was visited 0, 1, ... times; never more than that.

    Args:
        counts: uint8[n], visits of each visited list.
    """
    number = np.bincount(counts, minlength=257).astype(np.float64)  # number of lists with 0, 1, ... visits
    had = np.arange(256, dtype=np.float64)
    expected = np.where(number[:-1] >= FEW, (had + 1) * number[1:] / np.maximum(number[:-1], 1), had)
    return np.maximum.accumulate(np.minimum(expected, had)).astype(np.float32)


def _join(pieces: list[np.ndarray], dtype: Any) -> np.ndarray:
    """Join the pieces into one array, and free them."""
    whole = np.concatenate(pieces) if pieces else np.empty(0, dtype)
    pieces.clear()
    return whole
