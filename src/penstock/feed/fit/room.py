"""Whether the container around this process has the memory that training takes, where no budget was given.

In: what makes batches, and a training step. Out: a bound to stay within, a warning if need be, or a refusal. Beyond the limit of its
container a process is killed without a word, minutes later; so a step is tried first, on ever larger parts of a batch, within what is left.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.errors import BudgetError, argument
from penstock.feed.caches import Caches
from penstock.feed.fit.memory import FILES_BYTES, PROBED_SHARES, Bound, measure_batch, measure_step
from penstock.feed.fit.profile import MIN_BATCHES, take_profile
from penstock.feed.maker import BatchMaker
from penstock.records import NODE, NodeType
from penstock.store.budget import format_bytes
from penstock.store.process_memory import (
    anonymous_bytes,
    free_in_container,
    keeps_freed_memory,
    let_go_of_libraries,
    resident_bytes_outside,
    stop_keeping_freed_memory,
)
from penstock.store.tiers import advise_random

FIRST_SHARES = (1 / 64, PROBED_SHARES[0])
"""Of a batch, that are tried first: the smaller one tells whether there is room for the other."""
OF_SEVERAL = 1.25
"""What each of several processes takes, to what it measures: over parts also for rows that others read off it. 290 of 233 MiB."""
PLENTY = 4
"""What is left, to what an eighth of a batch lets expect, where no more of it is tried."""

logger, progress = logging.getLogger("penstock"), logging.getLogger("penstock.progress")


def check_room(
    maker: BatchMaker,
    caches: Caches,
    *,
    num_threads: int,
    max_in_flight: int,
    step: Callable[[Any], object],
    num_here: int = 1,
    files: Sequence[np.ndarray] = (),
) -> Bound | None:
    """See above; batches and the model stay what they are.

    Args:
        maker: with memory of its own. caches: that are filled.
        num_threads, max_in_flight: that make batches, and batches at once.
        step: a training step on a copy of the model.
        num_here: processes that do so at the same time in this container: each may take its share of what is left.
        files: maps that batches read at random: where the page cache has no room for them, what follows a row is not read along.
    Returns:
        What may be held between two batches; None: there is no limit near.
    Raises:
        BudgetError: one step on one batch takes more than is left; of several processes here, all that a process needs.
    """
    left = free_in_container()
    if left is None or maker.sampler.induced:
        return None
    left, held_bytes = left // num_here, anonymous_bytes()
    profile, row_bytes = take_profile(maker, (), MIN_BATCHES), Counter[NodeType]()
    for one in maker.source.fields()[0]:
        row_bytes[one.key if isinstance(one.key, str) else NODE] += one.source.row_bytes
    batch = measure_batch(profile, row_bytes, None)
    let_go_of_libraries()  # as each trial does: their pages are no room for a step
    most = resident_bytes_outside(".npy") + left

    def planned(*shares: float) -> tuple[int, int]:
        _, step_bytes = measure_step(maker, caches, profile, step, None, most, shares)
        batches_bytes = (max_in_flight + 1) * (batch.sample + batch.rows) + num_threads * profile.workspace_bytes
        return step_bytes, int((OF_SEVERAL if num_here > 1 else 1) * (step_bytes + batches_bytes)) + FILES_BYTES

    step_bytes, num_bytes = planned(*FIRST_SHARES)
    left -= min(left, max(0, anonymous_bytes() - held_bytes))  # what a first step leaves for good, such as Adam's moments of learnt rows
    read_apart(files, num_here * (left - num_bytes))
    if PLENTY * num_bytes < left:
        return None
    is_near = num_here > 1 and num_bytes > left  # where several processes try more at once, all are killed
    shares = FIRST_SHARES if is_near else (FIRST_SHARES[0], *PROBED_SHARES)
    step_bytes, num_bytes = planned(*shares)
    if num_bytes > left and keeps_freed_memory():
        stop_keeping_freed_memory()  # slower, but less
        step_bytes, num_bytes = planned(*shares)
    each = f" for each of {num_here} processes" if num_here > 1 else ""
    what, room = "without a budget this takes about", f"the container around this process has {format_bytes(left)} left{each}"
    error = BudgetError(f"{what} {format_bytes(num_bytes)}, and {room}: give {argument('host_memory')}, or take smaller batches or fanouts")
    if num_bytes > left:
        if is_near or step_bytes + batch.sample + batch.rows > left:
            raise error
        logger.warning(error)
    return Bound.below(anonymous_bytes() + left, step_bytes)


def read_apart(files: Sequence[np.ndarray], left: int) -> None:
    """Where the page cache has no room for maps that are read at random, what follows a row is not read along: each row would bring
    megabytes, and drop what the next one needs. Arrays that are no maps stay what they are."""
    apart = [file for file in files if advise_random(file)] if sum(file.nbytes for file in files) > left else []
    if apart:
        progress.info(
            "%s of features and neighbour lists have no room beside batches in the container around this process, and come page by page: "
            "--features disk --topology disk reads many at once",
            format_bytes(sum(file.nbytes for file in apart)),
        )
