"""Random walks over lists of in-neighbours, and the nodes that they visited most: the definition.

In: where walks stand, and their lists. Out: of one step, which positions of the lists are taken; of all visits, who was visited most, and
how often. Invariant: a step depends on the walk's start, its number, the step, and the list that it is at; not on other walks.
Source: PinSAGE, Ying et al., KDD 2018; each step is one block of Philox (see `penstock.rng`).
"""

from __future__ import annotations

import numpy as np

from penstock import rng

NOBODY = -1
"""Visited at a step that a walk did not make."""


def take_step(indptr, starts, copies, num, step, end, key, batch, hop, nodes, walkers):
    """Draw a neighbour for each walk that goes on.

    Args:
        indptr: int64[num_dst + 1], of the lists that are read at this step.
        starts: int64[n], where walks began. copies: int64[n] or None, place in the counter where one of them comes more than once.
        num: walks from each start: walk w began at starts[w // num].
        step: of the walks, from 0.
        end: of 2**32 walks, so many end before this step.
        key: uint64[2], from `rng.derive_key`. batch, hop: place in the counter.
        nodes: int64[m], where walks stand. walkers: int64[m], which they are.
    Returns:
        (walkers int64[l], positions int64[l]): those that go on, in their order, and what each takes of its list. A walk ends by chance, or
        where the list is empty.
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
        visits: int64[n, num, length], by start, walk and step; NOBODY where the walk was over.
        fanout: how many to take; negative takes all.
    Returns:
        (row_ptr int64[n + 1], counts int64[m], neighbors int64[m]): the chosen of start i are at row_ptr[i]:row_ptr[i + 1], the most
        visited first; of those that were visited equally often, who was visited at an earlier step, then by a walk of a smaller number.
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
        path: (indptr, indices) for each step until a walk is back at nodes of the type that it began at: visits there count.
        nodes: int64[n], ids where walks begin.
        fanout: how many of those visited to take; negative takes all.
        num, length: walks from each node, and how often each goes along the path, unless it ends.
        end: of 2**32 walks, so many end each time that they are back.
        key, batch, hop, copies: as of `take_step`.
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
