"""Random walks over in-neighbour lists, all walks step by step together. Same result as `reference.py`, byte for byte.

A step of one walk waits for memory twice: for the offsets of its list and for its neighbour. So all walks take a step together, in two
passes: the first draws positions and prefetches offsets some walks ahead, and the neighbours; the second reads the neighbours.
"""

from __future__ import annotations

import numpy as np

from penstock import rng
from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store
from penstock.kernels._random import below_wide, copy_of, philox, sample_counter

AHEAD = 16
"""How many walks ahead offsets are prefetched."""

_HASH = np.uint64(0x9E3779B97F4A7C15)


def table_size(most):
    """Elements of the hash table of the nodes that the walks of one start visit, for up to `most` visits: two to four slots per visit."""
    return 1 << (2 * most - 1).bit_length()


@kernel
def begin(starts, num, nodes, walkers):
    """Begin `num` walks at each start: write int64[n * num] `nodes` and `walkers`."""
    for i in range(starts.size):
        for j in range(num):
            store(nodes, i * num + j, load(starts, i))
            store(walkers, i * num + j, i * num + j)


@kernel
def take_step(indptr, indices, num_edges, starts, copies, num, step, end, key, batch, hop, nodes, walkers, count, positions):
    """Draw a neighbour for each of `count` walks that continues; see `reference.take_step`.

    Args:
        indices: prefetched only; None if the caller reads the neighbours elsewhere.
        nodes, walkers: int64[>= count]; those of the walks that continue move to the front.
        positions: int64[>= count], the result.
    Returns:
        (number of walks that continue, -1), or (-1, i) if the list of nodes[i] lies outside the edges or is longer than `rng.MAX_DEGREE`.
    """
    going, key_0, key_1 = 0, key[0], key[1]
    for i in range(count):
        if i + AHEAD < count:
            prefetch_read(indptr, load(nodes, i + AHEAD))
        node, walker = load(nodes, i), load(walkers, i)
        first, last = load(indptr, node), load(indptr, node + 1)
        if not 0 <= first <= last <= num_edges or last - first > rng.MAX_DEGREE:
            return -1, i
        start = walker // num
        c0, c1, c2, c3 = sample_counter(load(starts, start), 0, hop, batch, copy_of(copies, start))
        high, low, chance, _ = philox(c0, c1, c2, c3 + np.uint64(step * num + walker - start * num), key_0, key_1)
        if last > first and chance >= np.uint64(end):
            position = first + np.int64(below_wide(high, low, np.uint64(last - first)))
            store(nodes, going, node)
            store(walkers, going, walker)
            store(positions, going, position)
            if indices is not None:
                prefetch_read(indices, position)
            going += 1
    return going, -1


@kernel
def arrive(neighbors, positions, num_src, length, turn, nodes, walkers, count, visits):
    """Move `count` walks to their drawn neighbours.

    Args:
        neighbors: int32 or int64: `indices`, of which walk i takes element positions[i]; if `positions` is None, walk i takes element i.
        num_src: number of source nodes; neighbour ids are checked against it.
        nodes: int64[>= count], the result: the node of each walk. walkers: int64[>= count], the number of each walk.
        visits: int64[number of walks * length]: the node of walk w goes to visits[w * length + turn]; None: not recorded.
    Returns:
        Whether all neighbour ids are in range (otherwise a list is damaged).
    """
    largest = np.uint64(0)
    for i in range(count):
        at = i
        if positions is not None:
            at = load(positions, i)
        neighbor = np.int64(load(neighbors, at))
        largest = max(largest, np.uint64(neighbor))  # a negative id becomes a huge one
        store(nodes, i, neighbor)
        if visits is not None:
            store(visits, load(walkers, i) * length + turn, neighbor)
    return count == 0 or largest < np.uint64(num_src)


@helper
def _collect(visits, first, num, length, mask, table, ids, counts):
    """Find the nodes visited, in the order of first visits, and how often. Returns (number of nodes, most visits of one node)."""
    found, most, shift = 0, 0, np.uint64(32)
    for slot in range(mask + 1):
        store(table, slot, np.int32(-1))
    for turn in range(length):
        for walk in range(num):
            node = load(visits, first + walk * length + turn)
            if node < 0:
                continue
            slot = np.int64((np.uint64(node) * _HASH) >> shift) & mask
            while True:
                at = np.int64(load(table, slot))
                if at < 0:
                    at, found = found, found + 1
                    store(table, slot, np.int32(at))
                    store(ids, at, node)
                    store(counts, at, 0)
                    break
                if load(ids, at) == node:
                    break
                slot = (slot + 1) & mask
            times = load(counts, at) + 1
            store(counts, at, times)
            most = max(most, times)
    return found, most


@kernel
def count_visits(visits, num_starts, num, length, fanout, table, ids, times, ranks, row_ptr, counts, neighbors):
    """Choose the nodes that the walks of each start visited most; see `reference.count_visits`.

    Args:
        visits: int64[num_starts * num * length].
        table, ids, times: scratch, int32[table_size(num * length)], int64[num * length] each. ranks: scratch, int64[num * length + 1], zero
            before and after.
        row_ptr: int64[num_starts + 1]; row_ptr[0] is the number of edges sampled before, and the offsets written continue from it.
        counts, neighbors: int64[>= m]; m is at most num_starts * min(num * length, fanout).
    Returns:
        m, the number of nodes chosen.
    """
    base = edges = load(row_ptr, 0)
    mask = np.int64(table.size - 1)
    for i in range(num_starts):
        found, most = _collect(visits, i * num * length, num, length, mask, table, ids, times)
        for j in range(found):
            store(ranks, load(times, j), load(ranks, load(times, j)) + 1)
        begin, first = 0, edges - base
        for count in range(most, 0, -1):  # a counting sort, which is stable
            begin, before = begin + load(ranks, count), begin
            store(ranks, count, before)
        for j in range(found):
            count = load(times, j)
            rank = load(ranks, count)
            store(ranks, count, rank + 1)
            if fanout < 0 or rank < fanout:
                store(neighbors, first + rank, load(ids, j))
                store(counts, first + rank, count)
        for count in range(most + 1):
            store(ranks, count, 0)
        edges += found if fanout < 0 else min(found, np.int64(fanout))
        store(row_ptr, i + 1, edges)
    return edges - base
