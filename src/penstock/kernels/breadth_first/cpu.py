"""Breadth-first traversal over the undirected view of a graph of in-neighbour lists. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, prefetch_write, store
from penstock.kernels._typed_lists import list_of

AHEAD = 16

REACHED, WANTED = np.uint8(1), np.uint8(2)
"""Bits of a node's mark."""

_A, _B, _C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(0xBF58476D1CE4E5B9)
_29, _32 = np.uint64(29), np.uint64(32)


@helper
def _hash_pair(u, v):
    word = u * _A + v * _B
    word = (word ^ (word >> _32)) * _C
    word = (word ^ (word >> _29)) * _B
    return word ^ (word >> _32)


@kernel
def sum_asymmetry(indptr, indices, num_src, first_src, first_dst):
    """Return (uint64 sum over the edges u -> v of hash(u, v) - hash(v, u), position of the first source out of range or -1); see
    `reference.sum_asymmetry`."""
    total = np.uint64(0)
    for v in range(indptr.size - 1):
        right = np.uint64(v + first_dst)
        for i in range(load(indptr, v), load(indptr, v + 1)):
            source = np.int64(load(indices, i))
            if not 0 <= source < num_src:
                return total, i
            left = np.uint64(source + first_src)
            total += _hash_pair(left, right) - _hash_pair(right, left)
    return total, -1


@kernel
def count_outgoing(indptr, indices, first_src, limit, counts):
    """Add to int64[num_nodes] `counts` how often each node is picked as an in-neighbour."""
    for v in range(indptr.size - 1):
        start, degree = load(indptr, v), load(indptr, v + 1) - load(indptr, v)
        taken = min(degree, limit)
        for j in range(taken):
            node = np.int64(load(indices, start + (j * degree) // taken)) + first_src
            store(counts, node, load(counts, node) + 1)


@kernel
def place_outgoing(indptr, indices, first_src, first_dst, limit, cursor, out_nodes):
    """Append each node to the out-neighbour lists of the in-neighbours it picked. `cursor`: int64[num_nodes], next place of each list."""
    for v in range(indptr.size - 1):
        start, degree = load(indptr, v), load(indptr, v + 1) - load(indptr, v)
        taken = min(degree, limit)
        for j in range(taken):
            node = np.int64(load(indices, start + (j * degree) // taken)) + first_src
            at = load(cursor, node)
            store(cursor, node, at + 1)
            out_nodes[at] = v + first_dst


@helper
def _reach(neighbors, start, stop, first, marks, queue, tail):
    """Append the nodes of a list that are not reached yet to the queue. Returns the queue's new end."""
    for i in range(start, stop):
        if i + AHEAD < stop:
            prefetch_write(marks, np.int64(load(neighbors, i + AHEAD)) + first)
        node = np.int64(load(neighbors, i)) + first
        mark = load(marks, node)
        if mark & REACHED == 0:
            store(marks, node, mark | REACHED)
            queue[tail] = node
            tail += 1
    return tail


@kernel
def breadth_first(indptrs, indices, firsts, out_ptr, out_nodes, roots, num_wanted, marks, queue, order):
    """Visit nodes breadth first from one root after another, until `num_wanted` wanted nodes are visited.

    Args:
        indptrs, indices: tuples of arrays, one per edge type; each tuple of one dtype.
        firsts: int64[num_edge_types, 2]: where the ids of the source type and of the destination type begin.
        out_ptr, out_nodes: lists of out-neighbours, or empty arrays.
        roots: int64[r].
        marks: uint8[num_nodes]: WANTED or 0; the kernel adds REACHED.
        queue: int32 or int64[num_nodes], scratch.
        order: receives int64[num_wanted].
    Returns:
        How many nodes were written to `order`.
    """
    count, head, tail = 0, 0, 0
    for root in roots:
        if count == num_wanted:
            break
        if marks[root] & REACHED != 0:
            continue
        marks[root] |= REACHED
        queue[tail] = root
        tail += 1
        while head < tail:
            if head + AHEAD < tail:
                prefetch_read(indptrs[0], np.int64(queue[head + AHEAD]) - firsts[0, 1])
            node = np.int64(queue[head])
            head += 1
            if marks[node] & WANTED != 0:
                order[count] = node
                count += 1
                if count == num_wanted:
                    break
            for e in range(len(indptrs)):
                start, stop = list_of(indptrs[e], firsts[e, 1], node)
                tail = _reach(indices[e], start, stop, firsts[e, 0], marks, queue, tail)
            start, stop = list_of(out_ptr, 0, node)
            tail = _reach(out_nodes, start, stop, 0, marks, queue, tail)
    return count
