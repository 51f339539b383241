"""Memory of a device: what is left of it.

In: a device from `tensor_device`. Out: bytes. Under Triton's interpreter the device's memory is that of the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.process_memory import free_bytes

if TYPE_CHECKING:
    import torch


def free_device_bytes(device: torch.device) -> int:
    """Return what nobody has taken: neither another process, nor this one's torch, which keeps what its tensors once needed."""
    if device.type == "cpu":
        return free_bytes()
    import torch

    return torch.cuda.mem_get_info(device)[0]
