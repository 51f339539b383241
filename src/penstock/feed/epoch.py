"""One pass over the batches of an epoch: its order, its threads, and what each delivered batch is counted for.

In: a loader, an epoch and where in it to begin. Out: batches, one after the other. Invariants: a pass has its own order, so that passes
that overlap, or whose threads are still at work after they were left, do not meet; only the latest one moves the position of its loader.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from penstock.errors import StateError, UsageError
from penstock.feed.assemble import Assembler
from penstock.feed.buffers import Loan
from penstock.feed.caches import Caches
from penstock.feed.drawn_ahead import DrawnAhead
from penstock.feed.fields import refuse_learned
from penstock.feed.lookahead import LookAhead
from penstock.feed.maker import BatchMaker, HeldSample, Sampled, ordinary
from penstock.feed.options import LoaderOptions
from penstock.feed.pipeline import OrderedAhead
from penstock.feed.stages import StageClock, located
from penstock.feed.stats import BatchStats
from penstock.feed.timeline import Recording
from penstock.feed.turns import Turns
from penstock.order import GivenOrder, Order
from penstock.threads import Threads

if TYPE_CHECKING:
    from penstock.feed.loader import Loader

T = TypeVar("T")


@dataclass(slots=True)
class Position:
    """Where a pass is. A loader has that of its latest one, or of the one to come.

    Attributes:
        epoch: of the pass.
        delivered: batches of it, of this rank.
        is_fresh: no pass has begun from here.
        is_over: the pass is through.
        sequence: digest of what the user's sampler gave for this epoch.
    """

    epoch: int = 0
    delivered: int = 0
    is_fresh: bool = True
    is_over: bool = False
    sequence: str | None = None


class Epoch:
    """One pass over the batches of one epoch.

    Threads make whole batches: sample, then gather. Where a policy looks ahead, the first half has threads of its own and samples are held
    until the window is full.
    """

    def __init__(self, loader: Loader, at: Position) -> None:
        epoch, first = at.epoch, at.delivered
        self._loader, self._at, self._next, self._got = loader, at, first, 0.0
        self._asked_by: dict[str, int] = {}  # the thread that is in `__next__`
        options, maker, caches, ranks = loader._options, loader._maker, loader._caches, loader.num_ranks
        start, self._has_failed = first * ranks + loader.rank, False
        with located(StageClock("order"), start):  # before anything is begun: it may fail
            order = self._begin_order()
        indices = range(start, loader._num_batches, ranks)
        number = caches.begin()
        assembler, turns, is_learning = Assembler(maker.source, caches, number), Turns(), torch.is_grad_enabled()
        if options.num_workers and is_learning:
            refuse_learned([*assembler.node_fields, *assembler.edge_fields])
        ahead: LookAhead[HeldSample | None] | None = None
        is_first_alone = not caches.window and loader._stats.num_batches == 0  # its pages are touched for the first time: by all threads
        if caches.window:

            @torch.inference_mode(False)
            def draw(index: int) -> Sampled:
                return maker.sample(epoch, index, order)

            samples = _run(draw, indices, loader._samplers, loader._sampling)

            def announce(sampled: Sampled) -> HeldSample | None:
                _announce(maker, caches, number, assembler, sampled)
                return maker.hold(sampled) if caches.hold == "samples" else None

            ahead = LookAhead(samples, announce, caches.window)
        drawn = DrawnAhead(maker, epoch, iter(indices), order) if maker.device_sampler is not None and ahead is None else None

        @ordinary(is_learning)  # without workers this is the user's thread
        def make(index: int) -> tuple[Any, BatchStats]:
            turn = index // ranks - first
            try:
                is_drawn_here = drawn is None and (ahead is None or caches.hold == "ids")
                sampled = maker.sample(epoch, index, order) if is_drawn_here else None
                with turns.of(turn):
                    sampled = sampled if drawn is None else drawn.take()
                    held = None if ahead is None else ahead.take()
                    sampled, held = maker.release(held) if held is not None else sampled, None
                    assert sampled is not None
                    under_way = maker.submit(assembler, sampled)
                return maker.finish(assembler, sampled, under_way, options.num_workers if is_first_alone and turn == 0 else 1)
            finally:
                turns.skip(turn)

        self._last = last = deque[Loan](maxlen=1)
        more = (lambda: bool(last) and last[0].is_back) if caches.window else None
        how = {"is_first_alone": is_first_alone, "is_given_up": more, "skipped": lambda index: turns.skip(index // ranks - first)}
        self._results = _run(make, indices, loader._workers, options, **how)
        self._recording = Recording(epoch, first, len(loader))

    def _begin_order(self) -> Order:
        """The order of this pass: a sampler of the user's is read now, once."""
        loader, order, at = self._loader, self._loader._maker.order, self._at
        if not isinstance(order, GivenOrder):
            return order
        begun = order.begin()
        sequence = begun.digest()
        if at.delivered and at.sequence not in (None, sequence):
            raise StateError(
                f"the state was taken inside epoch {at.epoch}, and the sampler gives another sequence now: set it (its generator, its "
                "epoch) to where that epoch began before the loader is made, or take shuffle=True, which needs none"
            )
        at.sequence = sequence
        loader._num_batches = loader._count_batches(begun, loader.num_ranks)
        return begun

    def __iter__(self) -> Epoch:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        thread = threading.get_ident()
        if self._asked_by.setdefault("", thread) != thread:
            raise UsageError("another thread asks this iterator for a batch just now: let one do so, or each have a loader of its own")
        try:
            return self._deliver()
        except StopIteration:
            raise
        except BaseException:
            self._results, self._has_failed = iter(()), True  # the batches after it would be counted wrong
            raise
        finally:
            self._asked_by.clear()

    def _deliver(self) -> Any:
        loader, delivery, waited_s = self._loader, self._loader._maker.delivery, getattr(self._results, "wait_s", 0.0)
        asked = loader._batch_asked(self._got)
        try:
            batch, stats = next(self._results)
        except StopIteration:
            self._recording.over(self._next, asked)
            self._at.is_over |= not self._has_failed
            raise
        started = time.perf_counter()
        batch = loader._transformed(delivery.hand_over(batch, stats.event), self._next * loader.num_ranks + loader.rank)
        if loader._options.pin_memory and delivery.device is None:
            batch = batch.pin_memory()
        stats.stage_s["deliver"] = time.perf_counter() - started
        if stats.loan is not None:
            self._last.append(stats.loan)
        loader._stats.add(stats)
        loader._stats.wait_s += getattr(self._results, "wait_s", 0.0) - waited_s
        self._recording.delivered(self._next, asked, started, stats.spans)
        if self._recording.has_begun:
            loader._recording = self._recording
        loader._huge_pages.batch_delivered()
        self._got = time.perf_counter()
        self._at.delivered = self._next = self._next + 1  # last: who is interrupted before this has not got it
        return batch


def _announce(maker: BatchMaker, caches: Caches, number: int, assembler: Assembler, sampled: Sampled) -> None:
    """Tell policies that look ahead what a batch to come of this pass will ask for."""
    started = time.perf_counter()
    with maker.working_on(sampled):
        ids = {key: assembler.host_ids_of(sampled.subgraph, key) for key in caches.top}
    is_plain = {key: sampled.are_distinct and isinstance(key, str) for key in ids}
    caches.announce(number, {key: rows if is_plain[key] else np.unique(rows) for key, rows in ids.items()})
    sampled.clock.spans.append(("decide", started, time.perf_counter(), threading.get_ident()))


def _run(work: Callable[[int], T], indices: Iterable[int], workers: Threads, options: LoaderOptions, **how: Any) -> Iterator[T]:
    """Results of `work` in order: made ahead by the workers (`how`: see `OrderedAhead`), or here and now where there are none."""
    if workers.num_threads == 0:
        return map(work, indices)
    return OrderedAhead(work, iter(indices), workers, options.max_in_flight, options.timeout_s, **how)
