"""The batches of a loader from one place on: the rest of one epoch, or epoch after epoch without a stop.

In: an engine, an order, and where to begin. Out: batches in order, each with its counts. Invariants: what threads make ahead does not
change what is delivered; of several streams of a loader, the latest steers its cache policies. Source of streams over many epochs:
DistDGLv2 5.5, whose pipeline runs until the training is over, so that no epoch begins with an empty one.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from penstock.feed.assemble import Assembler
from penstock.feed.buffers import Loan
from penstock.feed.crowd import Crowd
from penstock.feed.drawn_ahead import DrawnAhead
from penstock.feed.engine import Engine
from penstock.feed.fields import refuse_learned, states_of
from penstock.feed.lookahead import LookAhead
from penstock.feed.maker import BatchMaker, HeldSample, Sampled, ordinary
from penstock.feed.options import LoaderOptions
from penstock.feed.pipeline import OrderedAhead
from penstock.feed.stats import BatchStats
from penstock.feed.turns import Turns
from penstock.order import Order
from penstock.threads import Threads

T = TypeVar("T")


class Place(NamedTuple):
    """The place of a batch.

    Attributes:
        number: in its stream, from 0.
        epoch, index: in the loader's order, over all ranks.
    """

    number: int
    epoch: int
    index: int


class BatchStream:
    """Batches in order. Each thread makes whole batches: it samples, then gathers. Where a policy looks ahead, samples are drawn by threads
    of their own and held until the window is full.

    Args:
        engine: of the loader.
        maker: makes the batches.
        order: of the seeds.
        epoch, first: where to begin; `first` counts the batches of this rank.
    Attributes:
        per_epoch: batches of this rank in an epoch.
        last: memory of the batch delivered last; whoever delivers puts it there.
    """

    def __init__(self, engine: Engine, maker: BatchMaker, order: Order, epoch: int, first: int) -> None:
        caches, num_workers = engine.caches, engine.options.num_workers
        rank, num_ranks, num_batches = engine.rank, engine.num_ranks, engine.num_batches
        self.per_epoch = len(range(rank, num_batches, num_ranks))
        self._place, self._pid = (epoch, first), os.getpid()
        self._end = math.inf if engine.non_stop is True else max(epoch + 1, engine.non_stop)
        places = partial(_places, epoch, self._end, first * num_ranks + rank, rank, num_batches, num_ranks)
        number = caches.begin()
        assembler, is_learning = Assembler(maker.source, caches, number), torch.is_grad_enabled()
        self._made_of = is_learning, states_of(assembler.node_fields, assembler.edge_fields)
        if num_workers and is_learning:
            refuse_learned([*assembler.node_fields, *assembler.edge_fields])
        is_first_alone = not caches.window and engine.stats.num_batches == 0  # all threads share its copying, which touches new pages
        ahead = _look_ahead(engine, maker, order, places(), number, assembler) if caches.window else None
        drawn = DrawnAhead(maker, places(), order) if maker.device_sampler is not None and ahead is None else None
        turns = Turns()
        is_in_memory = not caches.tables and caches.graph is None and not maker.may_wait
        crowd = Crowd(num_workers, len(maker.sampler.graph.adjacency)) if num_workers and is_in_memory else None
        enter, in_turn = nullcontext if crowd is None else crowd.of, turns.of if num_workers else nullcontext

        def make(place: Place) -> tuple[Any, BatchStats]:
            try:
                with ordinary(is_learning), enter(place.number):  # without workers this is the user's thread
                    sampled = None
                    if drawn is None and (ahead is None or caches.hold == "ids"):
                        sampled = maker.sample(place.epoch, place.index, order)
                    with in_turn(place.number):
                        if drawn is not None:
                            sampled = drawn.take()
                        if ahead is not None and (held := ahead.take()) is not None:
                            sampled, held = maker.release(held), None
                        assert sampled is not None
                        under_way = maker.submit(assembler, sampled)
                    is_alone = num_workers == 0 or (is_first_alone and place.number == 0)
                    num_threads = (num_workers or torch.get_num_threads()) if is_alone else 1
                    return maker.finish(assembler, sampled, under_way, num_threads)
            finally:
                turns.skip(place.number)

        self.last = last = deque[Loan](maxlen=1)
        more = (lambda: bool(last) and last[0].is_back) if caches.window else None

        def skip(place: Place) -> None:
            turns.skip(place.number)
            if crowd is not None:
                crowd.skip(place.number)

        how = {"is_first_alone": is_first_alone, "is_given_up": more, "skipped": skip}
        self._results = _run(make, places(), engine.workers, engine.options, **how)

    def __next__(self) -> tuple[Any, BatchStats]:
        made = next(self._results)
        epoch, delivered = self._place
        self._place = (epoch, delivered + 1) if delivered + 1 < self.per_epoch else (epoch + 1, 0)
        return made

    def stands_at(self, epoch: int, first: int, maker: BatchMaker) -> bool:
        """Whether the next batch is batch `first` of `epoch`, made as a stream that begins now would make it."""
        made_of = torch.is_grad_enabled(), states_of(*maker.source.fields())
        return epoch < self._end and (self._place, self._pid, self._made_of) == ((epoch, first), os.getpid(), made_of)

    @property
    def wait_s(self) -> float:
        """Seconds that batches were waited for."""
        return getattr(self._results, "wait_s", 0.0)

    def close(self) -> None:
        """Stop: nothing more is delivered."""
        self._results, self._place = iter(()), (-1, 0)


def _places(epoch: int, end: float, start: int, rank: int, num_batches: int, num_ranks: int) -> Iterator[Place]:
    """The places of a stream, from batch `start` of an epoch on. Sampling ahead and making batches each have an iterator of them."""
    numbers = count()
    while epoch < end and start < num_batches:
        for index in range(start, num_batches, num_ranks):
            yield Place(next(numbers), epoch, index)
        epoch, start = epoch + 1, rank


def _look_ahead(
    engine: Engine, maker: BatchMaker, order: Order, places: Iterator[Place], number: int, assembler: Assembler
) -> LookAhead[HeldSample | None]:
    """Draw samples on threads of their own, and tell policies that look ahead what each batch of pass `number` will ask for."""
    caches = engine.caches

    @torch.inference_mode(False)
    def draw(place: Place) -> Sampled:
        return maker.sample(place.epoch, place.index, order)

    def announce(sampled: Sampled) -> HeldSample | None:
        started = time.perf_counter()
        with maker.working_on(sampled):
            ids = {key: assembler.host_ids_of(sampled.subgraph, key) for key in caches.top}
        is_plain = {key: sampled.are_distinct and isinstance(key, str) for key in ids}
        caches.announce(number, {key: rows if is_plain[key] else np.unique(rows) for key, rows in ids.items()})
        sampled.clock.spans.append(("decide", started, time.perf_counter(), threading.get_ident()))
        return maker.hold(sampled) if caches.hold == "samples" else None

    return LookAhead(_run(draw, places, engine.samplers, engine.sampling_options), announce, caches.window)


def _run(work: Callable[[Place], T], places: Iterator[Place], workers: Threads, options: LoaderOptions, **how: Any) -> Iterator[T]:
    """Results of `work` in order: made ahead by the workers (`how`: see `OrderedAhead`), or here and now where there are none."""
    if workers.num_threads == 0:
        return map(work, places)
    return OrderedAhead(work, places, workers, options.max_in_flight, options.timeout_s, name=lambda place: place.index, **how)
