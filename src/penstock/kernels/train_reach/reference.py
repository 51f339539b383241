"""Train nodes placed with what their batches read: the definition.

In: in-neighbour lists and train nodes in the order in which they come. Out: a part for each, and owners of what their batches read.
Invariant: a part owns at most its capacity of each kind; the result depends on nothing but the input.
Source: Lin et al. 2020 (PaGraph), algorithm 1. There a part keeps copies of all that it reads; here a node has one owner, the first part
that took it in and had room, and the copies only count.
"""

from __future__ import annotations

from penstock.kernels.breadth_first.reference import neighbors_of


def reach(adjacency, node, num_hops, limit):
    """Return the first `limit` nodes within some hops of in-neighbours, breadth first, the node itself first."""
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
    """Give each train node to the part with the largest (train nodes in reach) * room / nodes held, room as in `greedy_parts`.

    Args:
        adjacency: see `breadth_first`.
        nodes: int[n], distinct, of odd kinds. Other nodes of odd kinds are nobody's until their turn.
        num_hops, limit: how far batches read, and how many nodes of that are looked at.
        kinds: int[num_nodes]; those of train nodes are odd.
        capacities: int[num_kinds]. sizes: int[num_kinds, num_parts]; added to.
        held: num_parts sets of nodes that parts keep or copy; added to.
        owners: int[num_nodes], -1 where nobody owns; written.
    Of equal parts the one with more room is taken, then the first.
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
