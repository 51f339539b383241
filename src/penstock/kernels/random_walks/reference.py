"""Random walks over in-neighbour lists, and the nodes that they visit most: the definition.

In: the nodes where walks stand, and their lists. Out: for one step, the positions drawn; for all visits, the nodes visited most, and how
often. Invariant: a step depends on the walk's start node, its number, the step, and the current list; not on other walks.
Source: PinSAGE, Ying et al., KDD 2018; each step is one block of Philox (see `penstock.rng`).
"""

from __future__ import annotations

import numpy as np

from penstock import rng

NOBODY = -1
"""Fills `visits` where a walk had ended."""


def take_step(indptr, starts, copies, num, step, end, key, batch, hop, nodes, walkers):
    """Draw a neighbour for each walk that continues.

    Args:
        indptr: int64[num_dst + 1], of the lists that are read at this step.
        starts: int64[n], the start nodes. copies: int64[n] or None; goes into the counter where a start comes more than once.
        num: walks from each start: walk w began at starts[w // num].
        step: number of the step, from 0.
        end: a walk ends before this step with probability end / 2**32.
        key: uint64[2], from `rng.derive_key`. batch, hop: integers that go into the counter.
        nodes: int64[m], where the walks stand. walkers: int64[m], the number of each walk.
    Returns:
        (walkers int64[l], positions int64[l]): the walks that continue, in their order, and the position that each draws. A walk ends by
        chance, or at an empty list.
    """
    going, positions = [], []
    for node, walker in zip(nodes.tolist(), walkers.tolist(), strict=True):
        start, walk = divmod(walker, num)
        c0, c1, c2, c3 = rng.sample_counter(starts[start], 0, hop, batch, 0 if copies is None else copies[start])
        high, low, chance, _ = rng.philox(c0, c1, c2, c3 + np.uint64(step * num + walk), key[0], key[1])
        begin, degree = int(indptr[node]), int(indptr[node + 1] - indptr[node])
        if degree and int(chance) >= end:
            going.append(walker)
            positions.append(begin + int(rng.below_wide(high, low, np.uint64(degree))))
    return np.array(going, np.int64), np.array(positions, np.int64)


def count_visits(visits, fanout):
    """Choose the nodes that the walks of each start visited most.

    Args:
        visits: int64[n, num, length], by start, walk and step; NOBODY where the walk had ended.
        fanout: how many nodes to choose per start; negative chooses all.
    Returns:
        (row_ptr int64[n + 1], counts int64[m], neighbors int64[m]): the nodes chosen for start i are at row_ptr[i]:row_ptr[i + 1], the most
        visited first; among equals, the node visited at an earlier step, then by a walk with a lower number.
    """
    row_ptr, counts, neighbors = [0], [], []
    for of_start in visits:
        seen = {}
        for node in of_start.T.reshape(-1).tolist():
            if node != NOBODY:
                seen[node] = seen.get(node, 0) + 1
        chosen = sorted(seen, key=lambda node: -seen[node])[: fanout if fanout >= 0 else None]  # sorting is stable
        neighbors += chosen
        counts += [seen[node] for node in chosen]
        row_ptr.append(len(neighbors))
    return tuple(np.array(each, np.int64) for each in (row_ptr, counts, neighbors))


def sample_neighbors(path, nodes, *, fanout, num, length, end, key, batch, hop, copies=None):
    """Sample neighbourhoods by random walks.

    Args:
        path: (indptr, indices) of each step, until a walk is back at the node type where it began; only visits there count.
        nodes: int64[n], ids of the nodes where walks begin.
        fanout: how many of the visited nodes to choose; negative chooses all.
        num, length: walks from each node; how often each follows the path, unless it ends before.
        end: each time a walk is back, it ends with probability end / 2**32.
        key, batch, hop, copies: as in `take_step`.
    Returns:
        See `count_visits`.
    """
    visits = np.full((len(nodes) * num, length), NOBODY)
    standing, walkers = np.repeat(np.asarray(nodes, np.int64), num), np.arange(len(nodes) * num)
    for step in range(length * len(path)):
        turn, part = divmod(step, len(path))
        (indptr, indices), chance = path[part], end if turn and not part else 0
        walkers, positions = take_step(indptr, nodes, copies, num, step, chance, key, batch, hop, standing[walkers], walkers)
        standing[walkers] = indices[positions]
        if part == len(path) - 1:
            visits[walkers, turn] = standing[walkers]
    return count_visits(visits.reshape(len(nodes), num, length), fanout)
