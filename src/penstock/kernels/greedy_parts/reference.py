"""Linear deterministic greedy: each node goes to the part that holds most of its neighbours and has room. The definition.

In: a graph as `breadth_first` takes it, the nodes to assign, in order, and the owners so far. Out: the owners of these nodes. Invariant: no
part takes more nodes of a kind than its capacity; the result depends only on the input.
Source: Stanton and Kliot 2012. A second pass over the same nodes, with sizes reset to 0 and owners kept: Nishimura and Ugander 2013.
"""

from __future__ import annotations

from collections import Counter

from penstock.kernels.breadth_first.reference import neighbors_of


def place(adjacency, out_ptr, out_nodes, nodes, kinds, capacities, sizes, owners):
    """Assign each node to the part with the largest (neighbours in the part) * room, where room is the capacity for the node's kind minus
    the part's nodes of that kind.

    Args:
        adjacency, out_ptr, out_nodes: see `breadth_first`. A neighbour counts as often as it is in a list; a self-loop does not count.
        nodes: int[n], distinct.
        kinds: int[num_nodes].
        capacities: int[num_kinds], per part; all parts together must have room for all nodes.
        sizes: int[num_kinds, num_parts], nodes per kind and part; updated.
        owners: int[num_nodes], -1: no owner; written at `nodes`.
    Returns:
        How many nodes have another owner than before. Among equal parts, the one with more room is taken, then the first.
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
