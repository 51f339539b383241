"""How much of a device's memory a cache takes that is sized by what training leaves free.

In: the device's memory after the first steps of a training. Out: bytes. Invariant: a reserve stays free, so that batches larger than those
seen find room, and the user never runs out of memory for a cache of ours.
Source: PaGraph 4, which looks at the free memory after the first mini-batch and allocates the cache once.
"""

from __future__ import annotations

from penstock.store.device_memory import DeviceMemory

RESERVED_SHARE = 1 / 16
"""Of all memory of the device, that stays free: for other processes, libraries that load later, torch's rounding."""
GROWTH_SHARE = 1 / 4
"""Of what steps took, that stays free as well: batches differ in size."""


def reserve_of(memory: DeviceMemory, fixed_bytes: int = 0) -> int:
    """Return the bytes that stay free; `fixed_bytes`: of what torch holds, those that no batch changes, such as a topology."""
    return int(RESERVED_SHARE * memory.total + GROWTH_SHARE * max(0, memory.held - fixed_bytes))


def plan_device_cache(memory: DeviceMemory, fixed_bytes: int = 0) -> int:
    """Return the bytes of the cache, 0 where nothing is left."""
    return max(0, memory.free - reserve_of(memory, fixed_bytes))
