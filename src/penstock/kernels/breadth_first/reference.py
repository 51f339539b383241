"""Breadth-first traversal over the undirected view of a graph of in-neighbour lists: the definition.

In: in-neighbour lists of every edge type, over one space of ids (type after type), and roots. Out: the wanted nodes in the order in
which they are reached. Invariant: every wanted node among the roots comes exactly once; what is reached depends on nothing but the input.

In-neighbours are at hand; out-neighbours are not, and a copy of the edges to have them would not fit beside a large graph. So each node
picks `limit` of its in-neighbours per edge type and is entered in their lists of out-neighbours: 4 * limit bytes a node, whatever the
number of edges, and a hub loses none of the nodes that have only few ways in. On a symmetric graph in-neighbours are all neighbours.
"""

from __future__ import annotations

from collections import deque

import numpy as np

_A, _B, _C = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xBF58476D1CE4E5B9
_WORD = (1 << 64) - 1


def hash_pair(u, v):
    """Return 64 bits over an ordered pair of ids."""
    word = (u * _A + v * _B) & _WORD
    word = ((word ^ (word >> 32)) * _C) & _WORD
    word = ((word ^ (word >> 29)) * _B) & _WORD
    return word ^ (word >> 32)


def sum_asymmetry(indptr, indices, num_src, first_src, first_dst):
    """Return (uint64: sum over the edges u -> v of hash(u, v) - hash(v, u), modulo 2**64; -1). Where a source lies outside: the sum over
    the edges before the first such, and its position.

    Over all edge types it is 0 where every edge has its reverse, as often; else with probability 2**-64.

    Args:
        indptr, indices: in-neighbour lists of one edge type, each within the edges. num_src: nodes that may be sources.
        first_src, first_dst: where the ids of its ends begin in the common space.
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
    """Return the slots of a list of `degree` in-neighbours that are picked: all, or `limit` spread evenly."""
    return list(range(degree)) if degree <= limit else [j * degree // limit for j in range(limit)]


def build_outgoing(adjacency, num_nodes, limit):
    """Build the lists of out-neighbours from what every node picks.

    Args:
        adjacency: list of (indptr, indices, first_src, first_dst).
        num_nodes: of the common space. limit: picked per node and edge type, at most.
    Returns:
        (out_ptr int64[num_nodes + 1], out_nodes int64[m]): by edge type, then node, then slot.
    """
    lists = [[] for _ in range(num_nodes)]
    for indptr, indices, first_src, first_dst in adjacency:
        for v in range(indptr.size - 1):
            for slot in pick_slots(int(indptr[v + 1] - indptr[v]), limit):
                lists[int(indices[indptr[v] + slot]) + first_src].append(v + first_dst)
    return np.cumsum([0, *map(len, lists)]), np.array([v for nodes in lists for v in nodes], dtype=np.int64)


def neighbors_of(adjacency, out_ptr, out_nodes, node):
    """Return the list of neighbours of a node: by edge type and slot, then out-neighbours."""
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
        out_ptr, out_nodes: from `build_outgoing`; empty arrays where in-neighbours are all there is.
        roots: int64[r], where to start, and to start again when nothing more can be reached.
        is_wanted: bool[num_nodes].
    Returns:
        int64[m]: the wanted nodes as they are reached. Neighbours of a node as of `neighbors_of`.
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
