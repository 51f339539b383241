"""Caches that ranks share: which plans allow it, and the cache of a rank.

In: a plan, a seat, a policy chosen for a type. Out: a `ShardedCache`, or the reason why not. Invariant: batches are the same with it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cache.belady import Belady
from penstock.cache.choose import Choice
from penstock.cache.shard import num_ids_of
from penstock.errors import UsageError, argument
from penstock.gather import Seat, ShardedCache, ShardGroup
from penstock.plan import SHARED, Plan
from penstock.store.tiers import Tier

if TYPE_CHECKING:
    import torch


def check_shards(plan: Plan, seat: Any, device: torch.device | None) -> None:
    """Refuse plans whose caches ranks cannot share. `plan`: resolved."""
    if seat is None:
        return
    if not isinstance(seat, Seat):
        raise UsageError(f"shards is one of the seats that shard_seats makes, or shard_seat_of_group's; got {type(seat).__name__}")
    if device is None:
        raise UsageError(f"shards shares what is kept on devices, and there is none: give {argument('device', 'cuda')}")
    if plan.host_memory is not None:
        raise UsageError(f"{argument('host_memory', plan.host_memory)} is a budget of one process, shards is for several: leave one out")
    if plan.neighbor_cache == SHARED:
        raise UsageError(f"{argument('neighbor_cache', SHARED)} divides the memory of one device: leave shards out")
    name = "policy" if plan.device_policy is None and plan.is_read_by_device else "device_policy"
    policy = getattr(plan, name)
    if policy is None:
        raise UsageError(f"shards shares what the plan keeps on devices, and that is nothing: give {argument('device_policy')}")
    if policy == Belady.name:
        raise UsageError(
            f"{argument(name, policy)} looks ahead, and ranks know nothing of each other's batches: give another, or leave shards out"
        )
    if plan.is_device_cache_found:
        raise UsageError(f"shards shares a cache from the first batch on: give {argument('device_cache')}, which is of each device")


def shared_cache(choice: Choice, slow: Tier, name: str, reader: torch.device, group: ShardGroup) -> ShardedCache:
    """Make this rank's cache. `choice`: over all rows, with the capacity of a shard, or with the content of all shards together."""
    seat, made = group.seat, choice.make()
    num_ids, capacity = num_ids_of(slow.num_rows, seat.rank, seat.num_ranks), made.capacity
    if choice.content is not None:
        capacity = int(np.count_nonzero(choice.content % seat.num_ranks == seat.rank))
    make: Any = partial(type(made), num_ids, min(capacity, num_ids))
    return ShardedCache(make, slow, choice.content, name, reader=reader, group=group)
