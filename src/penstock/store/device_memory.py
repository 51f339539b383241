"""Memory of a device: what there is, what is left, and what torch holds of it.

In: a device from `tensor_device`. Out: bytes. Under Triton's interpreter the device's memory is that of the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from penstock.store.process_memory import free_bytes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device.

    Attributes:
        total: that it has.
        free: that nobody has taken.
        held: by torch in this process; it keeps what its tensors once needed at the same time, so the peak of a training step is in it.
    """

    total: int
    free: int
    held: int


def look_at_device_memory(device: torch.device) -> DeviceMemory:
    """Look, without waiting for the device."""
    if device.type == "cpu":
        return DeviceMemory(psutil.virtual_memory().total, free_bytes(), 0)
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return DeviceMemory(total, free, torch.cuda.memory_reserved(device))


def settle(device: torch.device) -> None:
    """Wait until a device has done all that was asked of it on any stream; the interpreter has."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def peak_device_bytes(device: torch.device) -> int:
    """Return the most that tensors of this process ever took of a device; 0 for the CPU."""
    if device.type == "cpu":
        return 0
    import torch

    return torch.cuda.max_memory_allocated(device)
