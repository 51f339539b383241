"""Batches of a loader from one place on: of one epoch, or of one after the other without a stop.

In: a loader, an order, and where to begin. Out: batches with what was counted of them, one after the other. Invariants: what threads make
ahead of the place of delivery changes nothing of it; of streams of one loader the latest steers its policies. Source of those that do not
stop: DistDGLv2 5.5, whose pipeline runs until the training is over, so that no epoch begins with an empty one.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch

from penstock.feed.assemble import Assembler
from penstock.feed.buffers import Loan
from penstock.feed.caches import Caches
from penstock.feed.drawn_ahead import DrawnAhead
from penstock.feed.fields import refuse_learned, states_of
from penstock.feed.lookahead import LookAhead
from penstock.feed.maker import BatchMaker, HeldSample, Sampled, ordinary
from penstock.feed.options import LoaderOptions
from penstock.feed.pipeline import OrderedAhead
from penstock.feed.stats import BatchStats
from penstock.feed.turns import Turns
from penstock.order import Order
from penstock.threads import Threads

if TYPE_CHECKING:
    from penstock.feed.loader import Loader

T = TypeVar("T")


class Place(NamedTuple):
    """Which batch.

    Attributes:
        number: of it in its stream, from 0.
        epoch, index: of it, over all ranks.
    """

    number: int
    epoch: int
    index: int


class BatchStream:
    """Batches in order. Threads make whole ones: sample, then gather. Where a policy looks ahead, the first half has threads of its own and
    samples are held until the window is full.

    Args:
        loader: whose.
        order: of the seeds.
        epoch, first: where it begins; `first` counts batches of this rank.
    Attributes:
        per_epoch: batches of this rank.
        last: memory of the batch delivered last, for whoever delivers to put it there.
    """

    def __init__(self, loader: Loader, order: Order, epoch: int, first: int) -> None:
        options, maker, caches = loader._options, loader._maker, loader._caches
        self.per_epoch = len(range(loader.rank, loader._num_batches, loader.num_ranks))
        self._place, self._pid = (epoch, first), os.getpid()
        self._end = math.inf if loader._non_stop is True else max(epoch + 1, loader._non_stop)
        places = partial(
            _places, epoch, self._end, first * loader.num_ranks + loader.rank, loader.rank, loader._num_batches, loader.num_ranks
        )
        number = caches.begin()
        assembler, turns, is_learning = Assembler(maker.source, caches, number), Turns(), torch.is_grad_enabled()
        self._made_of = is_learning, states_of(assembler.node_fields, assembler.edge_fields)
        if options.num_workers and is_learning:
            refuse_learned([*assembler.node_fields, *assembler.edge_fields])
        ahead: LookAhead[HeldSample | None] | None = None
        is_first_alone = not caches.window and loader._stats.num_batches == 0  # its pages are touched for the first time: by all threads
        if caches.window:

            @torch.inference_mode(False)
            def draw(place: Place) -> Sampled:
                return maker.sample(place.epoch, place.index, order)

            samples = _run(draw, places(), loader._samplers, loader._sampling)

            def announce(sampled: Sampled) -> HeldSample | None:
                _announce(maker, caches, number, assembler, sampled)
                return maker.hold(sampled) if caches.hold == "samples" else None

            ahead = LookAhead(samples, announce, caches.window)
        drawn = DrawnAhead(maker, places(), order) if maker.device_sampler is not None and ahead is None else None

        @ordinary(is_learning)  # without workers this is the user's thread
        def make(place: Place) -> tuple[Any, BatchStats]:
            try:
                is_drawn_here = drawn is None and (ahead is None or caches.hold == "ids")
                sampled = maker.sample(place.epoch, place.index, order) if is_drawn_here else None
                with turns.of(place.number):
                    sampled = sampled if drawn is None else drawn.take()
                    held = None if ahead is None else ahead.take()
                    sampled, held = maker.release(held) if held is not None else sampled, None
                    assert sampled is not None
                    under_way = maker.submit(assembler, sampled)
                return maker.finish(assembler, sampled, under_way, options.num_workers if is_first_alone and place.number == 0 else 1)
            finally:
                turns.skip(place.number)

        self.last = last = deque[Loan](maxlen=1)
        more = (lambda: bool(last) and last[0].is_back) if caches.window else None
        how = {"is_first_alone": is_first_alone, "is_given_up": more, "skipped": lambda place: turns.skip(place.number)}
        self._results = _run(make, places(), loader._workers, options, **how)

    def __next__(self) -> tuple[Any, BatchStats]:
        made = next(self._results)
        epoch, delivered = self._place
        self._place = (epoch, delivered + 1) if delivered + 1 < self.per_epoch else (epoch + 1, 0)
        return made

    def stands_at(self, epoch: int, first: int, loader: Loader) -> bool:
        """Whether its next batch is that one, made as a stream that begins now would make it."""
        made_of = torch.is_grad_enabled(), states_of(*loader._maker.source.fields())
        return epoch < self._end and (self._place, self._pid, self._made_of) == ((epoch, first), os.getpid(), made_of)

    @property
    def wait_s(self) -> float:
        """How long batches were waited for."""
        return getattr(self._results, "wait_s", 0.0)

    def close(self) -> None:
        """What is not yet delivered will not be."""
        self._results, self._place = iter(()), (-1, 0)


def _places(epoch: int, end: float, start: int, rank: int, num_batches: int, num_ranks: int) -> Iterator[Place]:
    """The places of a stream, from batch `start` of an epoch on; one iterator for who samples ahead, and one for who makes batches."""
    numbers = count()
    while epoch < end and start < num_batches:
        for index in range(start, num_batches, num_ranks):
            yield Place(next(numbers), epoch, index)
        epoch, start = epoch + 1, rank


def _announce(maker: BatchMaker, caches: Caches, number: int, assembler: Assembler, sampled: Sampled) -> None:
    """Tell policies that look ahead what a batch to come of this stream will ask for."""
    started = time.perf_counter()
    with maker.working_on(sampled):
        ids = {key: assembler.host_ids_of(sampled.subgraph, key) for key in caches.top}
    is_plain = {key: sampled.are_distinct and isinstance(key, str) for key in ids}
    caches.announce(number, {key: rows if is_plain[key] else np.unique(rows) for key, rows in ids.items()})
    sampled.clock.spans.append(("decide", started, time.perf_counter(), threading.get_ident()))


def _run(work: Callable[[Place], T], places: Iterator[Place], workers: Threads, options: LoaderOptions, **how: Any) -> Iterator[T]:
    """Results of `work` in order: made ahead by the workers (`how`: see `OrderedAhead`), or here and now where there are none."""
    if workers.num_threads == 0:
        return map(work, places)
    return OrderedAhead(work, places, workers, options.max_in_flight, options.timeout_s, name=lambda place: place.index, **how)
