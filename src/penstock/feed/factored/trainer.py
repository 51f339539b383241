"""Loaders whose samples come from other processes. Everything else (rows, caches, threads, state) is as in `NeighborLoader`.

In: a `NeighborLoader`'s arguments and a `Client`. Out: its batches. Invariant: the same batches, bit for bit.
"""

from __future__ import annotations

import dataclasses
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from penstock.errors import NotSupportedError, PipelineError
from penstock.feed.assemble import Assembler
from penstock.feed.engine import Engine, Position
from penstock.feed.epoch import Epoch
from penstock.feed.factored.client import Client
from penstock.feed.maker import BatchMaker
from penstock.feed.neighbor_loader import NeighborLoader
from penstock.records import Allocator, NodeType, Sample
from penstock.sample import NeighborSampler
from penstock.sample.factored.marks import published
from penstock.sample.factored.messages import Do, Over, Taken
from penstock.sample.factored.process import SampleMaker
from penstock.sample.factored.wire import unpack

_NO_POSITION = "with switching=True batches go to whoever is free, and no process has a position: save the model when an epoch is over"

Receive = Callable[[int, Allocator], Sample]


class ReceivedSamples(NeighborSampler):
    """A sampler with the settings of `local` whose samples other processes draw.

    Args:
        local: the sampler to replace.
        receive: function (batch index, allocator) -> sample of this batch.
    """

    def __init__(self, local: NeighborSampler, receive: Receive) -> None:
        self.__dict__.update(local.__dict__)
        self._receive = receive

    def workspace(self) -> Any:
        """Return None: no workspace is needed."""
        return None

    def sample(
        self,
        seeds: Mapping[NodeType, np.ndarray],
        *,
        epoch: int,
        batch: int,
        workspace: Any,
        times: Mapping[NodeType, np.ndarray] | None = None,
        allocate: Allocator = np.empty,
    ) -> Sample:
        """Receive the sample of a batch."""
        return self._receive(batch, allocate)


def receiving(maker: BatchMaker, receive: Receive) -> BatchMaker:
    """Return the same maker with received samples."""
    sampler = ReceivedSamples(maker.sampler, receive)
    return dataclasses.replace(maker, sampler=sampler, device_sampler=None, _workspaces=queue.SimpleQueue())


def read_sample(client: Client, taken: Taken, maker: BatchMaker, allocate: Allocator) -> Sample:
    """Read the sample of a batch that was handed out."""
    graph, disjoint = maker.sampler.sampled, maker.sampler.disjoint
    return client.read(taken, lambda buffer: unpack(buffer, graph, disjoint=disjoint, allocate=allocate))


class _ClientLoader(NeighborLoader):
    """A `NeighborLoader` that works with other processes. Call `connect` once, after construction."""

    _client: Client | None = None
    """Connection to them; None: this loader works alone."""

    def beside(self, input_nodes: Any, input_time: Any = None, *, rank: int = 0, num_ranks: int = 1) -> NeighborLoader:
        """As `NeighborLoader.beside`; this process draws the samples."""
        other = super().beside(input_nodes, input_time, rank=rank, num_ranks=num_ranks)
        assert isinstance(other, _ClientLoader)
        other._client = None
        return other


class TrainerLoader(_ClientLoader):
    """A loader that receives its samples."""

    def connect(self, client: Client, *, publishes: bool = True) -> None:
        """Take samples from a client from now on. `publishes`: tell samplers which rows are kept here, so that they mark them; one trainer
        does."""
        self._client = client
        self._publishes, self._is_marked = publishes, None

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch, or the rest of the epoch of a loaded state. This ends a pass that is still running."""
        client, local, pass_number = self._client, self.engine.maker, 0
        if client is None:
            return super().__iter__()

        def receive(batch: int, allocate: Allocator) -> Sample:
            taken = client.ask(pass_number, batch)
            if not isinstance(taken, Taken):
                raise PipelineError("another pass over this loader has begun: one at a time", stage="sample", batch=batch)
            sample = read_sample(client, taken, local, allocate)
            sample.marks = sample.marks if sample.marks and self._are_ours(client) else {}
            return sample

        epoch = Epoch(self.engine, receiving(local, receive))
        epoch.begin()  # now, since requests to the client belong to this pass from here on
        if self._publishes and self._is_marked is None and (directories := self.engine.caches.directories):
            self._is_marked = True
            client.publish(directories, local.sampler.graph)
        pass_number = client.begin(self.engine.at.epoch, self.engine.at.delivered)
        return epoch

    def _are_ours(self, client: Client) -> bool:
        """Whether the marks of samples are slots of the caches here: marks are of the publishing trainer's caches, and another trainer's
        content may differ."""
        if self._is_marked is None:
            ours, theirs = self.engine.caches.directories, published(self.engine.maker.sampler.graph, client.slots, client.slots.last)
            self._is_marked = ours.keys() == theirs.keys() and all(np.array_equal(ours[t], theirs[t]) for t in ours)
        return self._is_marked


class SwitchingLoader(_ClientLoader):
    """A loader of a seat that samples and trains; the schedule decides batch by batch what it does next.

    Timing decides which seat gets a batch. The batches themselves do not change, and each comes once.
    """

    def connect(self, client: Client, device: str | None, *, is_sampler: bool) -> None:
        """Take work from a client from now on. `device`: where this seat samples."""
        self._client, self._is_sampler = client, is_sampler
        self._draw = SampleMaker(self.engine.maker.batches, device)

    def state_dict(self) -> dict[str, Any]:
        """Raise NotSupportedError: timing decides which batches a process gets, so it has no position."""
        raise NotSupportedError(_NO_POSITION)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raise NotSupportedError; see `state_dict`."""
        raise NotSupportedError(_NO_POSITION)

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch."""
        if self._client is None:
            return super().__iter__()
        at = self.engine.at
        self.engine.at = Position(at.epoch + (not at.is_fresh), is_fresh=False)
        return _SwitchingPass(self.engine, self._client, self._draw, is_sampler=self._is_sampler)


class _SwitchingPass:
    """One pass of a seat. A trainer makes its next batch in a thread while it trains; a sampler makes one when it is asked."""

    def __init__(self, engine: Engine, client: Client, draw: SampleMaker, *, is_sampler: bool) -> None:
        self._engine = engine
        self._client = client
        self._draw = draw
        self._received = dict[int, Sample]()
        self._assembler = Assembler(engine.maker.source, engine.caches, engine.caches.begin())
        self._maker = receiving(engine.maker, self._take)
        self._number = client.begin(engine.at.epoch, engine.at.delivered)
        self._ahead = None if is_sampler else ThreadPoolExecutor(1, thread_name_prefix="penstock")
        self._next: Future[Any] | None = None
        self._got = self._train_s = 0.0

    def __iter__(self) -> _SwitchingPass:
        return self

    def __next__(self) -> Any:
        asked = self._engine.batch_asked(self._got)
        self._train_s = asked - self._got if self._got else 0.0
        if self._ahead is None:
            found = self._make()
        else:
            found = (self._next or self._ahead.submit(self._make)).result()
            self._next = None if found is None else self._ahead.submit(self._make)
        if found is None:
            self._got = 0.0
            raise StopIteration
        batch, stats, index = found
        batch = self._engine.transformed(self._maker.delivery.hand_over(batch, stats.event), index)
        self._engine.stats.add(stats)
        self._got = time.perf_counter()
        return batch

    def _take(self, batch: int, allocate: Allocator) -> Sample:
        return self._received.pop(batch)

    def _make(self) -> Any:
        """Sample as told, until there is a batch to train on: return (batch, its statistics, its index). None: the pass is over."""
        client = self._client
        while True:
            told = client.ask(self._number, -1, self._train_s)
            self._train_s = 0.0
            if isinstance(told, Do):
                client.done(*self._draw.run(told.job, client.slots))
            elif isinstance(told, Over):
                return None
            else:
                return self._train_on(told)

    def _train_on(self, taken: Taken) -> Any:
        job, maker = taken.job, self._maker
        self._received[job.index] = read_sample(self._client, taken, maker, maker.pool.empty)
        sampled = maker.sample(job.epoch, job.index)
        batch, stats = maker.finish(self._assembler, sampled, maker.submit(self._assembler, sampled))
        return batch, stats, job.index
