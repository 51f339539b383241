"""One hop of neighbour sampling by shared numbers over one edge type: the definition.

In: the nodes to expand and their in-neighbour lists. Out: the sampled positions in `indices`, node after node, ascending per node.
Invariant: the sample of each list is uniform, without replacement. A node has one random number for all lists of the hop, and each list
takes the neighbours with the smallest numbers; so lists with common neighbours take the same ones where possible.
Source: LABOR, Balin and Catalyurek, NeurIPS 2023; its variant with a fixed number of neighbours and equal probabilities (LABOR-0).
"""

from __future__ import annotations

import numpy as np

from penstock import rng


def number_neighbors(neighbors, *, batch, hop, source, key):
    """Return uint64[n]: the number of each neighbour of a list. It does not depend on the list's node.

    The k-th occurrence of a neighbour in a list has the neighbour's k-th number, so lists with repeated neighbours are sampled uniformly
    too.
    """
    numbers, times = [], {}
    for neighbor in neighbors.tolist():
        repeat = times[neighbor] = times.get(neighbor, -1) + 1
        c0, c1, c2, _ = rng.sample_counter(neighbor, source, hop, batch, 0)
        high, low, _, _ = rng.philox(c0, c1, c2, np.uint64(repeat), key[0], key[1])
        numbers.append(int(high) << 32 | int(low))
    return np.array(numbers, dtype=np.uint64)


def choose(numbers, fanout):
    """Return the slots of the `fanout` smallest numbers of a list, ascending; all slots if the list has no more.

    If several numbers equal the largest of these, too many are at or below it; then the first `fanout` of them in the list are taken.
    With numbers of 64 bits this practically never happens.
    """
    if numbers.size <= fanout:
        return np.arange(numbers.size)
    return np.flatnonzero(numbers <= np.sort(numbers)[fanout - 1])[:fanout]


def sample_neighbors(indptr, indices, nodes, *, fanout, key, batch, hop, source):
    """Sample in-neighbours of `nodes`, without replacement.

    Args:
        indptr: int64[num_dst + 1]. indices: int32 or int64[num_edges]. Together a CSC: the in-neighbours of v are
            `indices[indptr[v]:indptr[v + 1]]`.
        nodes: int64[n], ids of destination nodes, in range.
        fanout: how many to take; negative takes all.
        key: uint64[2], from `rng.derive_key`.
        batch, hop, source: integers that go into the counter. `source` identifies the neighbours' node type, so that a node has the same
            number in lists of several edge types.
    Returns:
        (row_ptr int64[n + 1], positions int64[m], neighbors int64[m]): the sampled edges of nodes[i] are at row_ptr[i]:row_ptr[i + 1];
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
