"""What a loader takes of torch's DataLoader, checked once, and its seed; the rest is in `feed/arguments.py`.

`docs/compat.md` lists every argument with its state.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from penstock.errors import UsageError, argument
from penstock.plan import Plan

logger = logging.getLogger("penstock")

_IGNORED = ("dataset", "collate_fn", "persistent_workers", "multiprocessing_context", "in_order", "pin_memory_device")
"""Accepted and without effect: they steer worker processes, of which there are none."""

_NAMES = (
    "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "prefetch_factor", "drop_last", "timeout", "pin_memory",
    "generator", "num_neighbors", "input_nodes", "replace", "subgraph_type", "disjoint", "weight_attr", "transform",
    "transform_sampler_output", "is_sorted", "filter_per_worker", "input_id", "custom_cls", "seed", "split", "order", "rank",
    "num_ranks", "plan", "features", "step", "device", "shards",
)  # fmt: skip
"""What a misspelt name may have meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOptions:
    """What torch's DataLoader takes, as far as it has a meaning here.

    Attributes:
        batch_size, shuffle, drop_last: as in torch.
        num_workers: sampling threads; 0 makes batches in the caller's thread.
        max_in_flight: batches in the making or waiting.
        max_read_ahead: the same where samples are drawn ahead of rows from a disk, which two readers keep busy: what a batch holds is
            memory that kept rows could have.
        timeout_s: raise when a batch takes longer; 0 never.
        pin_memory: deliver page-locked batches (only where CUDA is available).
        sampler, batch_sampler: the user's own order of positions, or of batches of positions.
    """

    batch_size: int = 1
    shuffle: bool = False
    drop_last: bool = False
    num_workers: int = 0
    max_in_flight: int = 1
    max_read_ahead: int = 1
    timeout_s: float = 0.0
    pin_memory: bool = False
    sampler: Iterable[int] | None = None
    batch_sampler: Iterable[list[int]] | None = None

    def under_way(self, *, is_read_ahead: bool) -> int:
        """Batches in the making or waiting; `is_read_ahead`: see `Plan`."""
        return self.max_read_ahead if is_read_ahead else self.max_in_flight

    def ahead(self) -> LoaderOptions:
        """The same with one thread at least: a device is asked for batches ahead by another thread than the training's."""
        return self if self.num_workers else replace(self, num_workers=1, max_in_flight=2, max_read_ahead=2)


def read_options(kwargs: dict[str, Any]) -> LoaderOptions:
    """Turn DataLoader keyword arguments into options; empties `kwargs` of all it knows and raises for the rest."""
    for name in _IGNORED:
        kwargs.pop(name, None)
    kwargs.pop("generator", None)
    if kwargs.pop("worker_init_fn", None) is not None:
        logger.warning("worker_init_fn is not called: batches are made by threads of this process, which draw by the loader's seed")
    batch_size, sampler, batch_sampler = kwargs.pop("batch_size", 1), kwargs.pop("sampler", None), kwargs.pop("batch_sampler", None)
    shuffle, drop_last = bool(kwargs.pop("shuffle", False)), bool(kwargs.pop("drop_last", False))
    num_workers, prefetch = kwargs.pop("num_workers", 0), kwargs.pop("prefetch_factor", None)
    timeout_s, pin_memory = kwargs.pop("timeout", 0), bool(kwargs.pop("pin_memory", False))
    if kwargs:
        name = sorted(kwargs)[0]
        near = difflib.get_close_matches(name, _NAMES, 1)
        raise UsageError(f"unknown argument {name!r} for NeighborLoader" + (f": did you mean {near[0]!r}?" if near else ""))
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise UsageError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if sampler is not None and shuffle:
        raise UsageError("sampler excludes shuffle")
    if not _is_int(batch_size) or batch_size < 1:
        raise UsageError(f"{argument('batch_size')} must be a whole number from 1, got {batch_size!r}")
    most = max(32, 4 * (os.cpu_count() or 1))
    if not _is_int(num_workers) or not 0 <= num_workers <= most:
        raise UsageError(
            f"{argument('num_workers')} must lie in [0, {most}] on this machine of {os.cpu_count()} cores, got {num_workers!r}: "
            "it is a number of threads"
        )
    if prefetch is not None and (not _is_int(prefetch) or prefetch < 1):
        raise UsageError(f"prefetch_factor must be a whole number from 1, got {prefetch!r}")
    if not isinstance(timeout_s, (int, float)) or not timeout_s >= 0:
        raise UsageError(f"timeout is a number of seconds, 0 or more (0: never); got {timeout_s!r}")
    return LoaderOptions(
        batch_size=int(batch_size),
        shuffle=shuffle,
        drop_last=drop_last,
        num_workers=int(num_workers),
        max_in_flight=num_workers + 1 if prefetch is None else max(1, num_workers * prefetch),
        max_read_ahead=2 if prefetch is None else prefetch,
        timeout_s=float(timeout_s),
        pin_memory=pin_memory and torch.cuda.is_available(),
        sampler=sampler,
        batch_sampler=batch_sampler,
    )


def samples_ahead(plan: Plan, num_threads: int) -> int:
    """Samples in the making or waiting, where they are drawn ahead of their rows: one more than threads; twice the threads where lists are
    read for all of them together, so that all begin again together while what they made waits."""
    return 2 * num_threads if plan.topology == "disk" else num_threads + 1


def choose_seed(seed: int | None, generator: torch.Generator | None) -> int:
    """The seed given, else the generator's, else the one of torch.manual_seed (torch has a fixed one where none was set)."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise UsageError(f"generator must be a torch.Generator, of which the seed is taken; got {type(generator).__name__}")
    if seed is None:
        seed = (generator.initial_seed() if generator is not None else torch.initial_seed()) % (1 << 64)
    if not _is_int(seed) or not 0 <= seed < 1 << 64:
        raise UsageError(f"{argument('seed')} must be a whole number in [0, 2**64), got {seed!r}")
    return int(seed)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
