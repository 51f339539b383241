"""Assign train nodes to parts together with the nodes that their batches read. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels._typed_lists import list_of

AHEAD = 16


@helper
def _reach(neighbors, start, stop, first, turn, limit, turns, queue, tail):
    """Append the nodes of a list that are not reached yet to the queue, up to its limit. Returns the queue's new end."""
    for i in range(start, stop):
        if tail == limit:
            break
        if i + AHEAD < stop:
            prefetch_write(turns, np.int64(load(neighbors, i + AHEAD)) + first)
        node = np.int64(load(neighbors, i)) + first
        if load(turns, node) != turn:
            store(turns, node, turn)
            queue[tail] = node
            tail += 1
    return tail


@kernel
def place(indptrs, indices, firsts, nodes, num_hops, kinds, capacities, sizes, held, num_held, owners, turns, queue, counts):
    """Assign each train node and its in-neighbourhood to a part; see `reference.place`.

    Args:
        indptrs, indices, firsts: see `breadth_first.cpu`.
        nodes: int32 or int64[n]. kinds: uint16[num_nodes]. capacities: int64[num_kinds].
        sizes: int64[num_kinds, num_parts]. held: uint8[num_nodes, ceil(num_parts / 8)]. num_held: int64[num_parts].
        owners: int16[num_nodes].
        turns: scratch, dtype of `nodes`, [num_nodes], -1 at first. queue: scratch, same dtype, [limit]. counts: scratch, int64[num_parts],
            zero before and after.
    """
    for n in range(nodes.size):
        turns[nodes[n]] = n
        queue[0] = nodes[n]
        head, tail = 0, 1
        for _ in range(num_hops):
            reached = tail
            while head < reached:
                node = np.int64(queue[head])
                head += 1
                for e in range(len(indptrs)):
                    start, stop = list_of(indptrs[e], firsts[e, 1], node)
                    tail = _reach(indices[e], start, stop, firsts[e, 0], n, queue.size, turns, queue, tail)
        for k in range(tail):
            node = np.int64(queue[k])
            if kinds[node] & 1 != 0 and owners[node] >= 0:
                counts[owners[node]] += 1
        kind = np.int64(kinds[nodes[n]])
        best, best_score, best_room = -1, 0.0, 0
        for part in range(counts.size):
            room = capacities[kind] - sizes[kind, part]
            score = np.float64(counts[part] * room) / np.float64(max(num_held[part], 1))
            counts[part] = 0
            if room > 0 and (best < 0 or score > best_score or (score == best_score and room > best_room)):
                best, best_score, best_room = part, score, room
        owners[nodes[n]] = best
        sizes[kind, best] += 1
        byte, bit = best >> 3, np.uint8(1 << (best & 7))
        for k in range(tail):
            node = np.int64(queue[k])
            if held[node, byte] & bit == 0:
                held[node, byte] |= bit
                num_held[best] += 1
                kind = np.int64(kinds[node])
                if owners[node] < 0 and kind & 1 == 0 and sizes[kind, best] < capacities[kind]:
                    owners[node] = best
                    sizes[kind, best] += 1
