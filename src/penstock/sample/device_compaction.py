"""A table on a device that gives each node of a batch its position; compare `penstock.sample.compaction`. Imports Triton.

Kernels read and write it (`penstock.kernels.relabel.gpu`); the host decides which numbers they use. Invariant: the numbers of a batch lie
below those of all batches before. Where it needs more than it was given, or none are left, the table is filled anew.
"""

from __future__ import annotations

import torch

from penstock.errors import UsageError
from penstock.kernels.relabel.gpu import EMPTY, FEWEST_KEYS, FREE

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

    def begin(self, needed: int, num_nodes: int) -> int:
        """Forget the batch before. Returns `base` of a batch that needs so many numbers for so many nodes, or more, see `reserve`."""
        self._end = self.base
        self.base = max(self._end - self._span, 0)
        self.reserve(needed, num_nodes)
        return self.base

    def reserve(self, needed: int, num_nodes: int) -> bool:
        """See that the batch has so many numbers, and room for so many nodes. Returns whether the table is empty now, and `base` another:
        the batch's nodes have to be added again."""
        if needed > EMPTY:
            raise UsageError(f"a batch of {needed} nodes and edges is too large for a device, which takes {EMPTY}: take smaller batches")
        if not self._grow(num_nodes) and self.base + needed <= self._end:
            return False
        self._span = min(max(self._span, 2 * needed), EMPTY)
        self.numbers.fill_(EMPTY)
        self._end, self.base = EMPTY, EMPTY - self._span
        return True

    def _grow(self, num_nodes: int) -> bool:
        """See that there is room for so many nodes. Returns whether the table is another one."""
        return False


class DeviceTreePositions(DevicePositions):
    """A position for every node of every tree of a batch: as many as batches need.

    Attributes:
        numbers: int32[as `keys`]. keys: int64[a power of two], see `penstock.kernels.relabel.gpu.Trees`.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(0, device)
        self.keys = torch.empty(0, dtype=torch.int64, device=device)

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return self.numbers.nbytes + self.keys.nbytes

    def _grow(self, num_nodes: int) -> bool:
        if 2 * num_nodes <= self.keys.numel():
            return False
        size, device = max(FEWEST_KEYS, 2 << (num_nodes - 1).bit_length()), self.keys.device
        keys = torch.full((size,), FREE, dtype=torch.int64, device=device)
        self.keys, self.numbers = keys, torch.full((size,), EMPTY, dtype=torch.int32, device=device)
        return True
