"""Batches on a device: what is gathered there, what follows it, and how it is handed to the user.

In: batches in the making, on any thread. Out: batches whole on the device. Invariant: the same bytes as on the CPU. All work of a loader,
the filling of its caches too, is asked for on one stream beside the user's; an event stands behind each batch, the user's stream waits for
it when the batch is delivered, and the allocator is told, so that memory of a batch that was dropped is not used again before the user's
work on it is over.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from penstock.errors import NotSupportedError, UsageError, argument
from penstock.kernels._triton import tensor_device
from penstock.plan import Plan
from penstock.store.tiers.pinned import move_tensor


class OnHost:
    """The last steps of a batch that stays on the CPU: none. `DeviceStage` says what each is."""

    device: torch.device | None = None

    def working(self) -> AbstractContextManager[Any]:
        """Nothing is asked of a device."""
        return nullcontext()

    def settle(self) -> None:
        """There is nothing to wait for."""

    def move(self, batch: Any) -> Any:
        """It is there."""
        return batch

    def mark(self) -> Any:
        """There is nothing to wait for."""

    def hand_over(self, batch: Any, mark: Any) -> Any:
        """It is whole."""
        return batch


class DeviceStage(OnHost):
    """The last steps of a batch, on a device.

    Args:
        device: from `tensor_device`; the CPU under Triton's interpreter.
    """

    def __init__(self, device: torch.device) -> None:
        self.device: torch.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def working(self) -> AbstractContextManager[Any]:
        """Within, what this thread asks of the device is asked on the loader's stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def settle(self) -> None:
        """Wait until the device has done all that was asked of it on any stream: what was set up is there for all of them."""
        if self._stream is not None:
            torch.cuda.synchronize(self.device)

    def move(self, batch: Any) -> Any:
        """Move all tensors of a batch that are not there yet."""
        return batch.apply(lambda value: move_tensor(value, self.device) if isinstance(value, torch.Tensor) else value)

    def mark(self) -> Any:
        """Return what says that all asked for so far on the loader's stream is done; None where nothing is asked of a stream."""
        return None if self._stream is None else self._stream.record_event()

    def hand_over(self, batch: Any, mark: Any) -> Any:
        """Let the user's stream wait for a batch, and the allocator for the user's stream."""
        if self._stream is None:
            return batch
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(mark)
        _record(batch, stream)
        return batch


def _record(value: Any, stream: Any) -> None:
    """Tell the allocator of all tensors in a batch, or in what a transform made of it, that a stream uses them."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            value.record_stream(stream)
    elif isinstance(value, (tuple, list)):
        for one in value:
            _record(one, stream)
    elif isinstance(value, dict):
        _record(list(value.values()), stream)
    elif hasattr(value, "stores"):
        _record([list(store.values()) for store in value.stores], stream)


def choose_device(device: Any, plan: Plan) -> OnHost:
    """The last steps for a device that the user named, None for the CPU.

    Raises:
        UsageError, NotSupportedError: see `tensor_device`; a plan that does not go with the device.
    """
    if device is None or str(device) == "cpu":
        for name, what in (("device_policy", "keeps rows on"), ("device_topology", "has neighbour lists read by")):
            if (value := getattr(plan, name)) not in (None, "host"):
                raise UsageError(f"{argument(name, value)} {what} a device, and there is none: give {argument('device', 'cuda')}")
        return OnHost()
    reader = tensor_device(device)
    if plan.host_memory is not None:
        raise NotSupportedError(
            f"{argument('host_memory')} with a device is not supported yet: give {argument('policy')} and {argument('cache')}, or "
            f"{argument('device_policy')} and {argument('device_cache')}"
        )
    return DeviceStage(reader)
