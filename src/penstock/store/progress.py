"""How long work says where it is. A library stays quiet; the command line draws bars.

A stage may say nothing of its length; `advance` may come from any thread. What a loader finds out before its first batch is begun deep
within it, so it tells the log `penstock.progress` (INFO), and `penstock train` prints that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")

logger = logging.getLogger("penstock.progress")

_FIRST_S, _THEN_S = 10.0, 60.0


class Progress(Protocol):
    """Receives what long work reports."""

    def note(self, message: str) -> None:
        """Say something that stays, such as the forecast; may have several lines."""

    def begin(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage of `total` units ("rows", "bytes"), None where nobody knows."""

    def advance(self, amount: int) -> None:
        """Count units of the current stage."""

    def end(self) -> None:
        """End the current stage."""


class Quiet(Progress):
    """Says nothing."""


@contextmanager
def stage(progress: Progress, name: str, total: int | None, unit: str = "rows") -> Iterator[None]:
    """Report a stage around a block, and its end also when the block fails."""
    progress.begin(name, total, unit)
    try:
        yield
    finally:
        progress.end()


def told(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Pass items on, and tell the log how many there were: after ten seconds, then once a minute."""
    due = time.monotonic() + _FIRST_S
    for number, item in enumerate(items, 1):
        yield item
        if time.monotonic() >= due:
            due = time.monotonic() + _THEN_S
            logger.info("%s %s of %s", what, f"{number:,}", f"{total:,}")


@contextmanager
def hearing(say: Callable[[str], None]) -> Iterator[None]:
    """Give somebody what the log is told within the block, from any thread."""
    handler, level = logging.Handler(logging.INFO), logger.level
    handler.emit = lambda record: say(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
