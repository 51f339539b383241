"""A table on a device that gives each node of a batch its position; compare `penstock.sample.compaction`. Imports Triton.

Kernels read and write it (`penstock.kernels.relabel.gpu`); the host decides which numbers they use. Invariant: the numbers of a batch lie
below those of all batches before. Where it needs more than it was given, or none are left, the table is filled anew.
"""

from __future__ import annotations

import torch

from penstock.errors import UsageError
from penstock.kernels.relabel.gpu import EMPTY

FIRST_SPAN = 1 << 20
"""Numbers that a batch is given at first; later twice what the largest needed."""


class DevicePositions:
    """A position for every node of the graph.

    Attributes:
        numbers: int32[num_nodes].
        base: the first number of the batch.
    """

    def __init__(self, num_nodes: int, device: torch.device) -> None:
        self.numbers = torch.full((num_nodes,), EMPTY, dtype=torch.int32, device=device)
        self.base, self._end, self._span = EMPTY, EMPTY, FIRST_SPAN

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return self.numbers.nbytes

    def begin(self, needed: int) -> int:
        """Forget the batch before. Returns `base` of a batch that needs so many numbers, or more, see `reserve`."""
        self._end = self.base
        self.base = max(self._end - self._span, 0)
        self.reserve(needed)
        return self.base

    def reserve(self, needed: int) -> bool:
        """See that the batch has so many numbers. Returns whether the table is empty now, and `base` another: the batch's nodes have to be
        added again."""
        if self.base + needed <= self._end:
            return False
        if needed > EMPTY:
            raise UsageError(f"a batch of {needed} nodes and edges is too large for a device, which takes {EMPTY}: take smaller batches")
        self._span = min(max(self._span, 2 * needed), EMPTY)
        self.numbers.fill_(EMPTY)
        self._end, self.base = EMPTY, EMPTY - self._span
        return True
