"""A sampler process: it samples one batch after the other, each into a given slot.

In: a `SamplerSpec`, and jobs. Out: bytes in slots. Invariants: any process would draw the same sample; the process ends when the one that
started it ends.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from penstock.order import Order
from penstock.records import Sample
from penstock.sample.batches import SampledBatches
from penstock.sample.factored.marks import Directories, mark, published
from penstock.sample.factored.messages import Ask, Done, Failed, Job, Keeps, Ready, describe
from penstock.sample.factored.slots import Slots
from penstock.sample.factored.wire import Packed
from penstock.sample.neighbor import NeighborSampler
from penstock.sample.seeds import NodeSeeds
from penstock.sample.times import store_times, with_times
from penstock.sample.weights import store_weights, with_weights
from penstock.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec:
    """From this, a process makes the sampler of a loader again. It is pickled.

    Attributes:
        path: of the store.
        weight: name of the edge field with weights, or None.
        time: name of the field with times of edges or nodes, or None.
        settings: arguments of `NeighborSampler`, without the graph.
        seeds, order, batch_size: of `SampledBatches`.
        make_sampler: makes the sampler, if its graph is not that of the store; else None.
    """

    path: str
    weight: str | None
    settings: Mapping[str, Any]
    seeds: NodeSeeds
    order: Order
    batch_size: int
    time: str | None = None
    make_sampler: Callable[[], NeighborSampler] | None = None

    def make(self) -> SampledBatches:
        """Open the store, and make the sampler."""
        if self.make_sampler is not None:
            sampler = self.make_sampler()
        else:
            store = Store(self.path)
            graph = store.graph()
            if self.weight is not None:
                graph = with_weights(graph, store_weights(store, self.weight))
            if self.time is not None:
                graph = with_times(graph, store_times(store, self.time))
            sampler = NeighborSampler(graph, **self.settings)
        return SampledBatches(sampler, self.seeds, self.order, self.batch_size)


class SampleMaker:
    """Draws the samples of batches.

    Args:
        batches: the batches.
        device: draws the samples, and holds the topology; None or "cpu": the CPU draws.
    """

    def __init__(self, batches: SampledBatches, device: str | None) -> None:
        self._batches, self._on_device, self.graph = batches, None, batches.sampler.sampled
        if device is not None and device != "cpu":
            from penstock.kernels._triton import tensor_device
            from penstock.sample.device_graph import device_sampler

            self._on_device = device_sampler(batches.sampler, tensor_device(device))
        self._workspace: Any = (self._on_device or batches.sampler).workspace()
        self.directories: Directories = {}
        """Directories of the trainer's caches, for marks."""

    def draw(self, epoch: int, index: int) -> Sample:
        """Return the sample of batch `index` of an epoch, with marks, as it is sent."""
        batches, workspace = self._batches, self._workspace
        if self._on_device is not None:
            seeds = batches.seeds_of(epoch, index)
            place = {"epoch": epoch, "batch": index, "workspace": workspace}
            sample = self._on_device.sample(seeds.nodes, **place, times=seeds.times).for_wire(self.graph)
        else:
            sample = batches.draw(epoch, index, workspace)
        sample.marks = mark(sample.nodes, self.directories)
        return sample

    def run(self, job: Job, slots: Slots) -> Done:
        """Do a job. An error of sampling is returned in `Done`, not raised."""
        started = time.perf_counter()
        try:
            packed = Packed(self.draw(job.epoch, job.index), self.graph)
            packed.write(slots.writable(job.slot, packed.num_bytes))
        except Exception as error:
            return Done(job, 0, time.perf_counter() - started, describe(error))
        return Done(job, packed.num_bytes, time.perf_counter() - started)


def run_sampler(spec: SamplerSpec, device: str | None, connection: Connection, slots: Slots) -> None:
    """Sample until the other end of the connection is closed. Entry point of a spawned process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides when it ends
    try:
        try:
            make = SampleMaker(spec.make(), device)
        except Exception as error:
            connection.send(Failed(describe(error)))
            return
        connection.send(Ready())
        while True:
            connection.send(Ask(-1, -1))
            while isinstance(told := connection.recv(), Keeps):
                make.directories = published(make.graph, slots, slots.last)
            connection.send(make.run(told, slots))
    except (EOFError, OSError):
        os._exit(0)  # nothing is left to do
