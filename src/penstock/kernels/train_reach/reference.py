"""Assign train nodes to parts together with the nodes that their batches read: the definition.

In: in-neighbour lists, and train nodes in the order in which they are assigned. Out: the part of each train node, and owners of the nodes
that their batches read. Invariant: a part owns at most its capacity of each kind; the result depends only on the input.
Source: Lin et al. 2020 (PaGraph), algorithm 1. There a part stores copies of all nodes that it reads. Here a node has one owner, the first
part that reads it and has room; copies are only counted.
"""

from __future__ import annotations

from penstock.kernels.breadth_first.reference import neighbors_of


def reach(adjacency, node, num_hops, limit):
    """Return the first `limit` nodes that are reached over `num_hops` hops of in-neighbours, breadth first, from the node itself on."""
    reached = [node]
    head = 0
    for _ in range(num_hops):
        stop = len(reached)
        while head < stop:
            for u in neighbors_of(adjacency, (), (), reached[head]):
                if len(reached) < limit and u not in reached:
                    reached.append(u)
            head += 1
    return reached


def place(adjacency, nodes, num_hops, limit, kinds, capacities, sizes, held, owners):
    """Assign each train node to the part with the largest (the part's train nodes in reach) * room / (nodes held); room as in
    `greedy_parts`. Among equal parts, the one with more room is taken, then the first.

    Args:
        adjacency: see `breadth_first`.
        nodes: int[n], distinct, of odd kinds. Other nodes of odd kinds have no owner until their turn.
        num_hops, limit: hops that batches read; how many of the reached nodes are considered.
        kinds: int[num_nodes]; kinds of train nodes are odd.
        capacities: int[num_kinds]. sizes: int[num_kinds, num_parts], nodes per kind and part; updated.
        held: num_parts sets, the nodes that each part owns or would copy; updated.
        owners: int[num_nodes], -1: no owner; updated.
    """
    for node in map(int, nodes):
        reached = reach(adjacency, node, num_hops, limit)
        trained = [owners[u] for u in reached if kinds[u] % 2 and owners[u] >= 0]
        rooms = [int(capacities[kinds[node]] - size) for size in sizes[kinds[node]]]
        scores = [trained.count(part) * room / max(len(held[part]), 1) for part, room in enumerate(rooms)]
        best = max((part for part, room in enumerate(rooms) if room > 0), key=lambda part: (scores[part], rooms[part], -part))
        owners[node] = best
        sizes[kinds[node], best] += 1
        for u in reached:
            if u not in held[best] and owners[u] < 0 and kinds[u] % 2 == 0 and sizes[kinds[u], best] < capacities[kinds[u]]:
                owners[u] = best
                sizes[kinds[u], best] += 1
            held[best].add(u)
