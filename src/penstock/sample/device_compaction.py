"""Compaction tables on a device: they map the nodes of a batch to positions; compare `penstock.sample.compaction`. Imports Triton.

Kernels read and write a table (`penstock.kernels.relabel.gpu`); the host decides which numbers they write. Invariant: the numbers of a
batch are below those of all batches before. If a batch needs more numbers than it was given, or none are left, the table is emptied.
"""

from __future__ import annotations

import torch

from penstock.errors import UsageError
from penstock.kernels.relabel.gpu import EMPTY, FEWEST_KEYS, FREE

FIRST_SPAN = 1 << 20
"""Numbers that a batch gets at first; later, twice what the largest batch needed."""


class DevicePositions:
    """A table with an entry for every node of the graph.

    Attributes:
        numbers: int32[num_nodes].
        base: first number of the batch.
    """

    def __init__(self, num_nodes: int, device: torch.device) -> None:
        self.numbers = torch.full((num_nodes,), EMPTY, dtype=torch.int32, device=device)
        self.base, self._end, self._span = EMPTY, EMPTY, FIRST_SPAN

    @property
    def num_bytes(self) -> int:
        """Memory of the table."""
        return self.numbers.nbytes

    def begin(self, needed: int, num_nodes: int) -> int:
        """Forget the batch before, and begin one that needs `needed` numbers for `num_nodes` nodes; `reserve` adds more. Returns `base`."""
        self._end = self.base
        self.base = max(self._end - self._span, 0)
        self.reserve(needed, num_nodes)
        return self.base

    def reserve(self, needed: int, num_nodes: int) -> bool:
        """Ensure that the batch has `needed` numbers, and room for `num_nodes` nodes. Returns whether the table was emptied; then `base`
        has changed, and the batch's nodes must be added again. Raises UsageError if a batch needs too many numbers."""
        if needed > EMPTY:
            raise UsageError(f"a batch of {needed} nodes and edges is too large for a device, which takes {EMPTY}: take smaller batches")
        if not self._grow(num_nodes) and self.base + needed <= self._end:
            return False
        self._span = min(max(self._span, 2 * needed), EMPTY)
        self.numbers.fill_(EMPTY)
        self._end, self.base = EMPTY, EMPTY - self._span
        return True

    def _grow(self, num_nodes: int) -> bool:
        """Ensure room for `num_nodes` nodes. Returns whether the table was replaced."""
        return False


class DeviceTreePositions(DevicePositions):
    """A hash table with an entry for every node of every tree of a batch. It grows as batches grow.

    Attributes:
        keys: int64[a power of two], see `penstock.kernels.relabel.gpu.Trees`.
        numbers: int32, as long as `keys`.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(0, device)
        self.keys = torch.empty(0, dtype=torch.int64, device=device)

    @property
    def num_bytes(self) -> int:
        """Memory of the table."""
        return self.numbers.nbytes + self.keys.nbytes

    def _grow(self, num_nodes: int) -> bool:
        if 2 * num_nodes <= self.keys.numel():
            return False
        size, device = max(FEWEST_KEYS, 2 << (num_nodes - 1).bit_length()), self.keys.device
        keys = torch.full((size,), FREE, dtype=torch.int64, device=device)
        self.keys, self.numbers = keys, torch.full((size,), EMPTY, dtype=torch.int32, device=device)
        return True
