"""Times of sampling a batch, gathering its rows and training on it on this machine, which decide the number of samplers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.feed.assemble import Assembler
from penstock.feed.neighbor_loader import NeighborLoader
from penstock.plan import Times

NUM_BATCHES = 5
"""Batches measured, after a first one that is not: it touches new pages and compiles kernels."""


def measure_times(loader: NeighborLoader, step: Callable[[Any], object], *, num_batches: int = NUM_BATCHES) -> Times:
    """Make a few batches of a loader in this thread, and take a step with each.

    Args:
        loader: not iterated over; only the content of its caches changes.
        step: batch -> anything: a training step, on a copy of the model.
        num_batches: batches measured, of epoch 0, repeated if it has fewer.
    """
    engine, maker, spent = loader.engine, loader.engine.maker, [0.0, 0.0, 0.0]
    for number in range(num_batches + 1):
        marks = [time.perf_counter()]
        sampled = maker.sample(0, number % engine.num_batches)
        marks.append(time.perf_counter())
        assembler = Assembler(maker.source, engine.caches)
        batch, stats = maker.finish(assembler, sampled, maker.submit(assembler, sampled))
        batch = engine.transformed(maker.delivery.hand_over(batch, stats.event), sampled.index)
        maker.delivery.settle()
        marks.append(time.perf_counter())
        step(batch)
        maker.delivery.settle()
        marks.append(time.perf_counter())
        if number:
            spent = [total + end - begin for total, begin, end in zip(spent, marks, marks[1:], strict=False)]
    return Times(*(total / num_batches for total in spent))
