"""Rows in a device's own memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import BudgetError
from penstock.store.budget import format_bytes
from penstock.store.tiers.pinned import DeviceRead, ReadByDevice, to_device
from penstock.store.tiers.tier import Deferred, Read, TierStats

if TYPE_CHECKING:
    import torch


class DeviceTier(ReadByDevice):
    """Rows on a device, allocated once.

    Args:
        num_rows, row_bytes: of each field; the contents are undefined at first.
        reader: the device, from `tensor_device`.
        name: for messages and reports.
    """

    def __init__(self, num_rows: int, row_bytes: Sequence[int], reader: torch.device, name: str = "device") -> None:
        import torch

        self.name = name
        self.reader = reader
        self.device = str(reader)
        self.stats = TierStats()
        self.num_rows, self.row_bytes, self.max_programs = num_rows, tuple(row_bytes), None
        self.resident_bytes = num_rows * sum(self.row_bytes)
        try:
            self.buffers = [torch.empty(num_rows * width, dtype=torch.uint8, device=reader) for width in self.row_bytes]
        except torch.OutOfMemoryError as error:
            raise BudgetError(
                f"{name}: {format_bytes(self.resident_bytes)} of rows do not fit on {reader}; give a smaller device_cache"
            ) from error

    def submit(self, rows: Any, outs: Sequence[Any], places: np.ndarray | None) -> Read:
        """Begin to read. The work is done in `wait`, as in host memory: rows that are replaced before then are read with their new
        content."""
        beneath, asked_before = super().submit, DeviceRead(self.reader, 0)

        def read() -> int:
            asked_before.wait()
            return beneath(rows, outs, places).wait()

        return Deferred(read)

    @classmethod
    def over(cls, buffers: Sequence[torch.Tensor], row_bytes: Sequence[int], reader: torch.device, name: str) -> DeviceTier:
        """Return a tier over existing rows, which may be in the memory of another device that `reader` can access."""
        num_rows = next((buffer.numel() // width for buffer, width in zip(buffers, row_bytes, strict=True) if width), 0)
        tier = cls(0, row_bytes, reader, name)
        tier.num_rows, tier.buffers = num_rows, list(buffers)
        return tier

    def write(self, rows: Any, sources: Sequence[torch.Tensor], source_rows: Any) -> None:
        """Replace rows, after all earlier work of the current stream, which includes its reads of these rows.

        Args:
            rows: int32 or int64[n], distinct; an array, or a tensor on the device. Negative entries are skipped.
            sources: per field uint8, on the device or readable by it.
            source_rows: int32 or int64[n], array or tensor likewise: the row of `sources` for each. None: 0, 1, ...
        """
        from penstock.kernels.move_rows import gpu

        given, taken = (to_device(one, self.reader) if isinstance(one, np.ndarray) else one for one in (rows, source_rows))
        for table, source, row_bytes in zip(self.buffers, sources, self.row_bytes, strict=True):
            gpu.move_rows(source, taken, table, given, row_bytes, device=self.reader)
