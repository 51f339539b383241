"""A training step as one launch: its work on the device is recorded as a CUDA graph, once for each size of batches.

In: a step and batches on a device, of few sizes (`NeighborLoader(pad=True)`). Out: what the step returns. Invariant: the device does the
same work, on the same numbers, in the same order. What is saved is the CPU's work: Python, autograd and the launches, which take longer
than the device's for batches of a thousand seeds.
"""

from __future__ import annotations

import copy
import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch

from penstock.errors import UsageError, first_line
from penstock.feed.delivery import record_use
from penstock.feed.layers import note_edges, ones_in_use
from penstock.feed.links import COUNTS
from penstock.kernels._cuda import on_stream, own_stream

logger = logging.getLogger("penstock")

MANY = 64
"""Different sizes, none of which came often enough to be recorded, after which the user is told."""
_abandoned: list[torch.cuda.CUDAGraph] = []
"""Recordings that failed: torch's allocator of pinned memory may look at them again."""


class _Recording(NamedTuple):
    """A CUDA graph, the tensors of the batch that it reads, its result, and other tensors that it reads, which must be kept alive."""

    graph: torch.cuda.CUDAGraph
    tensors: list[torch.Tensor]
    result: Any
    held: list[torch.Tensor]


class RecordedStep:
    """A training step that is recorded, and from then on launched as a whole. On the CPU, and for batches that cannot be copied, it is
    called as it is.

    Args:
        step: batch -> a tensor, several of them in a tuple, list or dict, numbers, or None. It is the whole step: `zero_grad`, forward and
            backward pass, `optimizer.step`. All of its work must be on the device, the same each time, without waiting for it: no `item`,
            no boolean masks as indices; an optimizer with state is made with `capturable=True` (Adam), and a learning rate that changes is
            a tensor. Its Python is not run again, so what that decides (`train` or `eval`, a rate that is a number) stays as it was.
            Weights, gradients and the optimizer's state must stay in their memory. Tensors that it returns are copied, without gradients.
        warm_up: batches of a size for which it is called before it is recorded, at least one.
        max_graphs: most sizes that are recorded; each takes memory for a batch and for all that the step makes of it.
    """

    def __init__(self, step: Callable[[Any], Any], *, warm_up: int = 3, max_graphs: int = 8) -> None:
        if not callable(step):
            raise UsageError(f"step must be a function of a batch, got {type(step).__name__}")
        for name, value in (("warm_up", warm_up), ("max_graphs", max_graphs)):
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a whole number from 1, got {value!r}")
        self._step, self._warm_up, self._max_graphs = step, warm_up, max_graphs
        self._recordings: dict[Any, _Recording] = {}
        self._seen: Counter[Any] = Counter()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._is_said = False

    @property
    def num_graphs(self) -> int:
        """Number of sizes recorded so far."""
        return len(self._recordings)

    def __call__(self, batch: Any) -> Any:
        """Take the step, on the current stream."""
        form = self._form_of(batch)
        if form is None:
            return self._step(batch)
        recording = self._recordings.get(form)
        if recording is not None:
            with torch.no_grad():
                for source, target in zip(_tensors(batch), recording.tensors, strict=True):
                    target.copy_(source)
            recording.graph.replay()
            return _copied(recording.result)
        self._seen[form] += 1
        if self._seen[form] <= self._warm_up or len(self._recordings) >= self._max_graphs:
            self._note_sizes()
            return self._call(batch)
        recording = self._recordings[form] = self._record(batch)
        recording.graph.replay()  # recording has not run it; its input is a copy of this batch
        return _copied(recording.result)

    def _note_sizes(self) -> None:
        """Warn once where there are many sizes, and forget them."""
        if len(self._seen) >= MANY:
            self._seen.clear()
            self._say(f"batches have {MANY} sizes so far, and a step is recorded for one that comes again: give the loader pad=True")

    def _say(self, message: str) -> None:
        if not self._is_said:
            logger.warning(message)
        self._is_said = True

    def _stream_of(self, batch: Any) -> torch.cuda.Stream:
        """A stream of our own on its device: autograd keeps to the stream that it began with, and the default one cannot be recorded."""
        device = _tensors(batch)[0].device
        if device not in self._streams:
            self._streams[device] = own_stream(device)
        return self._streams[device]

    def _call(self, batch: Any) -> Any:
        """Call the step, on the stream on which it will be recorded."""
        stream = self._stream_of(batch)
        current, result = torch.cuda.current_stream(stream.device), None
        stream.wait_stream(current)
        record_use(batch, stream)
        try:
            with on_stream(stream):
                result = self._step(batch)
        finally:
            current.wait_stream(stream)
            for made in (batch, result):
                record_use(made, current)
        return _copied(result)

    def _record(self, batch: Any) -> _Recording:
        stream = self._stream_of(batch)
        with torch.no_grad():
            twin, graph = _twin(batch), torch.cuda.CUDAGraph()
        tensors, pool, failed = _tensors(twin), torch.cuda.graph_pool_handle(), None
        try:
            with _recording(graph, stream, pool):
                try:
                    result = self._step(twin)
                except BaseException as error:
                    failed = error
                    raise
        except BaseException as error:
            cause = failed or error
            _abandon(graph, stream, pool)
            if not isinstance(cause, Exception) or "captur" not in str(cause):
                raise cause from None
            raise UsageError(
                f"the step cannot be recorded: {first_line(cause)}; it may not wait for the device (item(), print), and its "
                "optimizer is made with capturable=True"
            ) from cause
        return _Recording(graph, tensors, _mapped(result, torch.Tensor.detach), ones_in_use())

    def _form_of(self, batch: Any) -> Any:
        """All that a recording of a step over a batch depends on, but the elements of tensors; None where that cannot be told, or no device
        has it."""
        form: list[Any] = []
        for store in getattr(batch, "stores", ()):
            for name, value in store.items():
                if isinstance(value, torch.Tensor):
                    if value.device.type != "cuda":
                        return None
                    if value.layout is torch.strided:
                        form.append((store._key, name, value.shape, value.dtype, value.device, value.stride()))
                        continue
                elif value is None or isinstance(value, (bool, int, float, str)):
                    form += [] if name in COUNTS else [(store._key, name, value)]
                    continue
                elif isinstance(value, list) and all(isinstance(each, (int, str)) for each in value):
                    form.append((store._key, name, tuple(value)))
                    continue
                self._say(f"steps are not recorded, for {name} of a batch is a {type(value).__name__} that cannot be copied: take it out")
                return None
        return tuple(form) or None


@contextmanager
def _recording(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> Iterator[None]:
    """What is asked of the device within is recorded. Threads of loaders go on meanwhile."""
    here = torch.cuda.stream(torch.cuda.current_stream(stream.device))  # torch leaves its own where it cannot end a recording
    recording = torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local")
    with _no_collection(), torch.cuda.device(stream.device), here, recording:
        yield


def _abandon(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> None:
    """Let torch know that a recording is over though it failed. Otherwise, up to torch 2.13, its allocator keeps memory that two streams
    used, and (2.11) its generator refuses random numbers, so dropout, until another recording ends well; this makes one. Each of these may
    be done already, or impossible on a device that has failed altogether."""
    _abandoned.append(graph)
    with suppress(RuntimeError):
        graph.reset()
    with suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(stream.device.index, pool)
        torch._C._cuda_releasePool(stream.device.index, pool)  # where torch had not ended it, torch has not released it either
    with suppress(RuntimeError):
        zero = torch.zeros(1, device=stream.device)
        with _recording(torch.cuda.CUDAGraph(), stream, torch.cuda.graph_pool_handle()):
            zero.zero_()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Suspend garbage collection: it might free memory that the driver knows of, a loader's, which would end the recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _tensors(batch: Any) -> list[torch.Tensor]:
    return [value for store in batch.stores for value in store.values() if isinstance(value, torch.Tensor)]


def _twin(batch: Any) -> Any:
    """A batch of its own memory with the same in it."""
    twin = copy.copy(batch)
    for store in twin.stores:
        for name, value in list(store.items()):
            if isinstance(value, torch.Tensor):
                store[name] = value.detach().clone()
    note_edges(twin)
    return twin


def _mapped(result: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """What a step returns, with other tensors."""
    if isinstance(result, torch.Tensor):
        return change(result)
    if isinstance(result, dict):
        return {key: _mapped(value, change) for key, value in result.items()}
    if isinstance(result, (tuple, list)):
        values = [_mapped(value, change) for value in result]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)
    if result is None or isinstance(result, (bool, int, float, str)):
        return result
    raise UsageError(f"a step that is recorded returns tensors, in tuples, lists or dicts, numbers or None; got a {type(result).__name__}")


def _copied(result: Any) -> Any:
    """What stays as it is when the step is taken again."""
    return _mapped(result, lambda tensor: tensor.detach().clone())
