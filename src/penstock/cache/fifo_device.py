"""First in, first out, decided by a device in the order of its stream: exactly the same changes as `fifo.py`.

In: batches of distinct ids on the device. Out: a `DeviceChange` for each, on the device; the host does not wait. Imports Triton.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch

from penstock.cache.fifo import FIFO, MAX_NUMBER
from penstock.cache.policy import Policy
from penstock.kernels.cache_fifo import cpu, gpu
from penstock.store.device_memory import settle
from penstock.store.tiers.pinned import to_device, to_host


class DeviceChange(NamedTuple):
    """What one batch does to a cache, as `penstock.cache.Change`, by position.

    Attributes:
        hit_slots: int32[n], slot of each id as it was before the batch, -1 for a miss.
        into: int32[n], slot of each id that was missed and is resident after the batch, -1 for the others.
    """

    hit_slots: torch.Tensor
    into: torch.Tensor


class DeviceFIFO(Policy):
    """`FIFO` with its directory in device memory.

    Args:
        num_nodes, capacity: as for every policy.
        device: from `tensor_device`. All work uses its current stream.
    Attributes:
        device_bytes: of the directory.
    """

    name = FIFO.name
    node_numbers = 0  # on the host

    @torch.inference_mode(False)
    def __init__(self, num_nodes: int, capacity: int, device: torch.device) -> None:
        super().__init__(num_nodes, capacity)
        self._numbers, self._state = torch.full((num_nodes,), -1, dtype=torch.int32, device=device), gpu.make_state(device)
        self._most_come = 0  # the device knows how many
        self.device_bytes = self._numbers.nbytes

    @property
    def slots(self) -> np.ndarray:
        """Slot of each resident node; negative for other nodes. Waits for the device."""
        found = np.full(self.num_nodes, -1, dtype=np.int32)
        settle(self._numbers.device)
        numbers, cursor = to_host(self._numbers, self._state.cursor)
        if self.num_slots:
            cpu.look_up_all(numbers, self.num_slots, cursor, found)
        return found

    def emptied(self) -> DeviceFIFO:
        """Return a new, empty policy that reuses the memory of this one, since there may be no room for both; this one must not be used
        again."""
        for each in self._state:
            each.zero_()
        self._numbers.fill_(-1)
        policy = copy.copy(self)
        policy._touched, policy._most_come = False, 0
        return policy

    def decide(self, ids: torch.Tensor) -> DeviceChange:
        """Decide about one batch; `ids`: int64[n] on the device, distinct and in range, taken in order."""
        self._touched = True
        changed = torch.empty((2, ids.numel()), dtype=torch.int32, device=ids.device)
        if self.num_slots == 0:
            return DeviceChange(*changed.fill_(-1))
        if self._most_come + ids.numel() > MAX_NUMBER:
            gpu.count_anew(self._numbers, self.num_slots, self._state.cursor)
            self._most_come = min(self._most_come, self.num_slots)
        self._most_come += ids.numel()
        gpu.access(ids, self._numbers, self.num_slots, self._state, *changed)
        return DeviceChange(*changed)

    def _fill(self, ids: np.ndarray) -> None:
        self._numbers[to_device(ids, self._numbers.device)] = torch.arange(ids.size, dtype=torch.int32, device=self._numbers.device).flip(0)
        self._state.cursor[cpu.COME] = self._most_come = ids.size

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        hit_slots[:], given = to_host(*self.decide(to_device(ids, self._numbers.device)))
        kept = np.flatnonzero(given >= 0)
        inserted[: kept.size], into[: kept.size] = kept, given[kept]
        return kept.size
