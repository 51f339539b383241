"""Linear deterministic greedy: each node goes to the part that holds most of its neighbours and has room. The definition.

In: a graph as `breadth_first` takes it, nodes in the order in which they come, and who owns what already. Out: who owns these nodes.
Invariant: no part takes more nodes of a kind than its capacity; the result depends on nothing but the input.
Source: Stanton and Kliot 2012. A second pass over the same nodes, sizes back at 0 and owners kept: Nishimura and Ugander 2013.
"""

from __future__ import annotations

from collections import Counter

from penstock.kernels.breadth_first.reference import neighbors_of


def place(adjacency, out_ptr, out_nodes, nodes, kinds, capacities, sizes, owners):
    """Give each node to the part with the largest neighbours * room, room = capacity of the node's kind - nodes of that kind in the part.

    Args:
        adjacency, out_ptr, out_nodes: see `breadth_first`; a neighbour counts as often as it is in a list, a node is not its own.
        nodes: int[n], distinct.
        kinds: int[num_nodes].
        capacities: int[num_kinds]; together the parts must have room for all nodes.
        sizes: int[num_kinds, num_parts]; added to.
        owners: int[num_nodes], -1 where nobody owns; written at `nodes`.
    Returns:
        How many have another owner than before. Of equal parts the one with more room is taken, then the first.
    """
    changed = 0
    for node in map(int, nodes):
        counts = Counter(int(owners[u]) for u in neighbors_of(adjacency, out_ptr, out_nodes, node) if u != node)
        kind = kinds[node]
        rooms = [int(capacities[kind] - size) for size in sizes[kind]]
        best = max((part for part, room in enumerate(rooms) if room > 0), key=lambda part: (counts[part] * rooms[part], rooms[part], -part))
        changed += owners[node] != best
        owners[node] = best
        sizes[kind, best] += 1
    return changed
