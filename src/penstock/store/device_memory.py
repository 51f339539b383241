"""Memory of a device: its size, what is free, and what torch holds.

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
        total: size of the memory.
        free: not allocated by anybody.
        held: by torch in this process; torch keeps what its tensors needed at their peak, so it includes the peak of a training step.
    """

    total: int
    free: int
    held: int


def look_at_device_memory(device: torch.device) -> DeviceMemory:
    """Query the memory of a device, without waiting for the device."""
    if device.type == "cpu":
        return DeviceMemory(psutil.virtual_memory().total, free_bytes(), 0)
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return DeviceMemory(total, free, torch.cuda.memory_reserved(device))


def settle(device: torch.device) -> None:
    """Wait until a device has finished all work on all streams; the interpreter always has."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def peak_device_bytes(device: torch.device) -> int:
    """Return the peak bytes of this process's tensors on a device; 0 for the CPU."""
    if device.type == "cpu":
        return 0
    import torch

    return torch.cuda.max_memory_allocated(device)
