"""A step of training as one launch: what it asks of a device is recorded as a CUDA graph, once for each size of batches.

In: a step and batches on a device, of few sizes (`NeighborLoader(pad=True)`). Out: what the step returns. Invariant: the work that the step
would ask for, on the same numbers, in the same order. What is saved is the processor's: Python, autograd and the launches, which take
longer than the device does for batches of a thousand seeds.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from penstock.errors import UsageError
from penstock.feed.delivery import record_use
from penstock.feed.layers import note_edges

logger = logging.getLogger("penstock")

MANY = 64
"""Sizes that were met too seldom to be recorded."""


class _Recording(NamedTuple):
    """A CUDA graph, the batch that it reads, and what it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Any
    result: Any


class RecordedStep:
    """A step that is recorded, and launched as a whole from then on. On the CPU, and for batches that cannot be copied, it is called.

    Args:
        step: batch -> a tensor, several of them in a tuple, list or dict, or None. All that it does is done by the device, each time in the
            same way, and nobody waits for it: forward pass, backward pass, an optimizer that was made with `capturable=True` and whose rate
            is a tensor if it changes. Python in it is run only until it is recorded; what it returns is a copy.
        warm_up: batches of a size that it is called for before it is recorded; one at least.
        max_graphs: sizes that are recorded; each takes memory for a batch and all that a step makes of it.
    """

    def __init__(self, step: Callable[[Any], Any], *, warm_up: int = 3, max_graphs: int = 8) -> None:
        if not callable(step):
            raise UsageError(f"step must be a function of a batch, got {type(step).__name__}")
        if warm_up < 1:
            raise UsageError(f"warm_up must be a whole number from 1, got {warm_up!r}: what a step makes the first time is not recorded")
        self._step, self._warm_up, self._max_graphs = step, warm_up, max_graphs
        self._recordings: dict[Any, _Recording] = {}
        self._seen: Counter[Any] = Counter()
        self._stream: torch.cuda.Stream | None = None
        self._is_said = False

    @property
    def num_graphs(self) -> int:
        """Sizes that were recorded."""
        return len(self._recordings)

    def __call__(self, batch: Any) -> Any:
        """Take the step, on the current stream."""
        form = _form_of(batch)
        if form is None:
            return self._step(batch)
        recording = self._recordings.get(form)
        if recording is not None:
            _copy(batch, recording.batch)
            recording.graph.replay()
            return _copied(recording.result)
        self._seen[form] += 1
        if self._seen[form] <= self._warm_up or len(self._recordings) >= self._max_graphs:
            self._note_sizes()
            return self._call(batch)
        recording = self._recordings[form] = self._record(batch)
        recording.graph.replay()  # of this batch, whose copy it was recorded with
        return _copied(recording.result)

    def _note_sizes(self) -> None:
        """Say once that there are many, and forget them."""
        if len(self._seen) < MANY:
            return
        if not self._is_said:
            logger.warning("batches have %d sizes so far, and a step is recorded for one that comes again: give the loader pad=True", MANY)
        self._is_said = True
        self._seen.clear()

    def _call(self, batch: Any) -> Any:
        """On the stream that it will be recorded on: autograd goes on with the streams that it began with."""
        device = _tensors(batch)[0].device
        self._stream, current = self._stream or torch.cuda.Stream(device), torch.cuda.current_stream(device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self._step(batch)
        current.wait_stream(self._stream)
        record_use(batch, self._stream)
        record_use(result, current)
        return _copied(result)

    def _record(self, batch: Any) -> _Recording:
        static, graph = _twin(batch), torch.cuda.CUDAGraph()
        try:
            # loaders' threads take memory and wait meanwhile
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                result = self._step(static)
        except RuntimeError as error:
            raise UsageError(
                f"the step cannot be recorded: {str(error).splitlines()[0]}; it may not wait for the device (item(), print), and its "
                "optimizer is made with capturable=True"
            ) from error
        return _Recording(graph, static, result)


def _tensors(batch: Any) -> list[torch.Tensor]:
    return [value for store in batch.stores for value in store.values() if isinstance(value, torch.Tensor)]


def _form_of(batch: Any) -> Any:
    """All that a recording of a step over a batch depends on, but the elements of tensors; None where that cannot be told, or no device
    has it."""
    form: list[Any] = []
    for store in getattr(batch, "stores", ()):
        for name, value in store.items():
            if isinstance(value, torch.Tensor):
                if value.device.type != "cuda" or value.layout is not torch.strided:
                    return None
                form.append((store._key, name, value.shape, value.dtype, value.device, value.stride()))
            elif value is None or isinstance(value, (bool, int, float, str)):
                form.append((store._key, name, value))
            elif isinstance(value, list) and all(isinstance(each, int) for each in value):
                form.append((store._key, name, tuple(value)))
            else:
                return None
    return tuple(form) or None


def _twin(batch: Any) -> Any:
    """A batch of its own memory with the same in it."""
    twin = copy.copy(batch)
    for store in twin.stores:
        for name, value in list(store.items()):
            if isinstance(value, torch.Tensor):
                store[name] = value.clone()
    note_edges(twin)
    return twin


def _copy(batch: Any, twin: Any) -> None:
    for source, target in zip(_tensors(batch), _tensors(twin), strict=True):
        target.copy_(source)


def _copied(result: Any) -> Any:
    """What stays as it is when the step is taken again."""
    if isinstance(result, torch.Tensor):
        return result.detach().clone()
    if isinstance(result, dict):
        return {key: _copied(value) for key, value in result.items()}
    return type(result)(map(_copied, result)) if isinstance(result, (tuple, list)) else result
