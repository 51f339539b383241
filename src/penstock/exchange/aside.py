"""Wait for other processes of a `torch.distributed` group in another thread, because waits of torch ignore signals and report nothing.

In: work that waits. Out: its result or exception. Invariant: the work of a group is done in the order of submission. After a wait that was
given up, no work is done, since the other processes are then at another point.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from penstock.kernels._cuda import on_stream

T = TypeVar("T")

logger = logging.getLogger("penstock")

Asked = tuple[Callable[[], Any], Any, Future[Any]]
"""Work, the current stream, and the future for its result."""

_LOOK_S = 0.5
_PATIENCE_S = 60.0


class Aside:
    """A thread for work that waits; started when it is needed, and abandoned if a wait is given up.

    Attributes:
        is_given_up: an exception, for instance by a signal, ended a wait that continues in the thread.
    """

    def __init__(self) -> None:
        self.is_given_up = False
        self._asked: SimpleQueue[Asked | None] | None = None

    def do(self, work: Callable[[], T], look: Callable[[float], None] | None = None) -> T:
        """Do work in the thread, on this thread's current device stream. Raises KeyboardInterrupt after a wait that was given up.

        Args:
            work: the work that waits.
            look: called now and then with the seconds waited so far; None: log a warning after a minute, then each time after twice as
                long.
        """
        if self.is_given_up:
            raise KeyboardInterrupt
        if self._asked is None:
            self._asked = SimpleQueue()
            threading.Thread(target=_serve, args=(self._asked,), name="wait-for-others", daemon=True).start()
            weakref.finalize(self, self._asked.put, None)
        look, done, since = look or _Patience(), Future[T](), time.monotonic()
        self._asked.put((work, torch.cuda.current_stream() if torch.cuda.is_initialized() else None, done))
        try:
            while True:
                try:
                    return done.result(_LOOK_S)
                except TimeoutError:
                    if done.done():
                        return done.result()
                look(time.monotonic() - since)
        except BaseException:
            self.is_given_up = not done.done()
            raise


def aside_of(group: Any) -> Aside:
    """Return the `Aside` for work of a `torch.distributed` group; None: the default group."""
    return _of_groups.setdefault(dist.group.WORLD if group is None else group, Aside())


def gather_objects(value: Any, group: Any) -> list[Any]:
    """Return the values of all processes of a group, by their rank in it."""
    said: list[Any] = [None] * dist.get_world_size(group)
    aside_of(group).do(lambda: dist.all_gather_object(said, value, group))
    return said


_of_groups: weakref.WeakKeyDictionary[Any, Aside] = weakref.WeakKeyDictionary()


class _Patience:
    """Logs that a wait continues: a machine that was cut off is not noticed otherwise."""

    def __init__(self) -> None:
        self._said_s = 0.0

    def __call__(self, waited_s: float) -> None:
        if waited_s >= max(_PATIENCE_S, 2 * self._said_s):
            self._said_s = waited_s
            logger.warning(
                "this process has waited for the others for %.0f s: one is at work, stands still, or its machine is gone; if it is, end "
                "them (Ctrl-C twice, or SIGTERM), start all again, and resume from the last checkpoint",
                waited_s,
            )


def _serve(asked: SimpleQueue[Asked | None]) -> None:
    while (each := asked.get()) is not None:
        work, stream, done = each
        try:
            with on_stream(stream):
                result = work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)
        del each, work, stream, done  # else they are kept alive until the next item
