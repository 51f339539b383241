"""Samples that a device draws in the order of the batches: it draws the next one while the host works on the last one.

In: a maker whose device draws, and the places of a pass. Out: samples. Invariants: one is drawn ahead at a time, in one workspace for all
of them; an error is raised where the batch that it is about is taken.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.feed.maker import BatchMaker, Sampled
from penstock.feed.stages import StageClock, located
from penstock.order import Order

if TYPE_CHECKING:
    from penstock.feed.stream import Place


class DrawnAhead:
    """Call `take` once per batch, in order; it is not safe from several threads at once.

    Args:
        maker: the maker, whose device draws.
        places, order: of the batches, see `BatchMaker.sample`.
    """

    def __init__(self, maker: BatchMaker, places: Iterator[Place], order: Order) -> None:
        self._maker, self._places, self._order = maker, places, order
        self._workspace: Any = None
        self._next: Callable[[], Sampled] | None = None

    def take(self) -> Sampled:
        """Return the next sample, and have the one after it drawn."""
        if self._workspace is None:  # not before: a pass may begin in inference mode
            self._workspace = self._maker.borrow_workspace()
            weakref.finalize(self, _end, self._maker, self._workspace, os.getpid()).atexit = False
        wait, self._next = self._next or self._ask(next(self._places)), None
        sampled = wait()
        del wait  # and what the sample was made in, before the next one takes as much
        if (following := next(self._places, None)) is not None:
            self._next = self._ask(following)
        return sampled

    def _ask(self, place: Place) -> Callable[[], Sampled]:
        """Ask for a sample. Returns a function that waits for it, or raises what went wrong."""
        maker, clock = self._maker, StageClock("order")
        try:
            with located(clock, place.index):
                positions = self._order.batch(place.epoch, place.index, maker.batch_size)
                wait = maker.ask(clock, positions, place.epoch, place.index, self._workspace)
        except Exception as error:
            return _raising(error)

        def located_wait() -> Sampled:
            with located(clock, place.index):
                return wait()

        return located_wait


def _end(maker: BatchMaker, workspace: Any, pid: int) -> None:
    """End a pass that is over, or was left: a sample may be under way, except in a forked child, which has no device."""
    if os.getpid() == pid:
        maker.delivery.end_drawing()
    maker.give_back(workspace)


def _raising(error: Exception) -> Callable[[], Sampled]:
    def wait() -> Sampled:
        raise error

    return wait
