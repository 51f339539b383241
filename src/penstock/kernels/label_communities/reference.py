"""Label propagation: each node joins the community that most of its neighbours are in. The definition.

In: a graph as `breadth_first` takes it, and the community of each node. Out: the communities after one round. Invariant: nodes are visited
one by one, by id, and each sees the changes before it, so the result depends only on the input.
Source: Raghavan, Albert, Kumara 2007; the limit on sizes as in Ugander and Backstrom 2013, so that no community grows over the whole graph.
Refused: visits in random order. They read lists all over memory or disk, and took several times as long for the same result.
"""

from __future__ import annotations

from collections import Counter

from penstock.kernels.breadth_first.reference import neighbors_of


def propagate(adjacency, out_ptr, out_nodes, max_size, labels, sizes):
    """Visit every node once, by ascending id.

    Args:
        adjacency, out_ptr, out_nodes: see `breadth_first`; a neighbour counts as often as it is in a list.
        max_size: a community with max_size nodes takes no more.
        labels: int[num_nodes], the community of each node; changed. sizes: int[num_nodes], nodes per community; changed.
    Returns:
        How many nodes changed. Among equally frequent communities, a node keeps its own, else takes the one met first.
    """
    changed = 0
    for node in range(len(labels)):
        met = [int(labels[u]) for u in neighbors_of(adjacency, out_ptr, out_nodes, node)]
        counts = Counter(met)
        own = best = int(labels[node])
        for label in met:
            if counts[label] > counts[best] and sizes[label] < max_size:
                best = label
        if best != own:
            labels[node] = best
            sizes[own] -= 1
            sizes[best] += 1
            changed += 1
    return changed
