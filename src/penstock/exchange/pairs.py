"""Whether pairs of nodes are edges, answered by those who have the lists of their targets.

In: pairs, numbered target * number of sources + source. Out: a byte of each. Invariant: as if the list of the target were read here. So
what travels is 8 bytes of a pair and one back, however long its list is, which is not read whole where it is long (see
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
"""That have numbers."""


@dataclass(frozen=True, slots=True)
class PairShares:
    """Pairs of nodes: each is where its target is.

    Attributes:
        book: of the targets.
        num_sources: that there are.
    """

    book: Book
    num_sources: int

    @property
    def num_rows(self) -> int:
        """Pairs."""
        return self.book.num_rows * self.num_sources

    def owners(self, rows: np.ndarray) -> np.ndarray:
        """The part that has the list of each pair's target."""
        return self.book.owners(rows // self.num_sources)

    def local(self, rows: np.ndarray, part: int) -> np.ndarray:
        """The number of each pair among those of the part."""
        targets, sources = np.divmod(rows, self.num_sources)
        return self.book.local(targets, part) * self.num_sources + sources


class PartLists:
    """The lists of a part, fit to be looked up once somebody does.

    Args:
        list_ptr: int64[nodes + 1], where they begin. neighbors: int[num_edges]. num_sources: nodes that these may be.
    """

    def __init__(self, list_ptr: np.ndarray, neighbors: np.ndarray, num_sources: int) -> None:
        self._lists, self._guard, self.num_sources = (list_ptr, neighbors), Guard(), num_sources
        self.num_pairs = (list_ptr.size - 1) * num_sources
        self._adjacency: Adjacency | None = None

    def adjacency(self) -> Adjacency:
        """BudgetError where long ones do not fit into memory a second time."""
        with self._guard.lock:
            if self._adjacency is None:
                self._adjacency = make_adjacency(*self._lists)
            return self._adjacency


class PairTier(ReadByHost):
    """Pairs of this part's nodes with any: a row is a byte, 1 where there is an edge."""

    name, resident_bytes = "own part", 0

    def __init__(self, lists: PartLists) -> None:
        self._lists, self.num_rows, self.row_bytes, self.stats = lists, lists.num_pairs, (1,), TierStats()

    def _move(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> None:
        found = np.empty(rows.size, np.uint8)
        targets, sources = np.divmod(rows, self._lists.num_sources)
        cpu.are_links(self._lists.adjacency(), sources, targets, found)
        outs[0][places] = found
