"""Uploading rows of a host tier to a device: read into pinned memory, then copied over the link.

For tiers that no device can read directly: disks, slow tiers, maps read by threads. In: row numbers. Out: the rows, in device memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.store.tiers.pinned import DeviceRead, to_device
from penstock.store.tiers.tier import Read, Tier, TierStats

if TYPE_CHECKING:
    import torch


class UploadTier:
    """Rows of another tier, delivered to a device.

    Args:
        slow: the tier that has the rows.
        reader: the device, from `tensor_device`.
    """

    def __init__(self, slow: Tier, reader: torch.device) -> None:
        self.name = f"upload of {slow.name}"
        self.device = slow.device
        self.num_rows = slow.num_rows
        self.row_bytes = slow.row_bytes
        self.slow, self.reader, self.stats = slow, reader, TierStats()

    @property
    def resident_bytes(self) -> int:
        """Memory of the tier below."""
        return self.slow.resident_bytes

    def submit(self, rows: np.ndarray, outs: Sequence[Any], places: np.ndarray) -> Read:
        """Begin to read; `wait` copies the rows to the device, on the stream that is current then."""
        import torch

        is_pinned = self.reader.type == "cuda"  # torch reuses this memory once the copy from it is over
        staged = [torch.empty(rows.size * width, dtype=torch.uint8, device="cpu", pin_memory=is_pinned) for width in self.row_bytes]
        read = self.slow.submit(rows, [one.numpy() for one in staged], np.arange(rows.size))
        return _Upload(self, read, staged, outs, places)

    def upload(self, staged: Sequence[torch.Tensor], outs: Sequence[Any], places: np.ndarray) -> None:
        """Copy rows to their places on the device."""
        from penstock.kernels.move_rows import gpu

        started = time.perf_counter()
        taken, given = to_device(np.arange(places.size), self.reader), to_device(places, self.reader)
        for source, out, row_bytes in zip(staged, outs, self.row_bytes, strict=True):
            gpu.move_rows(source.to(self.reader, non_blocking=True), taken, out, given, row_bytes)
        self.stats.add(places.size, places.size * sum(self.row_bytes), time.perf_counter() - started)


class _Upload:
    """A read under way."""

    def __init__(self, tier: UploadTier, read: Read, staged: list[torch.Tensor], outs: Sequence[Any], places: np.ndarray) -> None:
        self._tier = tier
        self._read = read
        self._staged = staged
        self._outs = outs
        self._places = places
        self.since = read.since

    def wait(self) -> int:
        """Complete the read, and copy the rows to the device."""
        moved = self._read.wait()
        self._tier.upload(self._staged, self._outs, self._places)
        DeviceRead(self._tier.reader, moved).wait()
        return moved
