"""The arguments of torch's DataLoader that a loader takes, and what goes with them, checked once; others are in `feed/arguments.py`.

`docs/compat.md` lists every argument with its state.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import torch

from penstock.errors import UsageError, argument, did_you_mean
from penstock.order import Order
from penstock.plan import Plan

logger = logging.getLogger("penstock")

_IGNORED = ("dataset", "collate_fn", "persistent_workers", "multiprocessing_context", "in_order", "pin_memory_device")
"""Accepted without effect: they are about worker processes, of which there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOptions:
    """Arguments of torch's DataLoader, as far as they have a meaning here, and how many batches an epoch has.

    Attributes:
        batch_size, shuffle, drop_last: as in torch.
        batches_per_epoch: of each rank, at most; None: as many as there are.
        num_workers: sampling threads; 0 makes batches in the caller's thread, where torch's number of threads share the copying.
        max_in_flight: batches in the making or waiting, at most.
        max_read_ahead: the same where samples are drawn ahead of rows from a disk: two readers keep a disk busy, and the memory of further
            batches is better used for kept rows.
        timeout_s: raise when a batch takes longer; 0 never.
        pin_memory: deliver page-locked batches (only where CUDA is available).
        sampler, batch_sampler: the user's own order of positions, or of batches of positions.
    """

    batch_size: int
    shuffle: bool
    drop_last: bool
    batches_per_epoch: int | None
    num_workers: int
    max_in_flight: int
    max_read_ahead: int
    timeout_s: float
    pin_memory: bool
    sampler: Iterable[int] | None
    batch_sampler: Iterable[list[int]] | None

    def under_way(self, *, is_read_ahead: bool) -> int:
        """Most batches in the making or waiting; `is_read_ahead`: see `Plan`."""
        return self.max_read_ahead if is_read_ahead else self.max_in_flight

    def count_batches(self, order: Order, num_ranks: int) -> int:
        """Number of batches of an epoch, over all ranks."""
        count = order.num_batches(self.batch_size, self.drop_last)
        return count - count % num_ranks if self.drop_last else count

    def ahead(self) -> LoaderOptions:
        """Return the options with at least one thread: with a device, batches are made ahead by another thread than the training's."""
        return self if self.num_workers else replace(self, num_workers=1, max_in_flight=2, max_read_ahead=2)


def read_options(
    loader: type,
    *,
    batch_size: Any = 1,
    shuffle: Any = False,
    sampler: Any = None,
    batch_sampler: Any = None,
    num_workers: Any = 0,
    prefetch_factor: Any = None,
    drop_last: Any = False,
    timeout: Any = 0,
    pin_memory: Any = False,
    worker_init_fn: Any = None,
    batches_per_epoch: Any = None,
    **others: Any,
) -> LoaderOptions:
    """Turn the DataLoader's keyword arguments into options; UsageError for unknown ones. `loader`: its class, for messages."""
    if worker_init_fn is not None:
        logger.warning("worker_init_fn is not called: batches are made by threads of this process, which draw by the loader's seed")
    unknown = sorted(others.keys() - set(_IGNORED))
    if unknown:
        near = did_you_mean(unknown[0], [*signature(read_options).parameters, *signature(loader).parameters])
        raise UsageError(f"unknown argument {unknown[0]!r} for {loader.__name__}{near}")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise UsageError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if sampler is not None and shuffle:
        raise UsageError("sampler excludes shuffle")
    if not _is_int(batch_size) or batch_size < 1:
        raise UsageError(f"{argument('batch_size')} must be a whole number from 1, got {batch_size!r}")
    if batches_per_epoch is not None and (not _is_int(batches_per_epoch) or batches_per_epoch < 1):
        raise UsageError(f"{argument('batches_per_epoch')} must be a whole number from 1, got {batches_per_epoch!r}")
    if batches_per_epoch is not None and (sampler is not None or batch_sampler is not None):
        raise UsageError(f"{argument('batches_per_epoch')} excludes sampler and batch_sampler, which say what batches there are")
    most = max(32, 4 * (os.cpu_count() or 1))
    if not _is_int(num_workers) or not 0 <= num_workers <= most:
        raise UsageError(
            f"{argument('num_workers')} must lie in [0, {most}] on this machine of {os.cpu_count()} cores, got {num_workers!r}: "
            "it is a number of threads"
        )
    if prefetch_factor is not None and (not _is_int(prefetch_factor) or prefetch_factor < 1):
        raise UsageError(f"prefetch_factor must be a whole number from 1, got {prefetch_factor!r}")
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise UsageError(f"timeout is a number of seconds, 0 or more (0: never); got {timeout!r}")
    return LoaderOptions(
        batch_size=int(batch_size),
        shuffle=bool(shuffle),
        drop_last=bool(drop_last),
        batches_per_epoch=None if batches_per_epoch is None else int(batches_per_epoch),
        num_workers=int(num_workers),
        max_in_flight=int(num_workers + 1 if prefetch_factor is None else max(1, num_workers * prefetch_factor)),
        max_read_ahead=2 if prefetch_factor is None else int(prefetch_factor),
        timeout_s=float(timeout),
        pin_memory=bool(pin_memory) and torch.cuda.is_available(),
        sampler=sampler,
        batch_sampler=batch_sampler,
    )


def samples_ahead(plan: Plan, num_threads: int) -> int:
    """Most samples in the making or waiting, where they are drawn ahead of their rows: one more than threads; or twice as many as threads,
    where lists are read for all threads together, so that all can begin their next samples together while the last ones wait."""
    return 2 * num_threads if plan.topology == "disk" else num_threads + 1


def choose_seed(seed: int | None, generator: torch.Generator | None) -> int:
    """Return the seed given, else the generator's, else that of torch.manual_seed (torch has a default)."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise UsageError(f"generator must be a torch.Generator, of which the seed is taken; got {type(generator).__name__}")
    if seed is None:
        seed = (generator.initial_seed() if generator is not None else torch.initial_seed()) % (1 << 64)
    if not _is_int(seed) or not 0 <= seed < 1 << 64:
        raise UsageError(f"{argument('seed')} must be a whole number in [0, 2**64), got {seed!r}")
    return int(seed)


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
