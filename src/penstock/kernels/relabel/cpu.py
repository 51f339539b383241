"""Compaction, by a direct table or a hash table. Same result as `reference.py`, byte for byte.

A direct table is int32[num_nodes]. A hash table is uint64[2 * capacity]: key and value side by side (one cache line), open addressing, with
a capacity that is a power of two and at least twice the number of ids. It is faster where a direct table does not fit in the processor's
cache, and takes keys of 64 bits. Emptying either costs nothing: only values >= `base` are valid, and the next batch moves `base` past all
values of this one.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_write, store

AHEAD = 32
"""How many ids ahead the table entry of an id is prefetched."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_1, _32 = np.uint64(1), np.uint64(32)


@helper
def _hash(key, mask):
    return ((key * _GOLDEN) >> _32) & mask


@helper
def _find_slot(table, base, key):
    """Return the index of `key` in the table, or of the free entry where it would go; its value is the next element."""
    mask = np.uint64((table.size >> 1) - 1)
    slot = _hash(key, mask)
    while np.int64(load(table, np.int64(slot << _1) + 1)) >= base and load(table, np.int64(slot << _1)) != key:
        slot = (slot + _1) & mask
    return np.int64(slot << _1)


@kernel
def add_seeds_direct(ids, table, base, nodes):
    """Start a batch in a direct table: nodes[:n] = ids. Returns how many ids repeat an earlier one."""
    repeated = 0
    for i in range(ids.size):
        node = ids[i]
        if table[node] < base:
            table[node] = np.int32(base + i)
        else:
            repeated += 1
        nodes[i] = node
    return repeated


@kernel
def add_seeds_hashed(ids, table, base, nodes):
    """Start a batch in a hash table: nodes[:n] = ids. Returns how many ids repeat an earlier one."""
    repeated = 0
    for i in range(ids.size):
        slot = _find_slot(table, base, np.uint64(ids[i]))
        if np.int64(table[slot + 1]) < base:
            table[slot] = np.uint64(ids[i])
            table[slot + 1] = np.uint64(base + i)
        else:
            repeated += 1
        nodes[i] = ids[i]
    return repeated


# The two loops below stay flat: with the body in a helper that returns (position, count), they take 15 ns an id in place of 5.


@kernel
def relabel_direct(ids, count, table, base, num_nodes, nodes, positions):
    """Map ids[:count] to positions; append new ids at nodes[num_nodes:]. Returns the new number of nodes."""
    for j in range(count):
        if j + AHEAD < count:
            prefetch_write(table, load(ids, j + AHEAD))
        node = load(ids, j)
        value = np.int64(load(table, node))
        if value < base:
            value = base + num_nodes
            store(table, node, np.int32(value))
            store(nodes, num_nodes, node)
            num_nodes += 1
        store(positions, j, value - base)
    return num_nodes


@kernel
def relabel_hashed(ids, count, table, base, num_nodes, nodes, positions):
    """Map ids[:count] to positions; append new ids at nodes[num_nodes:]. Returns the new number of nodes."""
    mask = np.uint64((table.size >> 1) - 1)
    for j in range(count):
        if j + AHEAD < count:
            prefetch_write(table, np.int64(_hash(np.uint64(load(ids, j + AHEAD)), mask) << _1))
        node = load(ids, j)
        slot = _find_slot(table, base, np.uint64(node))
        value = np.int64(load(table, slot + 1))
        if value < base:
            value = base + num_nodes
            store(table, slot, np.uint64(node))
            store(table, slot + 1, np.uint64(value))
            store(nodes, num_nodes, node)
            num_nodes += 1
        store(positions, j, value - base)
    return num_nodes


@kernel
def lookup_direct(ids, count, table, base, positions):
    """Write the position of each of ids[:count], -1 if it is not in the batch."""
    for j in range(count):
        if j + AHEAD < count:
            prefetch_write(table, load(ids, j + AHEAD))
        store(positions, j, max(np.int64(load(table, load(ids, j))) - base, -1))


@kernel
def lookup_hashed(ids, count, table, base, positions):
    """Write the position of each of ids[:count], -1 if it is not in the batch."""
    for j in range(count):
        slot = _find_slot(table, base, np.uint64(load(ids, j)))
        store(positions, j, max(np.int64(load(table, slot + 1)) - base, -1))
