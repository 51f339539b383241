"""One hop of neighbour sampling by weight over one edge type: the definition.

In: the nodes to expand, their in-neighbour lists, and running sums of the edges' integer weights. Out: the sampled positions in `indices`,
node after node. Invariants: the draws of a node depend only on its id, the weights in its list and the counter (see `penstock.rng`); an
edge of weight 0 is never drawn. With replacement, draws are independent, each with probability weight / sum. Without replacement, each draw
takes one of the edges not drawn yet, with probability weight / sum of their weights (successive sampling).
"""

from __future__ import annotations

import numpy as np

from penstock import rng


def draw_slots(weights, *, fanout, replace, counter, key):
    """Draw slots of one neighbour list.

    Args:
        weights: the integer weights of the list, each 0 or more, with a sum of at most 2**62.
        fanout: how many to draw; negative takes all edges of positive weight.
        replace: draw with replacement (exactly `fanout` slots from a list with a positive weight).
        counter: uint64[4], the node's own block 0, from `rng.sample_counter`. Draw i takes words 0 to 2 of block i.
        key: uint64[2], from `rng.derive_key`.
    Returns:
        list of slots: ascending if nothing is drawn because all are taken, else in the order of the draws; fewer than `fanout` if fewer
        have a positive weight.
    """
    if fanout < 0 or (not replace and len(weights) <= fanout):
        return [slot for slot, weight in enumerate(weights) if weight > 0]
    left, slots = list(map(int, weights)), []
    for i in range(fanout):
        total = sum(left)
        if total == 0:
            break
        c0, c1, c2, c3 = counter
        w0, w1, w2, _ = map(int, rng.philox(c0, c1, c2, c3 + np.uint64(i), key[0], key[1]))
        drawn = ((w0 << 64 | w1 << 32 | w2) * total) >> 96
        slot = 0
        while drawn >= left[slot]:
            drawn -= left[slot]
            slot += 1
        slots.append(slot)
        if not replace:
            left[slot] = 0
    return slots


def sample_neighbors(indptr, indices, sums, nodes, *, fanout, replace, key, batch, hop, edge_type, copies=None):
    """Sample in-neighbours of `nodes`.

    Args:
        indptr, indices: a CSC: the in-neighbours of v are `indices[indptr[v]:indptr[v + 1]]`.
        sums: int64[num_edges], from `kernels.running_sums`.
        nodes, fanout, replace, key, batch, hop, edge_type, copies: as in `kernels.sample_neighbors`.
    Returns:
        (row_ptr int64[n + 1], positions int64[m], neighbors int64[m]): the sampled edges of nodes[i] are at row_ptr[i]:row_ptr[i + 1];
        `neighbors` is `indices[positions]`.
    """
    row_ptr, positions = [0], []
    for i, node in enumerate(nodes):
        start, end = int(indptr[node]), int(indptr[node + 1])
        weights = np.diff(sums[start:end], prepend=0).tolist()
        counter = rng.sample_counter(node, edge_type, hop, batch, 0 if copies is None else copies[i])
        positions += [start + slot for slot in draw_slots(weights, fanout=fanout, replace=replace, counter=counter, key=key)]
        row_ptr.append(len(positions))
    positions = np.array(positions, dtype=np.int64)
    return np.array(row_ptr, dtype=np.int64), positions, indices[positions].astype(np.int64)
