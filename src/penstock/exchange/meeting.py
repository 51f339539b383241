"""Find the processes of this attempt at a store of `torch.distributed` that may still hold what earlier attempts wrote.

In: a store, and what this process tells the others. Out: what all tell, and a name that no attempt had before. `torchrun --max-restarts`
keeps one store for all attempts, so that what is read under a fixed key may be of a process that has ended. How often a process was started
does not say which attempt this is: the agents of several machines count differently.
"""

from __future__ import annotations

import secrets
import time
from datetime import timedelta
from typing import Any

_POLL_S = 0.02


def meet(store: Any, rank: int, num_ranks: int, told: str, timeout: timedelta) -> tuple[str, list[str]]:
    """Wait for the other processes. Process 0 names the attempt, and answers each process that has shown itself by a new number.

    Args:
        store: `torch.distributed`'s; its own reads wait for `timeout`, too.
        rank, num_ranks: of this process, and how many there are.
        told: what this process tells the others.
    Returns:
        (name of the attempt, the same for all; what each tells, by rank).
    Raises:
        RuntimeError: the others have not come in time (of torch: `DistStoreError` is one).
    """
    own = secrets.token_hex(16)
    if rank:
        store.set(f"met/{rank}", own)
        name = store.get(f"met/{own}").decode()
        store.set(f"{name}/{rank}", told)
    else:
        name = own
        store.set(f"{name}/0", told)
        _answer_all(store, name, num_ranks, time.monotonic() + timeout.total_seconds())
    return name, [store.get(f"{name}/{each}").decode() for each in range(num_ranks)]


def _answer_all(store: Any, name: str, num_ranks: int, deadline: float) -> None:
    """Tell all others the name of the attempt, until each has used it; who wrote a number earlier is told in vain."""
    missing, answered = set(range(1, num_ranks)), set()
    while missing:
        for rank in sorted(missing):
            if store.check([f"{name}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"met/{rank}"]) and (number := store.get(f"met/{rank}").decode()) not in answered:
                store.set(f"met/{number}", name)
                answered.add(number)
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {min(missing)} has not come")
        time.sleep(_POLL_S)
