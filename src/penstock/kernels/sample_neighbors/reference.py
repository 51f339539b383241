"""One hop of neighbour sampling over one edge type: the definition.

In: the nodes to expand and their in-neighbour lists. Out: the sampled positions in `indices`, node after node.
Invariant: the draws of a node depend only on its id, the length of its list and the counter (see `penstock.rng`).
Source: without replacement, Floyd's algorithm (Bentley and Floyd 1987); with replacement, independent draws.
"""

from __future__ import annotations

import numpy as np

from penstock import rng


def draw_slots(degree, *, fanout, replace, counter, key):
    """Draw slots of one neighbour list.

    Args:
        degree: length of the list, at most 2**32.
        fanout: how many to draw; negative takes all.
        replace: draw with replacement (exactly `fanout` slots from a list that is not empty).
        counter: uint64[4], the node's own block 0, from `rng.sample_counter`.
        key: uint64[2], from `rng.derive_key`.
    Returns:
        list of slots in [0, degree): ascending if the whole list is taken, else in the order of the draws.
    """
    if fanout < 0 or (not replace and degree <= fanout):
        return list(range(degree))
    if degree == 0:
        return []
    is_wide = degree >= rng.WIDE_BOUND
    slots = []
    for i in range(fanout):
        bound = degree if replace else degree - fanout + i + 1
        block, word = (i // 2, 2 * (i % 2)) if is_wide else (i // 4, i % 4)
        c0, c1, c2, c3 = counter
        words = rng.philox(c0, c1, c2, c3 + np.uint64(block), key[0], key[1])
        below = (
            rng.below_wide(words[word], words[word + 1], np.uint64(bound)) if is_wide else rng.below_narrow(words[word], np.uint64(bound))
        )
        slot = int(below)
        slots.append(bound - 1 if not replace and slot in slots else slot)
    return slots


def sample_neighbors(indptr, indices, nodes, *, fanout, replace, key, batch, hop, edge_type, copies=None, windows=None):
    """Sample in-neighbours of `nodes`.

    Args:
        indptr: int64[num_dst + 1]. indices: int32 or int64[num_edges]. Together a CSC: the in-neighbours of v are
            `indices[indptr[v]:indptr[v + 1]]`.
        nodes: int64[n], ids of destination nodes, in range.
        fanout, replace, key: see `draw_slots`.
        batch, hop, edge_type: integers that go into the counter.
        copies: int64[n] or None; goes into the counter too, where a node is expanded more than once (see `penstock.rng`).
        windows: int64[2 * n] or None. The list of nodes[i] begins at windows[i] and has windows[n + i] edges; replaces `indptr`.
    Returns:
        (row_ptr int64[n + 1], positions int64[m], neighbors int64[m]): the sampled edges of nodes[i] are at row_ptr[i]:row_ptr[i + 1];
        `neighbors` is `indices[positions]`.
    """
    row_ptr, positions = [0], []
    for i, node in enumerate(nodes):
        start, degree = int(indptr[node]), int(indptr[node + 1] - indptr[node])
        if windows is not None:
            start, degree = int(windows[i]), int(windows[len(nodes) + i])
        counter = rng.sample_counter(node, edge_type, hop, batch, 0 if copies is None else copies[i])
        positions += [start + slot for slot in draw_slots(degree, fanout=fanout, replace=replace, counter=counter, key=key)]
        row_ptr.append(len(positions))
    positions = np.array(positions, dtype=np.int64)
    return np.array(row_ptr, dtype=np.int64), positions, indices[positions].astype(np.int64)
