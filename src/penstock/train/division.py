"""Rows of all nodes, divided among the processes of a training: who has which, and how the others come by them.

In: ids. Out: whose row each is, and the rows, from everyone who has some. Invariant: each row is with one process; those who ask are
answered at a point where all ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from penstock.partition.book import Book
from penstock.train.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Division:
    """Which process has the row of which node: one of those that have its part, which take turns; without parts, of all.

    Attributes:
        num_nodes: of the table.
        numbers: of the processes, by their ranks in the partition: those of part p have the ranks r with r mod num_parts = p.
        book: which part owns which node; None: all are of one part.
    """

    num_nodes: int
    numbers: Sequence[int]
    book: Book | None = None

    @property
    def _num_parts(self) -> int:
        return 1 if self.book is None else self.book.num_parts

    @property
    def _num_turns(self) -> int:
        return len(self.numbers) // self._num_parts

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return int64[n] the numbers of the processes that have int64[n] nodes, and int64[n] as which row each."""
        parts, rows = np.zeros_like(ids), ids
        if self.book is not None:
            parts = self.book.owners(ids)
            rows = self.book.places[ids] - self.book.starts[parts]
        return np.array(self.numbers)[parts + self._num_parts * (rows % self._num_turns)], rows // self._num_turns

    def num_rows(self, number: int) -> int:
        """How many a process has."""
        turn, part = divmod(self.numbers.index(number), self._num_parts)
        of_part = self.num_nodes if self.book is None else self.book.size_of(part)
        return len(range(turn, of_part, self._num_turns))

    def nodes_of(self, number: int) -> np.ndarray:
        """int64[n]: whose rows a process has, in their order; they ascend."""
        turn, part = divmod(self.numbers.index(number), self._num_parts)
        if self.book is None:
            return np.arange(turn, self.num_nodes, self._num_turns)
        first, last = self.book.starts[part : part + 2]
        return np.flatnonzero((self.book.places >= first) & (self.book.places < last))[turn :: self._num_turns]


class Question:
    """Which rows this process wants of whom, and which the others want of it. Waits for them.

    Args:
        ids: int64[n], distinct nodes whose rows are wanted; any number, none too.
        division: who has what.
        ranks: of the processes.
    Attributes:
        order: int64[n]: what puts the nodes in the order of the processes that have them; counts: how many each of these has.
        asked: int64[m]: rows that are wanted of this one, in the order of those who want them; their_counts: how many each does.
    """

    def __init__(self, ids: Tensor, division: Division, ranks: Ranks) -> None:
        owners, rows = division.find(ids.cpu().numpy())
        self.order = torch.from_numpy(owners.argsort(kind="stable"))
        self.counts = np.bincount(owners, minlength=ranks.num_ranks).tolist()
        self.their_counts = ranks.tell(self.counts)
        self.asked = ranks.trade(torch.from_numpy(rows)[self.order], self.counts, self.their_counts)
        self._ranks = ranks

    def answer(self, own: Tensor) -> Tensor:
        """[n, ...]: the rows of the nodes, in their order, of a table of which `own` is this process's share. Waits for the others."""
        answers = self._ranks.trade(own.index_select(0, self.asked.to(own.device)), self.their_counts, self.counts)
        found = torch.empty_like(answers)
        found[self.order.to(own.device)] = answers
        return found
