"""Sampled neighbours out of lists that are kept in memory: the definition, for both ways of finding a list."""

from __future__ import annotations

import numpy as np


def read_direct(indptr, nodes, row_ptr, positions, starts, cached, neighbors):
    """Read what is there; the start of a node's list is looked up under the node (Ginex 3.2).

    Args:
        indptr: int64[num_dst + 1], of the whole adjacency.
        nodes: int64[n], the expanded nodes.
        row_ptr: int64[n + 1]; the positions of nodes[i] are row_ptr[i] - row_ptr[0] to row_ptr[i + 1] - row_ptr[0].
        positions: int64[m], in the whole adjacency.
        starts: int64 or int32[num_dst], where in `cached` each node's list begins; -1 where it is not kept.
        cached: the lists that are kept, one after the other.
        neighbors: [m], the result.
    Returns:
        int64[k]: indices into `positions` of those that are not kept.
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
    """Read what is there; the lists of the best-ranked nodes are a prefix of all lists in the order of rank (DUCATI).

    Args:
        ranks: int32 or int64[num_dst], a permutation.
        prefix_ptr: int64[num_kept + 1]: the list of the node of rank r, if r < num_kept, is cached[prefix_ptr[r]:prefix_ptr[r + 1]].
    Other arguments and result as in `read_direct`.
    """
    starts = np.where(ranks < prefix_ptr.size - 1, np.append(prefix_ptr[:-1], -1)[np.minimum(ranks, prefix_ptr.size - 1)], -1)
    return read_direct(indptr, nodes, row_ptr, positions, starts, cached, neighbors)
