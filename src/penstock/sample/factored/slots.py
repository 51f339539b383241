"""Slots: host memory that processes share. Each slot is a file without a name, which grows as needed.

In: bytes, from one process. Out: the same bytes, in another. Invariants: a killed process leaves nothing to clean up, since the files have
no names, and the system frees the memory with the last process that has it open. One process at a time writes or reads a slot, as the
schedule ensures; the last slot is written once, then only read (`marks`). Refused: `multiprocessing.shared_memory`, since a kill leaves its
names behind, and its place (/dev/shm) has 64 MiB in a container.
"""

from __future__ import annotations

import mmap
import os
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE


class Slots:
    """Slots by number. Can be an argument of a spawned process. Several threads can use it, each with its own slots."""

    def __init__(self, count: int) -> None:
        self._files = [os.memfd_create(f"penstock-slot-{slot}") for slot in range(count)]
        self._maps: dict[int, mmap.mmap] = {}

    def __getstate__(self) -> list[Any]:
        return [DupFd(file) for file in self._files]

    def __setstate__(self, state: list[Any]) -> None:
        self._files, self._maps = [file.detach() for file in state], {}

    def writable(self, slot: int, num_bytes: int) -> np.ndarray:
        """uint8[num_bytes] at the beginning of a slot. The slot grows if it is smaller."""
        file = self._files[slot]
        if os.fstat(file).st_size < num_bytes:
            os.ftruncate(file, -(-(num_bytes + num_bytes // 8) // _PAGE) * _PAGE)
        return self.readable(slot, num_bytes)

    def readable(self, slot: int, num_bytes: int) -> np.ndarray:
        """uint8[num_bytes]: the beginning of a slot, as it was written."""
        if slot not in self._maps or len(self._maps[slot]) < num_bytes:
            self._maps[slot] = mmap.mmap(self._files[slot], os.fstat(self._files[slot]).st_size)  # the old map is freed with its last view
        return np.frombuffer(self._maps[slot], np.uint8, num_bytes)

    @property
    def last(self) -> int:
        """Number of the last slot."""
        return len(self._files) - 1

    @property
    def num_bytes(self) -> int:
        """Memory of all slots."""
        return sum(os.fstat(file).st_size for file in self._files)

    def close(self) -> None:
        """Close all slots in this process."""
        for file in self._files:
            os.close(file)
        self._files, self._maps = [], {}
