"""Loaders whose samples come from other processes: all else, rows, caches, threads, state, is `NeighborLoader`'s.

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
    """Stands in for a sampler whose samples are drawn elsewhere.

    Args:
        local: the sampler.
        receive: (batch, memory) -> its sample.
    """

    def __init__(self, local: NeighborSampler, receive: Receive) -> None:
        self.__dict__.update(local.__dict__)
        self._receive = receive

    def workspace(self) -> Any:
        """Nothing is needed."""
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
        """The sample of a batch, from where it was drawn."""
        return self._receive(batch, allocate)


def receiving(maker: BatchMaker, receive: Receive) -> BatchMaker:
    """The same maker with samples that are drawn elsewhere."""
    sampler = ReceivedSamples(maker.sampler, receive)
    return dataclasses.replace(maker, sampler=sampler, device_sampler=None, _workspaces=queue.SimpleQueue())


def read_sample(client: Client, taken: Taken, maker: BatchMaker, allocate: Allocator) -> Sample:
    """The sample of a batch that was handed out."""
    graph, disjoint = maker.sampler.sampled, maker.sampler.disjoint
    return client.read(taken, lambda buffer: unpack(buffer, graph, disjoint=disjoint, allocate=allocate))


class _ClientLoader(NeighborLoader):
    """A `NeighborLoader` that other processes work with. Call `connect` once, after the construction."""

    _client: Client | None = None
    """Speaks with them; None: it works by itself."""

    def beside(self, input_nodes: Any, input_time: Any = None, *, rank: int = 0, num_ranks: int = 1) -> NeighborLoader:
        """As `NeighborLoader.beside`; this process draws the samples."""
        other = super().beside(input_nodes, input_time, rank=rank, num_ranks=num_ranks)
        assert isinstance(other, _ClientLoader)
        other._client = None
        return other


class TrainerLoader(_ClientLoader):
    """A loader over samples that are received."""

    def connect(self, client: Client, *, publishes: bool = True) -> None:
        """Take samples from a client from now on. `publishes`: what is kept here, for samplers to mark; one trainer does."""
        self._client = client
        self._publishes, self._is_marked = publishes, None

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch, or the rest of that of the state. A pass that is still going on ends: its batches come no more."""
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
        epoch.begin()  # at once: from here on the client is asked for samples of this pass
        if self._publishes and self._is_marked is None and (directories := self.engine.caches.directories):
            self._is_marked = True
            client.publish(directories, local.sampler.graph)
        pass_number = client.begin(self.engine.at.epoch, self.engine.at.delivered)
        return epoch

    def _are_ours(self, client: Client) -> bool:
        """Whether samples are marked with slots of the caches here: of one trainer's, whose content another's need not be."""
        if self._is_marked is None:
            ours, theirs = self.engine.caches.directories, published(self.engine.maker.sampler.graph, client.slots, client.slots.last)
            self._is_marked = ours.keys() == theirs.keys() and all(np.array_equal(ours[t], theirs[t]) for t in ours)
        return self._is_marked


class SwitchingLoader(_ClientLoader):
    """A loader of a seat that samples and trains: what it does next is decided elsewhere, batch by batch.

    Which of the seats gets a batch is a matter of time; the batches are what they are, and each comes once.
    """

    def connect(self, client: Client, device: str | None, *, is_sampler: bool) -> None:
        """Do what a client says from now on. `device`: where this seat samples."""
        self._client, self._is_sampler = client, is_sampler
        self._draw = SampleMaker(self.engine.maker.batches, device)

    def state_dict(self) -> dict[str, Any]:
        """There is none: what a process has had is a matter of time."""
        raise NotSupportedError(_NO_POSITION)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is none."""
        raise NotSupportedError(_NO_POSITION)

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch."""
        if self._client is None:
            return super().__iter__()
        at = self.engine.at
        self.engine.at = Position(at.epoch + (not at.is_fresh), is_fresh=False)
        return _SwitchingPass(self.engine, self._client, self._draw, is_sampler=self._is_sampler)


class _SwitchingPass:
    """One pass of a seat. A trainer has its next batch made while it trains; a sampler looks for one when it is asked."""

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
        """Do what is to be done until it is to train on a batch: (the batch, what it took, its index). None: the pass is over."""
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
