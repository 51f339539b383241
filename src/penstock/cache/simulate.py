"""Simulating caches: how many requested ids would be hits, without moving rows.

In: a policy, or a ranking and capacities; and batches of distinct ids. Out: hits and requested ids, per batch. The hit rate of a run is the
ratio of their sums; the papers take the mean of the ratios of batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.cache.policy import Policy
from penstock.errors import NodeIdError, UsageError
from penstock.kernels.cache_lookup.cpu import lies_inside
from penstock.kernels.rank_hits import cpu as kernels


def simulate(policy: Policy, batches: Iterable[np.ndarray], *, superbatch: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a policy on batches, announcing them if it looks ahead.

    Args:
        policy: in any state; the batches change it.
        batches: int64[n] each, distinct ids. A policy that looks ahead holds `policy.window` of them at a time.
        superbatch: announce a whole window when the one before is used up (Ginex), rather than one batch after each access.
    Returns:
        hits int64[num_batches], asked int64[num_batches].
    """
    hits, asked = [], []
    for ids in announced(policy, batches, superbatch=superbatch):
        hits.append(policy.access(ids).num_hits)
        asked.append(len(ids))
    return np.array(hits, dtype=np.int64), np.array(asked, dtype=np.int64)


def announced(policy: Any, batches: Iterable[np.ndarray], *, superbatch: bool = False) -> Iterator[np.ndarray]:
    """Yield each batch; before, announce the window that starts with it to a policy that looks ahead."""
    if not hasattr(policy, "announce"):
        yield from batches
        return
    batches, window = iter(batches), deque[np.ndarray]()
    while True:
        while len(window) < policy.window and (ids := next(batches, None)) is not None:
            policy.announce(ids)
            window.append(ids)
        if not window:
            return
        for _ in range(len(window) if superbatch else 1):
            yield window.popleft()


def static_hits(
    ranking: np.ndarray, batches: Iterable[np.ndarray], capacities: Sequence[int], num_nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the hits of static caches that keep the first rows of a ranking, for all capacities in one pass.

    Args:
        ranking: int64[m], distinct ids, best first (`plan_static`); nodes not in it are never kept.
        batches: int64[n] each.
        capacities: rows kept, at most 65,534 different ones, in any order.
        num_nodes: ids lie in [0, num_nodes).
    Returns:
        hits int64[num_batches, num_capacities], asked int64[num_batches].
    """
    wanted, column = np.unique(np.asarray(capacities, dtype=np.int64), return_inverse=True)
    if wanted.size > 65_534 or (wanted.size and wanted[0] < 0):
        raise UsageError(f"capacities: 0 or more rows each, at most 65534 different ones; got {wanted.size}, least {wanted.min()}")
    ranking = _inside(np.ascontiguousarray(ranking, dtype=np.int64), num_nodes, "ranking")
    levels = np.full(num_nodes, wanted.size, dtype=np.min_scalar_type(wanted.size))
    levels[ranking] = np.searchsorted(wanted, np.arange(ranking.size), side="right")
    hits, asked = [], []
    for ids in batches:
        ids = _inside(np.ascontiguousarray(ids, dtype=np.int64), num_nodes, f"batch {len(asked)}")
        counts = np.zeros(kernels.LANES * (wanted.size + 1), dtype=np.int64)
        kernels.count_levels(ids, levels, wanted.size + 1, counts)
        hits.append(np.cumsum(counts.reshape(kernels.LANES, -1).sum(0))[:-1])
        asked.append(ids.size)
    table = np.array(hits, dtype=np.int64).reshape(len(asked), wanted.size)
    return table[:, column.reshape(-1)], np.array(asked, dtype=np.int64)


def _inside(ids: np.ndarray, num_nodes: int, what: str) -> np.ndarray:
    if not lies_inside(ids, num_nodes):
        bad = np.flatnonzero((ids < 0) | (ids >= num_nodes))
        raise NodeIdError(f"{what}: {bad.size} of {ids.size} ids lie outside [0, {num_nodes}); first is [{bad[0]}] = {ids[bad[0]]}")
    return ids
