"""Compaction tables: they map the nodes of a batch to positions. There is one per node type and thread.

In: global ids. Out: batch positions; new ids are appended to the batch's list. Invariant: see `penstock.kernels.relabel`. A table is made
once. Moving its base empties it between batches, at no cost.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.relabel import cpu

DIRECT_LIMIT = 1 << 25
"""Up to this many nodes a direct table (4 bytes a node and thread) is faster (32M against 25M sampled edges/s at 8M nodes). Beyond, a hash
table, sized by the batch, keeps the memory of a thread small."""

SPARE_LIMIT = 1 << 22
"""The same limit where neighbour lists are not in memory: there the table takes little of the time, and memory is scarce."""

_MOST = int(np.iinfo(np.int32).max)
"""The largest entry of a direct table."""


class _Table:
    """What both tables share. An entry below `_base` is left over from an earlier batch."""

    def __init__(self, table: np.ndarray) -> None:
        self._table, self._base = table, 1

    @property
    def num_bytes(self) -> int:
        """Memory of the table."""
        return self._table.nbytes

    def finish(self, num_nodes: int) -> None:
        """Forget a batch of `num_nodes` nodes."""
        self._base += num_nodes


class DirectTable(_Table):
    """A table with an entry for every node of the graph: int32[num_nodes]."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__(np.zeros(num_nodes, dtype=np.int32))

    def add_seeds(self, ids: np.ndarray, nodes: np.ndarray) -> int:
        """Start a batch: nodes[:n] = ids, int64[n]. Returns the number of repetitions among the ids."""
        if self._base + ids.size > _MOST:
            self._restart(nodes[:0])
        return cpu.add_seeds_direct(ids, self._table, self._base, nodes)

    def relabel(self, ids: np.ndarray, count: int, num_nodes: int, nodes: np.ndarray, positions: np.ndarray) -> int:
        """Map ids[:count] to positions, append new ids at nodes[num_nodes:]. Returns the number of nodes now."""
        if self._base + num_nodes + count > _MOST:
            self._restart(nodes[:num_nodes])
        return cpu.relabel_direct(ids, count, self._table, self._base, num_nodes, nodes, positions)

    def lookup(self, ids: np.ndarray, count: int, positions: np.ndarray) -> None:
        """Write the positions of ids[:count]; -1 for ids that are not in the batch."""
        cpu.lookup_direct(ids, count, self._table, self._base, positions)

    def _restart(self, nodes: np.ndarray) -> None:
        """Clear the table, and move the base back to 1. `nodes`, the nodes of this batch so far, keep their positions."""
        self._table.fill(0)
        self._base = 1
        cpu.add_seeds_direct(nodes, self._table, self._base, nodes)


class HashTable(_Table):
    """A table with an entry for every node of the batch: open addressing, 64-bit keys. It grows as batches grow."""

    def __init__(self) -> None:
        super().__init__(np.zeros(2 << 10, dtype=np.uint64))

    def add_seeds(self, ids: np.ndarray, nodes: np.ndarray) -> int:
        """Start a batch: nodes[:n] = ids, int64[n]. Returns the number of repetitions among the ids."""
        self._grow(ids.size, nodes[:0])
        return cpu.add_seeds_hashed(ids, self._table, self._base, nodes)

    def relabel(self, ids: np.ndarray, count: int, num_nodes: int, nodes: np.ndarray, positions: np.ndarray) -> int:
        """Map ids[:count] to positions, append new ids at nodes[num_nodes:]. Returns the number of nodes now."""
        self._grow(num_nodes + count, nodes[:num_nodes])
        return cpu.relabel_hashed(ids, count, self._table, self._base, num_nodes, nodes, positions)

    def lookup(self, ids: np.ndarray, count: int, positions: np.ndarray) -> None:
        """Write the positions of ids[:count]; -1 for ids that are not in the batch."""
        cpu.lookup_hashed(ids, count, self._table, self._base, positions)

    def _grow(self, num_keys: int, nodes: np.ndarray) -> None:
        """Make room for `num_keys` at half load; `nodes`, the keys of this batch so far, keep their positions."""
        if 4 * num_keys <= self._table.size:
            return
        self._table = np.zeros(2 << (2 * num_keys - 1).bit_length(), dtype=np.uint64)
        self._base = 1
        cpu.add_seeds_hashed(nodes, self._table, self._base, nodes)


def make_table(num_nodes: int, *, wide_keys: bool, spare: bool = False) -> DirectTable | HashTable:
    """Choose the table for a node type. `wide_keys`: keys are not node ids (disjoint sampling packs the tree into them). `spare`: save
    memory rather than time."""
    return HashTable() if wide_keys or num_nodes > (SPARE_LIMIT if spare else DIRECT_LIMIT) else DirectTable(num_nodes)
