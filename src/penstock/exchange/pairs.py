"""Whether pairs of nodes are edges, answered by the process that has the list of their target.

In: pairs, numbered target * number of sources + source. Out: a byte per pair. Invariant: the same as if the target's list were read here.
Only 8 bytes per pair are sent and one is returned, however long the list is; long lists are not read as a whole (see
`penstock.sample.negatives`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.kernels.links import cpu
from penstock.partition import Book
from penstock.sample.negatives import Adjacency, make_adjacency
from penstock.store.tiers import TierStats
from penstock.store.tiers.host import ReadByHost
from penstock.threads import Guard

MOST_PAIRS = 1 << 63
"""Most pairs that can be numbered in int64."""


@dataclass(frozen=True, slots=True)
class PairShares:
    """Which part answers for which pairs of nodes: the one that owns the target.

    Attributes:
        book: of the targets.
        num_sources: number of source nodes.
    """

    book: Book
    num_sources: int

    @property
    def num_rows(self) -> int:
        """Number of pairs."""
        return self.book.num_rows * self.num_sources

    def owners(self, rows: np.ndarray) -> np.ndarray:
        """Return the part that has the list of each pair's target."""
        return self.book.owners(rows // self.num_sources)

    def local(self, rows: np.ndarray, part: int) -> np.ndarray:
        """Return the number of each pair among those of the part."""
        targets, sources = np.divmod(rows, self.num_sources)
        return self.book.local(targets, part) * self.num_sources + sources


class PartLists:
    """The lists of a part, prepared for looking up pairs at the first request.

    Args:
        list_ptr: int64[nodes + 1], where lists begin. neighbors: int[num_edges]. num_sources: number of source nodes.
    """

    def __init__(self, list_ptr: np.ndarray, neighbors: np.ndarray, num_sources: int) -> None:
        self._lists, self._guard, self.num_sources = (list_ptr, neighbors), Guard(), num_sources
        self.num_pairs = (list_ptr.size - 1) * num_sources
        self._adjacency: Adjacency | None = None

    def adjacency(self) -> Adjacency:
        """Return the lists for looking up pairs; BudgetError if there is no memory for a second copy of long lists."""
        with self._guard.lock:
            if self._adjacency is None:
                self._adjacency = make_adjacency(*self._lists)
            return self._adjacency


class PairTier(ReadByHost):
    """A tier of pairs whose target is in this part: a row is a byte, 1 if there is an edge."""

    name, resident_bytes = "own part", 0

    def __init__(self, lists: PartLists) -> None:
        self._lists = lists
        self.num_rows = lists.num_pairs
        self.row_bytes: tuple[int, ...] = (1,)
        self.stats = TierStats()

    def _move(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> None:
        found = np.empty(rows.size, np.uint8)
        targets, sources = np.divmod(rows, self._lists.num_sources)
        cpu.are_links(self._lists.adjacency(), sources, targets, found)
        outs[0][places] = found
