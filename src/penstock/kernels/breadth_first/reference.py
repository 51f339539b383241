"""Breadth-first traversal over the undirected view of a graph of in-neighbour lists: the definition.

In: in-neighbour lists of every edge type, over one id space (type after type), and roots. Out: the wanted nodes in the order in which they
are reached. Invariant: every wanted node among the roots comes exactly once; the result depends only on the input.

The graph has in-neighbour lists only; a reversed copy of the edges would not fit beside a large graph. So each node picks `limit` of its
in-neighbours per edge type and is entered in the out-neighbour lists of these: 4 * limit bytes a node, whatever the number of edges, and a
hub keeps all neighbours that have few in-neighbours. On a symmetric graph, in-neighbours are all neighbours.
"""

from __future__ import annotations

from collections import deque

import numpy as np

_A, _B, _C = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xBF58476D1CE4E5B9
_WORD = (1 << 64) - 1


def hash_pair(u, v):
    """Return a 64-bit hash of an ordered pair of ids."""
    word = (u * _A + v * _B) & _WORD
    word = ((word ^ (word >> 32)) * _C) & _WORD
    word = ((word ^ (word >> 29)) * _B) & _WORD
    return word ^ (word >> 32)


def sum_asymmetry(indptr, indices, num_src, first_src, first_dst):
    """Return (uint64 sum over the edges u -> v of hash(u, v) - hash(v, u), modulo 2**64; -1). If a source is out of range: the sum over the
    edges before it, and its position.

    The sum over all edge types is 0 if every edge occurs as often as its reverse; otherwise it is 0 with probability 2**-64.

    Args:
        indptr, indices: in-neighbour lists of one edge type; no list may lie outside the edges. num_src: number of source nodes.
        first_src, first_dst: where the ids of the source type and of the destination type begin in the common id space.
    """
    total = 0
    for v in range(indptr.size - 1):
        for i in range(indptr[v], indptr[v + 1]):
            if not 0 <= indices[i] < num_src:
                return np.uint64(total & _WORD), i
            left, right = int(indices[i]) + first_src, v + first_dst
            total += hash_pair(left, right) - hash_pair(right, left)
    return np.uint64(total & _WORD), -1


def pick_slots(degree, limit):
    """Return the slots that a node with `degree` in-neighbours picks: all, or `limit` evenly spaced ones."""
    return list(range(degree)) if degree <= limit else [j * degree // limit for j in range(limit)]


def build_outgoing(adjacency, num_nodes, limit):
    """Build out-neighbour lists from the in-neighbours that every node picks.

    Args:
        adjacency: list of (indptr, indices, first_src, first_dst).
        num_nodes: number of nodes of all types. limit: most picks per node and edge type.
    Returns:
        (out_ptr int64[num_nodes + 1], out_nodes int64[m]); each list is ordered by edge type, then node, then slot.
    """
    lists = [[] for _ in range(num_nodes)]
    for indptr, indices, first_src, first_dst in adjacency:
        for v in range(indptr.size - 1):
            for slot in pick_slots(int(indptr[v + 1] - indptr[v]), limit):
                lists[int(indices[indptr[v] + slot]) + first_src].append(v + first_dst)
    return np.cumsum([0, *map(len, lists)]), np.array([v for nodes in lists for v in nodes], dtype=np.int64)


def neighbors_of(adjacency, out_ptr, out_nodes, node):
    """Return the neighbours of a node: in-neighbours by edge type and slot, then out-neighbours."""
    neighbors = []
    for indptr, indices, first_src, first_dst in adjacency:
        if first_dst <= node < first_dst + indptr.size - 1:
            neighbors += [int(u) + first_src for u in indices[indptr[node - first_dst] : indptr[node - first_dst + 1]]]
    if len(out_ptr):
        neighbors += map(int, out_nodes[out_ptr[node] : out_ptr[node + 1]])
    return neighbors


def breadth_first(adjacency, out_ptr, out_nodes, roots, is_wanted):
    """Visit nodes breadth first from one root after another.

    Args:
        adjacency: list of (indptr, indices, first_src, first_dst).
        out_ptr, out_nodes: from `build_outgoing`; empty arrays to follow in-neighbours only.
        roots: int64[r]; the search starts at the first, and again at the next unreached one whenever it ends.
        is_wanted: bool[num_nodes].
    Returns:
        int64[m]: the wanted nodes in the order of visits. Neighbours are visited in the order of `neighbors_of`.
    """
    reached, order, queue = set(), [], deque()
    for root in map(int, roots):
        if root in reached:
            continue
        reached.add(root)
        queue.append(root)
        while queue:
            node = queue.popleft()
            if is_wanted[node]:
                order.append(node)
            for neighbor in neighbors_of(adjacency, out_ptr, out_nodes, node):
                if neighbor not in reached:
                    reached.add(neighbor)
                    queue.append(neighbor)
    return np.array(order, dtype=np.int64)
