"""Read sampled neighbours from the lists that a neighbour cache keeps: the definition, for both layouts."""

from __future__ import annotations

import numpy as np


def read_direct(indptr, nodes, row_ptr, positions, starts, cached, neighbors):
    """Read neighbours from kept lists, in the direct layout: a table says where the list of each node begins (Ginex 3.2).

    Args:
        indptr: int64[num_dst + 1], of the whole adjacency.
        nodes: int64[n], the expanded nodes.
        row_ptr: int64[n + 1]; the positions of nodes[i] are positions[row_ptr[i] - row_ptr[0]:row_ptr[i + 1] - row_ptr[0]].
        positions: int64[m], in the whole adjacency.
        starts: int64 or int32[num_dst], where in `cached` each node's list begins; -1 if it is not kept.
        cached: the kept lists, one after another.
        neighbors: [m], the result; misses are not written.
    Returns:
        int64[k]: indices into `positions` of the misses.
    """
    missed = []
    for i, node in enumerate(nodes):
        for j in range(row_ptr[i] - row_ptr[0], row_ptr[i + 1] - row_ptr[0]):
            if starts[node] < 0:
                missed.append(j)
            else:
                neighbors[j] = cached[starts[node] + positions[j] - indptr[node]]
    return np.array(missed, dtype=np.int64)


def read_prefix(indptr, nodes, row_ptr, positions, ranks, prefix_ptr, cached, neighbors):
    """Read neighbours from kept lists, in the prefix layout: the lists of the highest-ranked nodes in the order of rank (DUCATI).

    Args:
        ranks: int32 or int64[num_dst], a permutation.
        prefix_ptr: int64[num_kept + 1]: for r < num_kept, the list of the node of rank r is cached[prefix_ptr[r]:prefix_ptr[r + 1]].
    Other arguments and result as in `read_direct`.
    """
    starts = np.where(ranks < prefix_ptr.size - 1, np.append(prefix_ptr[:-1], -1)[np.minimum(ranks, prefix_ptr.size - 1)], -1)
    return read_direct(indptr, nodes, row_ptr, positions, starts, cached, neighbors)
