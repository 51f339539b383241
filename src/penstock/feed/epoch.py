"""One pass over the batches of an epoch: its order, and the counting of what it delivers.

In: an engine, which says where to begin. Out: batches, one after the other. Invariants: a pass has its own order, so that passes which
overlap, or whose threads are still at work after the user left them, do not interfere; only the latest one moves the loader's position.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

from penstock.errors import StateError, UsageError
from penstock.feed.engine import Engine, Position
from penstock.feed.maker import BatchMaker
from penstock.feed.stages import StageClock, located
from penstock.feed.stream import BatchStream
from penstock.feed.timeline import Recording
from penstock.order import GivenOrder, Order
from penstock.store.process_memory import give_back_freed_memory, let_go_of_libraries


class Epoch:
    """One pass over the batches of one epoch.

    It begins when its first batch is asked for, with whatever is the loader's next epoch then; torch's loaders read their samplers then,
    too. So asking for an iterator and leaving it changes nothing.

    Args:
        engine: of the loader.
        maker: makes the batches, where it is not the engine's.
    Attributes:
        stream: where its batches come from; None before it has begun.
    """

    def __init__(self, engine: Engine, maker: BatchMaker | None = None) -> None:
        self._engine, self._maker = engine, maker or engine.maker
        self._at = Position()
        self._next = 0
        self._stop = 0
        self._got = 0.0
        self._asked_by: dict[str, int] = {}  # the thread that is in `__next__`
        self._has_failed = self._is_transformed = False
        self.stream: BatchStream | None = None

    def begin(self) -> None:
        """Begin, where the loader stands now."""
        engine, maker = self._engine, self._maker
        if engine.caches.fitted is not None:
            let_go_of_libraries()  # pages of them that were read to load kernels
            give_back_freed_memory()
        at, stream = engine.at, engine.running
        self._at = at = replace(at) if at.is_fresh else Position(at.epoch + 1)
        if stream is None or not stream.stands_at(at.epoch, at.delivered, maker):
            with located(StageClock("order"), at.delivered * engine.num_ranks + engine.rank):  # first of all, since it may fail
                order = self._begin_order()
            stream = BatchStream(engine, maker, order, at.epoch, at.delivered)
        self._next, self._stop = at.delivered, stream.per_epoch
        self._recording = Recording(at.epoch, at.delivered, len(engine))
        engine.running = stream if engine.non_stop else None
        engine.at = at  # at once: another thread may ask for the state
        self.stream = stream
        at.is_fresh = False  # last: who is interrupted before this begins here again

    def _begin_order(self) -> Order:
        """Return the order of this pass. A sampler of the user's is read here, once per pass."""
        engine, order, at = self._engine, self._maker.order, self._at
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
        engine.num_batches = engine.options.count_batches(begun, engine.num_ranks)
        return begun

    def __iter__(self) -> Epoch:
        return self

    def __len__(self) -> int:
        return len(self._engine)

    def __next__(self) -> Any:
        thread = threading.get_ident()
        if self._asked_by.setdefault("", thread) != thread:
            raise UsageError("another thread asks this iterator for a batch just now: let one do so, or each have a loader of its own")
        try:
            if self.stream is None:
                with self._engine.beginning.lock:  # passes of several threads are of different epochs
                    self.begin()
            return self._deliver()
        except StopIteration:
            raise
        except BaseException as error:
            if self.stream is None:  # nothing has begun: the user may ask again
                raise
            if self._is_transformed and isinstance(error, Exception):  # the user's transform failed; he may go on with the next batch
                self._next += 1  # and until he does, a state stands before this one
                raise
            self._has_failed = True  # the batches after it would be counted wrong
            self.stream.close()
            raise
        finally:
            self._is_transformed = False
            self._asked_by.clear()

    def _deliver(self) -> Any:
        assert self.stream is not None
        engine, delivery, waited_s = self._engine, self._maker.delivery, self.stream.wait_s
        asked = engine.batch_asked(self._got)
        if self._has_failed or self._next >= self._stop:
            self._recording.over(self._next, asked)
            self._at.is_over |= not self._has_failed
            raise StopIteration
        batch, stats = next(self.stream)
        started = time.perf_counter()
        batch, self._is_transformed = delivery.hand_over(batch, stats.event), True
        batch = engine.transformed(batch, self._next * engine.num_ranks + engine.rank)
        self._is_transformed = False
        if engine.options.pin_memory and delivery.device is None:
            batch = batch.pin_memory()
        stats.stage_s["deliver"] = time.perf_counter() - started
        if stats.loan is not None:
            self.stream.last.append(stats.loan)
        engine.stats.add(stats)
        engine.stats.wait_s += self.stream.wait_s - waited_s
        self._recording.delivered(self._next, asked, started, stats.spans)
        if self._recording.has_begun:
            engine.recording = self._recording
        engine.huge_pages.batch_delivered()
        self._got = time.perf_counter()
        self._at.delivered = self._next = self._next + 1  # last: who is interrupted before this has not got it
        return batch
