"""Which work overlapped: the spans of work in the middle of an epoch, for as many batches as a picture can show.

In: spans that come with batches, from the threads that made them, and the times at which the user asked for each batch and got it. Out: a
few hundred spans on one time axis, and sums over them. Invariants: memory does not grow with the run; each span is whole, or cut at the
ends of the axis; threads that make batches take no lock for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from penstock.records import Span

NUM_BATCHES = 24
"""Batches on the axis."""
MAX_SPANS = 4000
"""Most spans that are kept, in case work that was done ahead is in unusually many pieces."""

TRAIN, STALL = "train", "stall"
STAGES = ("sample", "decide", "read", "gather", "update", "assemble", TRAIN, STALL)
"""Kinds of work, in the order in which a batch goes through them: its neighbourhood is sampled; a policy decides about it; missing rows are
read; rows in memory are copied into the batch; rows to keep are copied into the cache; the batch is assembled. Then, in the user's thread,
what he does with it, and how long he waits for it."""

_CALLED = {"order": "sample", "move": "assemble", "transform": "assemble", "deliver": "assemble"}


class Recording:
    """Records one pass over a loader. Used from the thread that iterates.

    Args:
        epoch: of the pass.
        first, stop: the batches that the pass delivers, counted as the loader does.
        num_batches: how many of them to record, in the middle.
    """

    def __init__(self, epoch: int, first: int, stop: int, num_batches: int = NUM_BATCHES) -> None:
        count = min(num_batches, stop - first)
        self.epoch, self.first = epoch, first + (stop - first - count) // 2
        self._stop = self.first + count
        self._since, self._until, self._returned = float("inf"), float("inf"), float("inf")
        self._kept: list[tuple[str, int, float, float, int]] = []

    @property
    def has_begun(self) -> bool:
        """Whether a batch has been recorded yet."""
        return self._since < float("inf")

    def delivered(self, number: int, asked: float, got: float, spans: Iterable[Span]) -> None:
        """Note that batch `number` was `asked` for, was there at `got`, and is returned now; times of `time.perf_counter`."""
        if number >= self.first:
            if number == self.first:
                self._since = asked
            self.over(number, asked)
            returned, me = time.perf_counter(), threading.get_ident()
            self._keep(STALL, number, asked, got, me)
            self._keep("assemble", number, got, returned, me)
            for stage, begin, end, thread in spans:
                self._keep(_CALLED.get(stage, stage), number, begin, end, thread)
            self._returned = returned

    def over(self, number: int, asked: float) -> None:
        """Note that the user is done with the batch before `number`, which he asks for now; at the end of a pass there is none."""
        if number >= self._stop:
            self._until = min(self._until, asked)
        self._keep(TRAIN, number - 1, self._returned, asked, threading.get_ident())

    def _keep(self, stage: str, number: int, begin: float, end: float, thread: int) -> None:
        begin, end = max(begin, self._since), min(end, self._until)
        if begin < end and len(self._kept) < MAX_SPANS:
            self._kept.append((stage, number, begin, end, thread))

    def as_dict(self) -> dict[str, Any] | None:
        """Return plain values, with times in seconds from the start of the axis; None where nothing was recorded.

        `spans`: [stage, batch, begin, end, thread] each, sorted by stage and begin; threads are numbered. `busy_s`: seconds of each stage,
        summed over the threads. `covered_s`: seconds in which at least one thread was at it. `read_hidden_s`: the covered seconds of
        reading in which the user did not wait.
        """
        until = max((end for _, _, _, end, _ in self._kept), default=self._since) if self._until == float("inf") else self._until
        if not self.has_begun or until <= self._since:
            return None
        threads: dict[int, int] = {}
        spans = [
            [stage, number, *(round(at - self._since, 6) for at in (begin, min(end, until))), threads.setdefault(thread, len(threads))]
            for stage, number, begin, end, thread in sorted(self._kept, key=lambda span: (STAGES.index(span[0]), span[2]))
            if begin < until
        ]
        stages = {stage: [(begin, end) for name, _, begin, end, _ in spans if name == stage] for stage in STAGES}
        covered = {stage: merge(ours) for stage, ours in stages.items() if ours}
        reading = covered.get("read", [])
        return {
            "epoch": self.epoch,
            "first_batch": self.first,
            "num_batches": self._stop - self.first,
            "seconds": round(until - self._since, 6),
            "busy_s": {stage: round(sum(end - begin for begin, end in ours), 6) for stage, ours in stages.items() if ours},
            "covered_s": {stage: round(_length(ours), 6) for stage, ours in covered.items()},
            "read_hidden_s": round(_length(reading) - _common(reading, covered.get(STALL, [])), 6),
            "spans": spans,
        }


def merge(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the union of spans, as disjoint spans in order."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _length(merged: list[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in merged)


def _common(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> float:
    """Seconds that lie in both of two unions, as `merge` returns them."""
    return _length(one) + _length(other) - _length(merge([*one, *other]))
