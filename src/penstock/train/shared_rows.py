"""Learnt rows of which each process of a training has a share: read where they are, and their gradients sent back there.

In: a table's share in each process, and ids. Out: rows; after the backward pass, of the rows of this process, the gradients of all.
Invariants: all processes call the same at the same point; their shares are, bit for bit, the rows that one would have that had all of them.
Source: DistDGLv2 5.4: rows lie with the owners of their nodes, are pulled for a batch, and their gradients are pushed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from penstock.inference.shelves import empty_rows
from penstock.train.division import Division, Question
from penstock.train.ranks import Ranks
from penstock.train.rows import Gradient, LearntRows

_COLLECTED_BYTES = 64 << 20
"""Of a table in memory where it is collected; a larger one is in a file. Of each there are four in a checkpoint."""

_SLICE_BYTES = 32 << 20
"""Of a table that is collected or spread, by each process at a time."""


class SharedRows:
    """A table as its processes have it.

    Args:
        table: this one's share.
        division: who has what.
        ranks: of the processes.
    """

    def __init__(self, table: LearntRows, division: Division, ranks: Ranks) -> None:
        self._table, self._division, self._ranks = table, division, ranks
        self._last: Question | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the whole table."""
        return self._division.num_nodes, self._table.weight.shape[1]

    def read(self, ids: Tensor) -> Tensor:
        """float[n, width]: the rows of int64[n] distinct nodes, as `LearntRows` gives them. Waits for the others."""
        self._last = Question(ids, self._division, self._ranks)
        return self._table(ids, self._last.answer(self._table.weight))

    def take_gradient(self, num_seeds: int, total: Tensor) -> Gradient | None:
        """Of the rows that all have read last, as far as this process has them; None where no loss came to any of the table. Waits for the
        others.

        Args:
            num_seeds: of this process's batch, over which its gradients are means.
            total: of all, as `Ranks.share_step` counts them, for the means over these.
        """
        gradient, ranks, last = self._table.take_gradient(), self._ranks, self._last
        assert last is not None, "rows are read before"
        has_any = ranks.tell([int(gradient is not None)] * ranks.num_ranks)
        if not any(has_any):
            return None
        counts = [0 if gradient is None else count for count in last.counts]
        their_counts = [count * had for count, had in zip(last.their_counts, has_any, strict=True)]
        sent = total.new_empty(0, self._table.weight.shape[1])
        if gradient is not None:
            sent = gradient[1].index_select(0, last.order.to(sent.device)).mul_(num_seeds)
        pushed = ranks.trade(sent, counts, their_counts).split(their_counts)
        asked = [rows[:count] for rows, count in zip(last.asked.to(sent.device).split(last.their_counts), their_counts, strict=True)]
        distinct, places = torch.cat(asked).unique(return_inverse=True)
        sums = total.new_zeros(distinct.numel(), sent.shape[1])
        for of_one, its_places in zip(pushed, places.split(their_counts), strict=True):
            sums.index_add_(0, its_places, of_one)  # one after the other: the same sums whoever has them
        return distinct, sums.div_(total)

    def collect(self, own: Tensor, folder: Path) -> Tensor:
        """float[num_nodes, width]: what stands beside the rows of each process, where number 0 is, in a file of the folder if it is large;
        float[0, width] elsewhere. Waits for the others; StoreError where the folder has no room."""
        ranks, shape = self._ranks, (self._division.num_nodes * self._ranks.is_first, own.shape[1])
        what = "a checkpoint keeps a table of learnt rows"
        whole = ranks.agree(lambda: empty_rows(shape, np.dtype(np.float32), folder, what, _COLLECTED_BYTES))
        nowhere = [0] * ranks.num_ranks
        for rows, counts, nodes in self._slices(own.shape[1]):
            got = ranks.trade(own[rows].cpu(), [counts[ranks.number], *nowhere[1:]], counts if ranks.is_first else nowhere)
            if ranks.is_first:
                for its_nodes, its in zip(nodes, got.split(counts), strict=True):
                    whole[its_nodes] = its.numpy()
        return torch.from_numpy(whole)

    def everywhere(self) -> Tensor:
        """float[num_nodes, width]: the whole table, in each process. Waits for the others."""
        own, division, num_ranks = self._table.weight.detach(), self._division, self._ranks.num_ranks
        whole = own.new_empty(self.shape)
        nodes = [torch.from_numpy(division.nodes_of(number)).to(own.device) for number in range(num_ranks)]
        for rows, counts, _ in self._slices(num_ranks * own.shape[1]):
            got = self._ranks.trade(own[rows].repeat(num_ranks, 1), [len(own[rows])] * num_ranks, counts)
            for its_nodes, its in zip(nodes, got.split(counts), strict=True):
                whole[its_nodes[rows]] = its
        return whole

    def spread(self, whole: Tensor | None) -> Tensor:
        """The other way round: of what number 0 gives, this process's share. Waits for the others."""
        ranks, width = self._ranks, self._table.weight.shape[1]
        own, nowhere = torch.empty(self._table.weight.shape), [0] * ranks.num_ranks
        for rows, counts, nodes in self._slices(width):
            sent = torch.empty(0, width) if whole is None else torch.cat([whole[torch.from_numpy(its_nodes)] for its_nodes in nodes])
            own[rows] = ranks.trade(sent, counts if ranks.is_first else nowhere, [counts[ranks.number], *nowhere[1:]])
        return own

    def _slices(self, width: int) -> Iterator[tuple[slice, list[int], list[np.ndarray]]]:
        """Some rows of each share at a time: which they are, how many each process has of them and, where number 0 is, of which nodes."""
        division, everyone = self._division, range(self._ranks.num_ranks)
        sizes = [division.num_rows(number) for number in everyone]
        nodes = [division.nodes_of(number) for number in everyone] if self._ranks.is_first else []
        step = max(_SLICE_BYTES // (4 * width), 1)
        for start in range(0, max(sizes), step):
            rows = slice(start, start + step)
            yield rows, [min(max(size - start, 0), step) for size in sizes], [its_nodes[rows] for its_nodes in nodes]
