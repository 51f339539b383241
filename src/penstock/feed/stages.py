"""Which stage a batch is in, how long the stages took, and which one of which batch an error is of."""

from __future__ import annotations

import threading
import time

from penstock.errors import PenstockError, PipelineError, line_of
from penstock.records import Span


class StageClock:
    """Which stage a batch is in, and the seconds of those before; `spans` say of the finer parts when they were done."""

    __slots__ = ("_since", "seconds", "spans", "stage")

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self._since: float | None = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.spans: list[Span] = []

    def enter(self, stage: str) -> None:
        """End the stage, if one is running, and begin the next."""
        self.rest()
        self.stage, self._since = stage, time.perf_counter()

    def rest(self) -> None:
        """End the stage; what follows belongs to none."""
        if self._since is not None:
            now = time.perf_counter()
            self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self._since
            if self.stage != "gather":  # its parts have spans of their own
                self.spans.append((self.stage, self._since, now, threading.get_ident()))
            self._since = None


class located:
    """Says of an error within the block where it happened. Not a generator: those take a StopIteration for their own end."""

    def __init__(self, clock: StageClock, index: int) -> None:
        self._clock, self._index = clock, index

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            raise locate(error, self._clock.stage, self._index) from error


def locate(error: Exception, stage: str, index: int) -> Exception:
    """Say where an error happened. Errors of ours keep their type; any other becomes a PipelineError with the error as its cause."""
    if isinstance(error, PenstockError):
        error.args = (f"{error} (stage {stage}, batch {index})",)
        return error
    what = line_of(error) if isinstance(error, OSError) else error
    return PipelineError(f"{type(error).__name__} in stage {stage} of batch {index}: {what}", stage=stage, batch=index)
