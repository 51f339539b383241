"""What a sampler process does: batches that it is told to sample, one after the other, into the slots it is told.

In: which loader's batches, and jobs. Out: bytes in slots. Invariant: the process ends when the one that started it does.
"""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from penstock.feed.factored.client import describe
from penstock.feed.factored.schedule import Ask, Done, Job
from penstock.feed.factored.slots import Slots
from penstock.feed.factored.spec import LoaderSpec
from penstock.feed.factored.wire import Packed
from penstock.feed.maker import BatchMaker
from penstock.kernels._triton import tensor_device
from penstock.records import Sample


class Ready(NamedTuple):
    """A process can begin."""


class Failed(NamedTuple):
    """A process cannot go on: (name of the exception, message), and where it was raised."""

    error: tuple[str, str]
    trace: str = ""


class SampleMaker:
    """Draws the samples of a loader.

    Args:
        maker: the loader's.
        device: that draws, holding the topology; None: the CPU.
    """

    def __init__(self, maker: BatchMaker, device: str | None) -> None:
        self._maker, self._device_sampler = maker, None
        if device is not None and device != "cpu":
            where = tensor_device(device)
            from penstock.sample.device import DeviceSampler
            from penstock.sample.device_graph import place_graph

            self._device_sampler = DeviceSampler(maker.sampler, place_graph(maker.sampler.graph, where))
        self._workspace: Any = (self._device_sampler or maker.sampler).workspace()

    def draw(self, epoch: int, index: int) -> Sample:
        """The sample of batch `index` of an epoch."""
        maker = self._maker
        seeds = maker.seeds.ids[maker.order.batch(epoch, index, maker.batch_size)]
        place = {"epoch": epoch, "batch": index, "workspace": self._workspace}
        if self._device_sampler is not None:
            return self._device_sampler.sample(maker.seeds.node_type, np.ascontiguousarray(seeds), **place).to_host()
        return maker.sampler.sample(maker.seeds.node_type, seeds, allocate=maker.pool.empty, **place)

    def run(self, job: Job, slots: Slots) -> Done:
        """Do a job. What sampling raises is told, not raised."""
        started = time.perf_counter()
        try:
            packed = Packed(self.draw(job.epoch, job.index), self._maker.sampler.graph)
            packed.write(slots.writable(job.slot, packed.num_bytes))
        except Exception as error:
            return Done(job, 0, time.perf_counter() - started, describe(error))
        return Done(job, packed.num_bytes, time.perf_counter() - started)


def run_sampler(spec: LoaderSpec, device: str | None, connection: Connection, slots: Slots) -> None:
    """Sample until the other end hangs up. Entry of a spawned process."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one says when to end
    torch.set_num_threads(1)
    try:
        try:
            make = SampleMaker(spec.make()._maker, device)
        except Exception as error:
            connection.send(Failed(describe(error)))
            return
        connection.send(Ready())
        while True:
            connection.send(Ask(-1, -1))
            connection.send(make.run(connection.recv(), slots))
    except (EOFError, OSError):
        os._exit(0)  # nothing is left to be done, and an interpreter with torch takes a second to end
