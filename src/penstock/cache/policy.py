"""The base of cache policies: for each batch of ids, a policy decides which are hits, which misses are inserted, and into which slots.
Policies never touch the bytes of rows.

In: batches of distinct ids, one after the other. Out: a `Change` for each. Invariants: after every batch each slot belongs to at most one
node, as recorded in `slots`; the same batches give the same changes on every machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from penstock.errors import NodeIdError, UsageError
from penstock.kernels._marks import FRESH, SLOT
from penstock.kernels.cache_lookup import cpu as lookup_kernels

MAX_NODES = (1 << 31) - 1
"""Most nodes: directories hold int32."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one batch does to a cache.

    Attributes:
        hit_slots: int32[n], slot of each id as it was before the batch, -1 for a miss.
        inserted: int64[k], positions in the batch, ascending, of misses that are resident after it.
        into: int32[k], their slots, distinct. A slot may be that of a hit of the same batch, so hits must be read first.
    """

    hit_slots: np.ndarray
    inserted: np.ndarray
    into: np.ndarray

    @property
    def num_hits(self) -> int:
        """Ids that were resident before the batch."""
        return int(np.count_nonzero(self.hit_slots >= 0))


class Policy(ABC):
    """Base class: the checks, and the directory, node -> slot. A subclass has a `name`, defines `_access`, and `_fill` if it has further
    state. Where a policy is registered and tested: CONTRIBUTING.md.

    Args:
        num_nodes: ids lie in [0, num_nodes); below 2**31.
        capacity: rows to keep; 0 keeps none, more than the number of nodes keeps all.
    """

    name = ""
    most_rows = MAX_NODES
    node_numbers = 1  # int32s per node in the directory, the slot first, so that all data of a node is in one cache line

    def __init__(self, num_nodes: int, capacity: int) -> None:
        if not 0 <= num_nodes <= MAX_NODES:
            raise UsageError(f"a cache takes 0 to {MAX_NODES} nodes, got {num_nodes}")
        if capacity < 0:
            raise UsageError(f"capacity is the number of rows to keep, 0 or more; got {capacity}")
        self.num_nodes, self.capacity = num_nodes, capacity
        self.num_slots = min(capacity, num_nodes)
        if self.num_slots > self.most_rows:
            raise UsageError(f"{self.name} keeps at most {self.most_rows} rows, got {self.num_slots}; take another policy")
        self._directory = np.full(num_nodes * self.node_numbers, -1, dtype=np.int32)
        self._touched = False

    @property
    def slots(self) -> np.ndarray:
        """int32[num_nodes], slot of each resident node; negative for other nodes. Do not write to it, and read it rarely: policies that
        keep more than slots in the directory make a new array each time."""
        return self._directory[:: self.node_numbers]

    @property
    def state_bytes(self) -> int:
        """Bytes of the directory and of all other state."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    def fill(self, ids: np.ndarray) -> None:
        """Set the initial content of a new cache.

        Args:
            ids: int64[n], distinct, best first: ids[i] goes to slot i. Those that do not fit are left out.
        Raises:
            UsageError: an id occurs twice, or the cache is not new. NodeIdError: an id is outside [0, num_nodes).
        """
        ids = self._checked(ids)[: self.num_slots]
        if self._touched:
            raise UsageError(f"{self.name}: fill sets the initial content, before the first batch and once; make a new policy")
        if np.unique(ids).size < ids.size:
            raise UsageError(f"{self.name}: fill takes every id once, {ids.size - np.unique(ids).size} are repetitions")
        self._touched = True
        if ids.size:
            self._fill(ids)

    def access(self, ids: np.ndarray) -> Change:
        """Look up one batch, and decide which of its misses are kept.

        Args:
            ids: int64[n], taken in order. They must be distinct, which is not checked: a repetition would hit a row that is not there yet.
        Raises:
            NodeIdError: an id is outside [0, num_nodes).
        """
        ids = self._checked(ids)
        self._touched = True
        hit_slots, inserted, into = np.empty(ids.size, np.int32), np.empty(ids.size, np.int64), np.empty(ids.size, np.int32)
        if self.num_slots == 0:
            hit_slots.fill(-1)
        count = self._access(ids, hit_slots, inserted, into) if self.num_slots and ids.size else 0
        if not isinstance(count, (int, np.integer)) or not 0 <= count <= ids.size:
            raise UsageError(f"{self.name}: _access returns how many misses are inserted, of {ids.size} ids; got {count!r}")
        return Change(hit_slots, inserted[:count], into[:count])

    def _checked(self, ids: np.ndarray) -> np.ndarray:
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if not lookup_kernels.lies_inside(ids, self.num_nodes):
            bad = np.flatnonzero((ids < 0) | (ids >= self.num_nodes))
            raise NodeIdError(
                f"{self.name}: {bad.size} of {ids.size} ids lie outside [0, {self.num_nodes}); first is ids[{bad[0]}] = {ids[bad[0]]}"
            )
        return ids

    def _fill(self, ids: np.ndarray) -> None:
        """Put 1 to `num_slots` ids, best first, into slots 0 to n - 1."""
        self._directory[ids * self.node_numbers] = np.arange(ids.size)

    @abstractmethod
    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        """Decide about at least one id, with at least one slot. Returns k, how many misses are inserted.

        It writes all of `hit_slots` and the first k of `inserted` and `into`, as of `Change`; their contents are undefined before. It also
        keeps the directory, so that `slots` has the nodes that are resident after the batch, and no other.
        """


class MarkingPolicy(Policy):
    """A policy with a mark per row, kept in bits of the directory beside the slot, which a hit has just read."""

    most_rows = FRESH - 1

    @property
    def slots(self) -> np.ndarray:
        """Slot of each resident node; negative for other nodes."""
        return np.where(self._directory < 0, np.int32(-1), self._directory & np.int32(SLOT))


def make_table(size: int, dtype: type[np.generic]) -> np.ndarray:
    """Return dtype[size] of zeros, written once so that the system provides the memory now: on a virtual machine this takes 0.3 to 6 ms per
    2 MiB, and with `np.zeros` it would slow down the batches. Size 0 is allowed."""
    table = np.empty(size, dtype)
    table.fill(0)
    return table


def queue_entries(ids: np.ndarray, first_slot: int = 0) -> np.ndarray:
    """Return int64[n]: entries `node << 32 | slot` of a queue, oldest first, for ids (best first) in slots from `first_slot` on."""
    return (ids << 32 | np.arange(first_slot, first_slot + ids.size))[::-1]
