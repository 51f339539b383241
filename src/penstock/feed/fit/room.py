"""Check that the container around this process has the memory that training takes, where no budget was given.

In: a batch maker and a training step. Out: a bound on memory, with a warning if fewer batches fit; or a refusal. A process that exceeds the
limit of its container is killed without a message, minutes later. So a step is tried first, on growing parts of a batch, as far as the
remaining memory allows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import BudgetError, argument
from penstock.feed.caches import Caches
from penstock.feed.fit.memory import (
    FILES_BYTES,
    NEW_SHARE,
    PROBED_SHARES,
    STEP_BYTES_PER_ROW_BYTE,
    BatchBytes,
    Bound,
    measure_batch,
    measure_step,
    reading_bytes,
)
from penstock.feed.fit.profile import MIN_BATCHES, Profile, take_profile
from penstock.feed.huge_pages import read_at_random
from penstock.feed.maker import BatchMaker
from penstock.feed.options import samples_ahead
from penstock.order import GivenOrder
from penstock.plan import Plan
from penstock.records import NODE
from penstock.store.budget import format_bytes
from penstock.store.process_memory import (
    anonymous_bytes,
    free_in_container,
    keeps_freed_memory,
    let_go_of_libraries,
    resident_bytes_outside,
    stop_keeping_freed_memory,
)
from penstock.store.tiers import advise_random, is_map

FIRST_SHARES, ALL_SHARES = (1 / 64, PROBED_SHARES[0]), (1 / 64, *PROBED_SHARES)
"""Shares of a batch on which a step is tried, first and in all: a trial on a small share shows whether there is room for a larger one."""
OF_SEVERAL = 1.5
"""Factor on the measured memory of batches if several processes run in the container; of a partition, it also covers serving rows to other
processes."""
PLENTY = 4
"""If the memory left is more than this many times the estimate from an eighth of a batch, larger shares are not tried."""

logger = logging.getLogger("penstock")
_is_said = False


@dataclass(frozen=True, slots=True)
class Room:
    """What a container has room for.

    Attributes:
        bound: on the memory held between two batches.
        num_workers: threads that make batches; 0: batches are made between the steps.
        max_in_flight: batches being made or waiting at once.
    """

    bound: Bound
    num_workers: int
    max_in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    """Memory that a run takes beside what the process holds now.

    Attributes:
        plan, reads: how the run reads batches.
        profile, batch: sizes of its batches.
        num_threads, max_in_flight: most threads that make batches; most batches at once.
        num_here: processes of the run in this container.
    """

    plan: Plan
    reads: Caches
    profile: Profile
    batch: BatchBytes
    num_threads: int
    max_in_flight: int
    num_here: int

    def threads(self, in_flight: int) -> int:
        """Return the number of threads that make `in_flight` batches."""
        return self.num_threads if in_flight == self.max_in_flight else min(self.num_threads, in_flight)

    def total(self, step_bytes: int, in_flight: int) -> int:
        """Return the bytes of a step, of the batch it runs on, and of `in_flight` further batches being made or waiting."""
        batch, threads = self.batch, max(1, self.threads(in_flight))
        num_bytes = (in_flight + 1) * (batch.sample + batch.rows) + threads * self.profile.workspace_bytes
        if self.reads.disks:
            num_bytes += reading_bytes(self.plan, self.reads, batch, threads, max(1, in_flight))
        if self.plan.is_read_ahead:
            num_bytes += samples_ahead(self.plan, threads) * batch.sample + self.plan.window * self.profile.held_bytes
        return step_bytes + int((OF_SEVERAL if self.num_here > 1 else 1) * num_bytes)

    def at_once(self, step_bytes: int, left: int) -> int:
        """Return how many batches fit beside a step; 0: batches are made between the steps."""
        fitting = (count for count in range(self.max_in_flight, 0, -1) if self.total(step_bytes, count) + FILES_BYTES <= left)
        return next(fitting, 0)

    def said(self, num_bytes: int, left: int, advice: str) -> BudgetError:
        """Return the error to raise or to log."""
        each = f" for each of {self.num_here} processes" if self.num_here > 1 else ""
        room = f"the container around this process has {format_bytes(left)} left{each}"
        return BudgetError(f"without a budget this takes about {format_bytes(num_bytes)}, and {room}: {advice}")


def check_room(
    maker: BatchMaker,
    caches: Caches,
    reads: Caches,
    plan: Plan,
    *,
    num_threads: int,
    max_in_flight: int,
    step: Callable[[Any], object] | None,
    num_here: int = 1,
    files: Sequence[np.ndarray] = (),
) -> Room | None:
    """See above; does not change batches or the model.

    Args:
        maker, caches: make the batches to try, from maps; they have memory of their own.
        reads, plan: how the run reads batches.
        num_threads, max_in_flight: threads that make batches; batches at once.
        step: a training step on a copy of the model. None: assume that it takes twice the features of a batch; then nothing is checked if
            the files that batches are made from fit into memory, or if the order is given by the caller.
        num_here: processes that run at the same time in this container; each may take its share of the memory left.
        files: maps that batches read at random. If the page cache has no room for them, read-ahead is turned off.
    Returns:
        What there is room for, with fewer batches at once if not all fit; None: the limit is far, or cannot be checked (as for induced
        sampling).
    Raises:
        BudgetError: one step on one batch takes more than is left; without a step, two batches do.
    """
    left = free_in_container()
    if left is None:
        return None
    left, held_bytes = left // num_here, anonymous_bytes()
    is_partitioned = maker.source.graph.is_partitioned
    num_readers = 1 if is_partitioned else num_here  # processes that read the same files
    read_apart(files, num_readers * left, is_partitioned=is_partitioned)  # the first batches are read now
    tried = read_at_random(Plan(), maker)  # a trial reads maps, whatever the run reads
    most_at_once = max_in_flight + 1 + STEP_BYTES_PER_ROW_BYTE
    is_small = step is None and most_at_once * sum(file.nbytes for file in tried) <= left
    if maker.sampler.induced or is_small or (step is None and isinstance(maker.order, GivenOrder)):
        return None
    read_apart(tried, num_readers * left, is_certain=False)
    profile = take_profile(maker, (), 1 if step is None else MIN_BATCHES)
    row_bytes = Counter({t: table.row_bytes for t, table in caches.of_nodes.items()})
    for one in maker.source.fields()[0]:
        row_bytes[one.key if isinstance(one.key, str) else NODE] += one.source.row_bytes
    needs = _Needs(
        plan=plan, reads=reads, profile=profile, batch=measure_batch(profile, row_bytes, None), num_threads=num_threads,
        max_in_flight=max_in_flight, num_here=num_here,
    )  # fmt: skip
    let_go_of_libraries()  # each trial does so too; pages of libraries are not room for a step
    most = resident_bytes_outside(".npy") + left
    first = argument("host_memory") if num_here > 1 and not is_partitioned else "it more memory"
    advice = f"give {first}, or take smaller batches or fanouts"

    def try_step(shares: Sequence[float]) -> tuple[int, int]:
        if step is None:
            step_bytes = int(STEP_BYTES_PER_ROW_BYTE * needs.batch.rows)
        else:
            _, step_bytes = measure_step(maker, caches, profile, step, None, most, shares)
        return step_bytes, needs.total(step_bytes, max_in_flight)

    if needs.total(0, 0) > (spare := left - max(0, anonymous_bytes() - held_bytes)):
        raise needs.said(needs.total(0, 0), max(0, spare), advice)
    step_bytes, num_bytes = try_step(FIRST_SHARES)
    left -= min(left, max(0, anonymous_bytes() - held_bytes))  # memory that a first step keeps, such as Adam's moments of learnt rows
    read_apart(tried, num_readers * (left - num_bytes), is_certain=False)
    if PLENTY * num_bytes < left:
        return None
    is_near = num_here > 1 and num_bytes > left  # if several processes try larger shares at once, all are killed
    step_bytes, num_bytes = try_step(FIRST_SHARES if is_near else ALL_SHARES)
    if num_bytes > left and keeps_freed_memory():
        stop_keeping_freed_memory()  # slower, but takes less memory
        step_bytes, num_bytes = try_step(FIRST_SHARES if is_near else ALL_SHARES)
    if is_near and needs.total(step_bytes, 0) <= left:
        step_bytes, num_bytes = try_step(ALL_SHARES)
    at_once = needs.at_once(step_bytes, left)
    certain_bytes = needs.batch.sample + needs.batch.rows if step is None else step_bytes  # a loop holds a batch until it has the next
    if needs.total(certain_bytes, at_once) > left:
        raise needs.said(needs.total(certain_bytes, 0), left, advice)
    if at_once < max_in_flight:
        slower = f"batches made ahead are {at_once}, not {max_in_flight}, which takes longer"
        logger.warning(needs.said(num_bytes + FILES_BYTES, left, slower))
    known = num_readers * (left - needs.total(step_bytes, at_once))
    read_apart(files, known, is_partitioned=is_partitioned)  # now with a better estimate
    new_share = NEW_SHARE if keeps_freed_memory() else 1.0  # else a step finds little freed memory of the sizes that it needs
    return Room(Bound.below(anonymous_bytes() + left, step_bytes, new_share), needs.threads(at_once), max(1, at_once))


def read_apart(files: Sequence[np.ndarray], left: int, *, is_certain: bool = True, is_partitioned: bool = False) -> None:
    """Turn read-ahead off for maps that are read at random, if they are larger than `left` bytes of page cache: each row would load
    megabytes and evict what the next rows need. Reading is slow all the same; if `is_certain`, a warning says so, once per process.
    `is_partitioned`: the files belong to a part of a partition, for which there are no budgets."""
    global _is_said
    maps = [file for file in files if is_map(file)]
    num_bytes = sum(file.nbytes for file in maps)
    if num_bytes <= left:
        return
    for file in maps:
        advise_random(file)
    if is_certain and not _is_said:
        _is_said = True
        room = f"the page cache has {format_bytes(max(0, left))} in the container around this process"
        budget = f"{argument('host_memory')}, a little less than the limit, and many rows are read at once"
        advice = f"give {'it more memory' if is_partitioned else budget}"
        logger.warning(BudgetError(f"batches read files of {format_bytes(num_bytes)} row by row, for which {room}: {advice}"))
