"""One hop of neighbour sampling by shared numbers over one edge type: the definition.

In: the nodes to expand and their lists of in-neighbours. Out: which positions of the lists are taken, node after node, ascending.
Invariant: what a list takes is a uniform sample without replacement; which it is follows from numbers that its neighbours have in every
list of the hop, so lists with neighbours in common take the same ones.
Source: LABOR, Balin and Catalyurek, NeurIPS 2023, its variant of a fixed number of neighbours with equal probabilities (LABOR-0).
"""

from __future__ import annotations

import numpy as np

from penstock import rng


def number_neighbors(neighbors, *, batch, hop, source, key):
    """Return uint64[n]: the number of each neighbour of a list, whose list it is has no say in it.

    The k-th time that a neighbour comes in one list it has its k-th number: so lists where neighbours repeat are sampled uniformly too.
    """
    numbers, times = [], {}
    for neighbor in neighbors.tolist():
        repeat = times[neighbor] = times.get(neighbor, -1) + 1
        c0, c1, c2, _ = rng.sample_counter(neighbor, source, hop, batch, 0)
        high, low, _, _ = rng.philox(c0, c1, c2, np.uint64(repeat), key[0], key[1])
        numbers.append(int(high) << 32 | int(low))
    return np.array(numbers, dtype=np.uint64)


def choose(numbers, fanout):
    """Return the slots of the `fanout` smallest of the numbers of a list, ascending; of all where there are no more.

    Where more than one is equal to the last of these, which 64 bits never show, the first up to it are taken that are in the list.
    """
    if numbers.size <= fanout:
        return np.arange(numbers.size)
    return np.flatnonzero(numbers <= np.sort(numbers)[fanout - 1])[:fanout]


def sample_neighbors(indptr, indices, nodes, *, fanout, key, batch, hop, source):
    """Sample in-neighbours of `nodes`, without replacement.

    Args:
        indptr: int64[num_dst + 1]. indices: int32 or int64[num_edges]. Together a CSC: in-neighbours of v are
            `indices[indptr[v]:indptr[v + 1]]`.
        nodes: int64[n], ids of destination nodes, in range.
        fanout: how many to take; negative takes all.
        key: uint64[2], from `rng.derive_key`.
        batch, hop, source: place in the counter; `source` is a number of the neighbours' type, so that they have the same numbers in lists
            of several edge types.
    Returns:
        (row_ptr int64[n + 1], positions int64[m], neighbors int64[m]): the taken ones of nodes[i] are at row_ptr[i]:row_ptr[i + 1];
        `neighbors` is `indices[positions]`.
    """
    row_ptr, positions = [0], []
    for node in nodes:
        start, end = int(indptr[node]), int(indptr[node + 1])
        slots = np.arange(end - start)
        if 0 <= fanout < end - start:
            slots = choose(number_neighbors(indices[start:end], batch=batch, hop=hop, source=source, key=key), fanout)
        positions += (start + slots).tolist()
        row_ptr.append(len(positions))
    positions = np.array(positions, dtype=np.int64)
    return np.array(row_ptr, dtype=np.int64), positions, indices[positions].astype(np.int64)
