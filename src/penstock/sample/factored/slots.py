"""Memory of the host that processes share: slots, each of them a file without a name that grows with what is written into it.

In: bytes, from one process. Out: the same bytes, in another. Invariants: there is nothing to clean up, whoever is killed: no name exists,
and the system takes the memory back with the last process that has it open; a slot is written and read by one process at a time, which
the schedule sees to; but the last one, which is written once (`marks`). Refused: `multiprocessing.shared_memory`, whose names are left
behind by a kill, and whose place (/dev/shm) has 64 MiB in a container.
"""

from __future__ import annotations

import mmap
import os
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE


class Slots:
    """Slots by number. Goes to a spawned process as an argument. Safe to use from several threads, each with slots of its own."""

    def __init__(self, count: int) -> None:
        self._files = [os.memfd_create(f"penstock-slot-{slot}") for slot in range(count)]
        self._maps: dict[int, mmap.mmap] = {}

    def __getstate__(self) -> list[Any]:
        return [DupFd(file) for file in self._files]

    def __setstate__(self, state: list[Any]) -> None:
        self._files, self._maps = [file.detach() for file in state], {}

    def writable(self, slot: int, num_bytes: int) -> np.ndarray:
        """uint8[num_bytes] at the beginning of a slot, which is made larger if need be."""
        file = self._files[slot]
        if os.fstat(file).st_size < num_bytes:
            os.ftruncate(file, -(-(num_bytes + num_bytes // 8) // _PAGE) * _PAGE)
        return self.readable(slot, num_bytes)

    def readable(self, slot: int, num_bytes: int) -> np.ndarray:
        """uint8[num_bytes]: what was written."""
        if slot not in self._maps or len(self._maps[slot]) < num_bytes:
            self._maps[slot] = mmap.mmap(self._files[slot], os.fstat(self._files[slot]).st_size)  # the smaller one goes with its last view
        return np.frombuffer(self._maps[slot], np.uint8, num_bytes)

    @property
    def last(self) -> int:
        """Number of the last slot."""
        return len(self._files) - 1

    @property
    def num_bytes(self) -> int:
        """Memory that they take."""
        return sum(os.fstat(file).st_size for file in self._files)

    def close(self) -> None:
        """Give the memory up, as far as this process is concerned."""
        for file in self._files:
            os.close(file)
        self._files, self._maps = [], {}
