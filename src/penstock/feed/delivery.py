"""Batches on a device: the CUDA streams on which they are made there, and how they are handed to the user.

In: batches in the making, on any thread. Out: batches that are all on the device. Invariant: the same bytes as on the CPU. A loader has two
streams beside the user's: one for samples, which the CPU waits for, and one for all that follows, the filling of caches included. An event
is recorded after each sample and each batch. The stream that goes on with it waits for that event, and the allocator is told of its use, so
that the memory of a batch that was dropped is not used again before the work on it is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import recursive_apply

from penstock.errors import NotSupportedError, UsageError, argument
from penstock.feed.layers import row_ptr_of
from penstock.feed.tensors import is_frame, tensors_of
from penstock.kernels._cuda import on_stream, own_stream
from penstock.kernels._triton import tensor_device
from penstock.plan import SAME, SHARED, Plan
from penstock.store.tiers.pinned import move_tensor

MOST_STEPS = 2
"""The user's steps that a device may still have to do when the next batch is asked for: one under way, one queued."""


class Delivery:
    """The streams of a device, and the last steps of a batch on it. For batches that stay on the CPU all methods do nothing.

    Args:
        device: from `tensor_device`, the CPU under Triton's interpreter; None: batches stay where they are.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.device, self._stream, self._samples = device, None, None
        self._index = None if device is None else device.index  # torch takes longer to look at a device than at its number
        self._steps: deque[torch.cuda.Event] = deque()
        if device is not None and device.type == "cuda":
            self._stream, self._samples = own_stream(device), own_stream(device, priority=-1)

    def drawing(self) -> AbstractContextManager[Any]:
        """Make the stream of samples current in the block: its short kernels overtake the long reads of the other stream."""
        return on_stream(self._samples)

    def end_drawing(self) -> None:
        """Wait for all samples that were asked for: perhaps nobody else does, and they read the topology."""
        if self._samples is not None:
            self._samples.synchronize()

    def working(self) -> AbstractContextManager[Any]:
        """Make the stream of all else current in the block."""
        return on_stream(self._stream)

    def calling(self) -> Callable[[], AbstractContextManager[Any]]:
        """Return a context that, inside `working`, makes the stream that is current now, the user's, current again."""
        stream = None if self._stream is None else torch.cuda.current_stream(self._index)
        return lambda: on_stream(stream)

    def settle(self) -> None:
        """Wait for all streams of the device, so that what was set up is visible to each of them."""
        if self._stream is not None:
            torch.cuda.synchronize(self.device)

    def move(self, batch: Any) -> Any:
        """Move all tensors of a batch that are not there yet."""
        device = self.device
        if device is None:
            return batch

        def move(value: Any) -> Any:
            if is_frame(value):
                return value.to(device)
            return move_tensor(value, device) if isinstance(value, torch.Tensor) else value

        if type(batch) not in (Data, HeteroData):  # a class of the user's, with a method of its own perhaps
            return batch.apply(move)
        for store in batch.stores:  # what `apply` does, five times as fast where nearly all are there
            for name, value in list(store.items()):
                if is_frame(value):
                    store[name] = move(value)  # `recursive_apply` would pass over errors
                elif not isinstance(value, torch.Tensor) or value.device != device:
                    store[name] = recursive_apply(value, move)
        return batch

    def record(self) -> Any:
        """Return an event that follows all work so far on the current stream; None on the CPU."""
        return None if self._stream is None else torch.cuda.current_stream(self._index).record_event()

    def keep_up(self) -> None:
        """Wait until at most `MOST_STEPS` of the user's steps are left to do on the device; called when he asks for the next batch.

        Nothing else waits for the rows or for his steps. Without this, a user who asks faster than the device works would have ever more
        batches made there: the memory of a batch that he dropped is not used again before his steps on it are over.
        """
        if self._stream is not None:
            event = torch.cuda.Event(blocking=True)
            torch.cuda.current_stream(self._index).record_event(event)
            self._steps.append(event)
            if len(self._steps) > MOST_STEPS:
                self._steps.popleft().synchronize()

    def hand_over(self, value: Any, event: Any) -> Any:
        """Have the current stream wait for the event of a batch or a sample, and tell the allocator of its use. Without one, do nothing."""
        if event is not None:
            stream = torch.cuda.current_stream(self._index)
            stream.wait_event(event)
            record_use(value, stream)
        return value


def record_use(value: Any, stream: Any) -> None:
    """Tell the allocator that a stream uses all tensors of a batch, or of what a transform made of it."""
    for tensor in tensors_of(value):
        if tensor.is_cuda:
            tensor.record_stream(stream)
            if (row_ptr := row_ptr_of(tensor)) is not None:
                row_ptr.record_stream(stream)


def choose_device(device: Any, plan: Plan) -> Delivery:
    """Return the `Delivery` for a device that the user named, None for the CPU.

    Raises:
        UsageError, NotSupportedError: see `tensor_device`; a plan that does not go with the device.
    """
    if device is None or str(device) == "cpu":
        for name, what in (("device_policy", "keeps rows on"), ("device_topology", "has neighbour lists read by")):
            if (value := getattr(plan, name)) not in (None, "host", SAME):
                raise UsageError(f"{argument(name, value)} {what} a device, and there is none: give {argument('device', 'cuda')}")
        return Delivery()
    reader = tensor_device(device)
    if plan.host_memory is not None and plan.neighbor_cache == SHARED:
        raise NotSupportedError(
            f"{argument('neighbor_cache', SHARED)} divides device memory, which is not part of {argument('host_memory')}: give "
            f"{argument('device_cache')} and {argument('neighbor_cache')}, or leave {argument('host_memory')} out"
        )
    return Delivery(reader)
