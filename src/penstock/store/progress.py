"""Progress of long work. The library is quiet by default; the command line draws bars.

The length of a stage may be unknown; `advance` may be called from any thread. Work that a loader does before its first batch starts deep
inside it, so it reports to the log `penstock.progress` (INFO) instead, which `penstock train` prints.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")

logger = logging.getLogger("penstock.progress")

_FIRST_S, _THEN_S = 10.0, 60.0


class Progress(Protocol):
    """Receives reports of long work."""

    def note(self, message: str) -> None:
        """Show a message that stays, such as the forecast; it may have several lines."""

    def begin(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage of `total` units ("rows", "bytes"); None if the total is unknown."""

    def advance(self, amount: int) -> None:
        """Count units of the current stage."""

    def end(self) -> None:
        """End the current stage."""


class Quiet(Progress):
    """Ignores all reports."""


@contextmanager
def stage(progress: Progress, name: str, total: int | None, unit: str = "rows") -> Iterator[None]:
    """Report a stage around a block; its end is reported also if the block fails."""
    progress.begin(name, total, unit)
    try:
        yield
    finally:
        progress.end()


def told(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Yield the items, and log how many there were: after ten seconds, then once a minute."""
    due = time.monotonic() + _FIRST_S
    for number, item in enumerate(items, 1):
        yield item
        if time.monotonic() >= due:
            due = time.monotonic() + _THEN_S
            logger.info("%s %s of %s", what, f"{number:,}", f"{total:,}")


@contextmanager
def told_meanwhile(what: str, share: Callable[[], float]) -> Iterator[None]:
    """While a single long call runs within the block, log which share of it is done: after ten seconds, then once a minute."""
    over = threading.Event()

    def watch() -> None:
        wait_s = _FIRST_S
        while not over.wait(wait_s):
            logger.info("%s %.0f %%", what, 100 * share())
            wait_s = _THEN_S

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextmanager
def hearing(say: Callable[[str], None]) -> Iterator[None]:
    """Pass messages of the progress log to `say` within the block, from any thread."""
    handler, level = logging.Handler(logging.INFO), logger.level
    handler.emit = lambda record: say(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
