"""How long work says where it is. A library stays quiet; the command line draws bars.

A stage may say nothing of its length; `advance` may come from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


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
