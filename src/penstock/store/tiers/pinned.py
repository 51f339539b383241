"""Rows in host memory that a device reads directly (zero-copy), see `penstock.store.tiers.pin`.

In: arrays, also mapped files. Out: rows on the device, read over the link. Invariant: rows equal those of the arrays; the device touches
only rows that were asked for, and writes nothing. Source: UVA.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.store.budget import format_bytes
from penstock.store.tiers.disk_files import RowFile
from penstock.store.tiers.grid import programs_over_link
from penstock.store.tiers.host import check_arrays, row_bytes_of
from penstock.store.tiers.pin import pin
from penstock.store.tiers.tier import Read, TierStats, check_rows

if TYPE_CHECKING:
    import torch


REACH_BYTES = 512 << 20
"""Largest part of a table that a device reads at random as fast as in order, with other tables in use beside it."""
LEAST_ROWS = 1 << 10
"""Fewest rows that are worth ordering."""
PIECE_BYTES = 16 << 20
"""Most host memory in use while an array is copied to a device."""


class DeviceRead:
    """A read that a device does in the order of its stream. After `wait`, later work of the waiting thread on the device comes after it;
    the CPU does not wait."""

    since = None

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        self._num_bytes, self._event, self._device = num_bytes, None, device
        if device.type == "cuda":
            import torch

            self._event = torch.cuda.current_stream(device.index).record_event()

    def wait(self) -> int:
        """Complete the read."""
        if self._event is not None:
            import torch

            torch.cuda.current_stream(self._device.index).wait_event(self._event)
        return self._num_bytes


class ReadByDevice:
    """Base of tiers whose rows a device copies: `outs` are uint8 tensors on it. Subclasses set `buffers` and the attributes of a tier.

    Attributes:
        reader: the device whose kernels copy the rows.
        buffers: per field uint8[num_rows * row_bytes], readable by it.
        max_programs: most programs of a read over the link; None: rows are in the device's own memory.
        takes_device_rows: row numbers may be a tensor on the device.
    """

    takes_device_rows = True
    name: str
    num_rows: int
    row_bytes: tuple[int, ...]
    reader: torch.device
    buffers: list[torch.Tensor]
    max_programs: int | None
    stats: TierStats

    def order_of(self, rows: torch.Tensor, num_far: int | None = None) -> torch.Tensor | None:
        """Return the order in which to read rows, int32[n] on the device; None: any order. `num_far`: about how many of them this tier
        reads; None: all."""

    def submit(self, rows: Any, outs: Sequence[Any], places: np.ndarray | None) -> Read:
        """Begin to read, on the stream that is current on this thread. `rows`: see `rows_on`; `places`: None for 0, 1, ..."""
        from penstock.kernels.gather_rows.gpu import gather_rows
        from penstock.kernels.move_rows.gpu import move_rows

        started = time.perf_counter()
        taken, given = rows_on(self, rows), places_on(self.reader, places)
        num_rows, how = taken.numel(), {"order": self.order_of(taken), "max_programs": self.max_programs}
        for table, out, row_bytes in zip(self.buffers, outs, self.row_bytes, strict=True):
            if given is None:
                gather_rows(table, row_bytes, taken, out[: num_rows * row_bytes], **how)
            else:
                move_rows(table, taken, out, given, row_bytes, **how)
        num_bytes = num_rows * sum(self.row_bytes)
        self.stats.add(num_rows, num_bytes, time.perf_counter() - started)
        return DeviceRead(self.reader, num_bytes)


class PinnedTier(ReadByDevice):
    """Arrays in host memory that a device reads over the link.

    Args:
        arrays: per field [num_rows, ...], C-contiguous, equal num_rows; mapped files too.
        reader: the device, from `tensor_device`.
        name: for messages and reports.
        max_programs: most programs of a read; None: as many as saturate the link, see `penstock.store.tiers.grid`.
        small_bytes: fields of one number per row, such as labels, are copied to the device, up to this many bytes in all: over the link,
            each number would be a request of its own.
    Attributes:
        how: in a few words, how each field became readable.
        resident_bytes: memory of copies. mapped_bytes: maps that are registered in place, whose pages must stay in memory.
        device_bytes: fields that were copied to the device.
    """

    device = "cpu"
    max_programs: int

    def __init__(
        self,
        arrays: Sequence[np.ndarray],
        reader: torch.device,
        name: str = "pinned",
        *,
        max_programs: int | None = None,
        small_bytes: int = 0,
    ) -> None:
        check_arrays(name, arrays)
        self.name = name
        self.reader = reader
        self.num_rows = len(arrays[0])
        self.stats = TierStats()
        self.row_bytes = tuple(row_bytes_of(array) for array in arrays)
        self.buffers, self.how = [], []
        self.resident_bytes = self.mapped_bytes = self.device_bytes = self._most_bytes = 0
        for array in arrays:
            if array.ndim == 1 and self.device_bytes + array.nbytes <= small_bytes:
                self.buffers.append(copy_to_device(array.reshape(-1).view(np.uint8), reader))
                self.how.append("single numbers in its memory")
                self.device_bytes += array.nbytes
                continue
            one = pin(array, reader, name)
            self.buffers.append(one.tensor)
            self.how.append(one.how)
            self.resident_bytes += one.copied_bytes
            self.mapped_bytes += 0 if one.copied_bytes or RowFile.behind(array) is None else array.nbytes
            self._most_bytes = max(self._most_bytes, array.nbytes)
        self.max_programs = programs_over_link(reader) if max_programs is None else max_programs

    def order_of(self, rows: torch.Tensor, num_far: int | None = None) -> torch.Tensor | None:
        """Return an order region by region, if the device cannot cache the addresses of all pages of the rows
        (`penstock.kernels.region_order`)."""
        if (rows.numel() if num_far is None else num_far) < LEAST_ROWS or self._most_bytes <= REACH_BYTES:
            return None
        import torch

        from penstock.kernels.region_order import gpu

        order = torch.empty(rows.numel(), dtype=torch.int32, device=self.reader)
        gpu.order_by_region(rows, self.num_rows, order, gpu.make_counts(self.reader))
        return order

    def describe(self) -> str:
        """Describe how the rows are read, in a few words."""
        return f"{format_bytes(self.num_rows * sum(self.row_bytes))} read by {self.reader}: {'; '.join(dict.fromkeys(self.how))}"


def rows_on(tier: Any, rows: Any) -> torch.Tensor:
    """Return row numbers as a tensor on the device of a tier. Arrays are checked; tensors are on the device already, drawn there."""
    if not isinstance(rows, np.ndarray):
        return rows
    check_rows(tier, rows)
    return to_device(rows, tier.reader)


def places_on(device: torch.device, places: Any) -> torch.Tensor | None:
    """Return places as a tensor on a device; None if they are 0, 1, 2, ..."""
    if places is None or not isinstance(places, np.ndarray):
        return places
    return None if are_in_order(places) else to_device(places, device)


def are_in_order(places: np.ndarray) -> bool:
    """Whether places are 0, 1, 2, ..."""
    return places.size == 0 or bool(places[0] == 0 and places[-1] == places.size - 1 and (np.diff(places) == 1).all())


def to_device(numbers: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return an array as a tensor on a device, ready for later work of the current stream; the array may be changed at once."""
    import torch

    return move_tensor(torch.from_numpy(np.ascontiguousarray(numbers)), device)


def move_tensor(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device, as `to_device`. It is staged in torch's pinned memory, which torch reuses after the copy: nobody waits.

    Even a tensor that seems to be pinned is staged (one beside registered memory may seem so): its owner may change it at once.
    """
    import torch

    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu" and tensor.layout == torch.strided:
        tensor = torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor)
    return tensor.to(device, non_blocking=True)


def copy_to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copy a one-dimensional array to a device, piece by piece, so that a mapped one need not be in memory as a whole."""
    import torch

    target = torch.empty(array.size, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype, device=device)
    step = PIECE_BYTES // array.itemsize
    for first in range(0, array.size, step):
        target[first : first + step] = torch.from_numpy(np.array(array[first : first + step]))
    return target


def to_host(*tensors: torch.Tensor) -> list[np.ndarray]:
    """Return tensors as arrays; those of a device are copied to torch's pinned memory, after earlier work of the current stream, and waited
    for together. Copies to other memory would be made in small parts, each of which is waited for."""
    import torch

    arrays = [tensor.to("cpu", non_blocking=True).numpy() for tensor in tensors]
    for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return arrays
