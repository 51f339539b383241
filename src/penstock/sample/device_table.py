"""A table on a device that gives each node of a batch its position; compare `penstock.sample.compaction`. Imports Triton.

In: global ids. Out: their positions, new ids appended to the batch's list. Invariant: see `penstock.kernels.relabel.gpu`: the numbers of
a batch lie below those of all batches before. Where it needs more than it was given, or none are left, the table is filled anew.
"""

from __future__ import annotations

import torch

from penstock.errors import UsageError
from penstock.kernels.relabel import gpu

FIRST_SPAN = 1 << 20
"""Numbers that a batch is given at first; later twice what the largest needed."""


class DeviceTable:
    """A position for every node of the graph: int32[num_nodes]."""

    def __init__(self, num_nodes: int, device: torch.device) -> None:
        self._table = torch.full((num_nodes,), gpu.EMPTY, dtype=torch.int32, device=device)
        self._base, self._end, self._span = gpu.EMPTY, gpu.EMPTY, FIRST_SPAN

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return self._table.nbytes

    def add_seeds(self, ids: torch.Tensor, nodes: torch.Tensor) -> None:
        """Start a batch: nodes[:n] = ids, forget the batch before."""
        self._end = self._base
        self._base = max(self._end - self._span, 0)
        self._reserve(ids.numel())
        gpu.add_seeds(ids, self._table, self._base, nodes)

    def relabel(self, ids: torch.Tensor, known: torch.Tensor, most_known: int, nodes: torch.Tensor, positions: torch.Tensor) -> None:
        """Map ids to positions, append new ones at nodes[known[0]:], and add their number to all of `known`; `ids` is not empty.

        Args:
            known: int64[k] on the device; the host knows of known[0] that it is at most `most_known`.
        """
        if self._reserve(most_known + ids.numel()):
            seen = nodes[: int(known[0])]
            gpu.add_seeds(seen, self._table, self._base, seen)
        first, ranks = torch.empty((2, ids.numel()), dtype=torch.int32, device=ids.device)
        gpu.relabel(ids, self._table, self._base, known, nodes, positions, first, ranks)
        known += ranks[-1:]

    def _reserve(self, needed: int) -> bool:
        """See that the batch has so many numbers. Returns whether the table is empty now, the nodes of this batch so far included."""
        if self._base + needed <= self._end:
            return False
        if needed > gpu.EMPTY:
            raise UsageError(
                f"a batch of {needed} nodes and edges is too large for a device, which takes {gpu.EMPTY}: take smaller batches"
            )
        self._span = min(max(self._span, 2 * needed), gpu.EMPTY)
        self._table.fill_(gpu.EMPTY)
        self._end, self._base = gpu.EMPTY, gpu.EMPTY - self._span
        return True
