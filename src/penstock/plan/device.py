"""Sizes a cache in device memory by what training leaves free.

In: the state of device memory after the first training steps. Out: bytes. Invariant: a reserve stays free, so that larger batches than
those seen have room, and the cache never makes the user's training run out of memory.
Source: PaGraph 4, which looks at the free memory after the first mini-batch and allocates the cache once.
"""

from __future__ import annotations

from penstock.store.device_memory import DeviceMemory

RESERVED_SHARE = 1 / 16
"""Share of the device's total memory that stays free: for other processes, libraries that load later, torch's rounding."""
GROWTH_SHARE = 1 / 4
"""This share of the steps' memory also stays free, since batches differ in size."""


def reserve_of(memory: DeviceMemory, fixed_bytes: int = 0) -> int:
    """Return the bytes that stay free. `fixed_bytes`: part of torch's memory that does not change with batches, such as a topology."""
    return int(RESERVED_SHARE * memory.total + GROWTH_SHARE * max(0, memory.held - fixed_bytes))


def plan_device_cache(memory: DeviceMemory, fixed_bytes: int = 0) -> int:
    """Return the bytes of the cache; 0 if nothing is left. `fixed_bytes`: as in `reserve_of`."""
    return max(0, memory.free - reserve_of(memory, fixed_bytes))
