"""Linear deterministic greedy: each node goes to the part that holds most of its neighbours and has room. Same result as `reference.py`,
byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read
from penstock.kernels._typed_lists import list_of

AHEAD = 16


@helper
def _count(neighbors, start, stop, first, node, owners, counts):
    for i in range(start, stop):
        if i + AHEAD < stop:
            prefetch_read(owners, np.int64(load(neighbors, i + AHEAD)) + first)
        neighbor = np.int64(load(neighbors, i)) + first
        owner = np.int64(load(owners, neighbor))
        if owner >= 0 and neighbor != node:
            counts[owner] += 1


@kernel
def place(indptrs, indices, firsts, out_ptr, out_nodes, nodes, kinds, capacities, sizes, owners, counts):
    """Assign each node to a part; see `reference.place`. Returns how many nodes changed their part.

    Args:
        indptrs, indices, firsts, out_ptr, out_nodes: see `breadth_first.cpu`.
        nodes: int32 or int64[n]. kinds: uint16[num_nodes]. capacities: int64[num_kinds]. sizes: int64[num_kinds, num_parts].
        owners: int16[num_nodes]. counts: int64[num_parts], scratch, zero before and after.
    The number of a node's neighbours times the room of a part must be below 2**63.
    """
    changed = 0
    for n in range(nodes.size):
        node = np.int64(nodes[n])
        for e in range(len(indptrs)):
            start, stop = list_of(indptrs[e], firsts[e, 1], node)
            _count(indices[e], start, stop, firsts[e, 0], node, owners, counts)
        start, stop = list_of(out_ptr, 0, node)
        _count(out_nodes, start, stop, 0, node, owners, counts)
        kind = np.int64(kinds[node])
        best, best_score, best_room = -1, -1, 0
        for part in range(counts.size):
            room = capacities[kind] - sizes[kind, part]
            score = counts[part] * room
            counts[part] = 0
            if room > 0 and (score > best_score or (score == best_score and room > best_room)):
                best, best_score, best_room = part, score, room
        changed += owners[node] != best
        owners[node] = best
        sizes[kind, best] += 1
    return changed
