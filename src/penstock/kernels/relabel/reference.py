"""Compaction: global ids -> positions in the batch's list of nodes, in first-seen order. The definition.

In: ids, and a table of the ids seen before. Out: their positions, and the new ids appended. Invariant: the list holds every new id
once, in the order in which it was first seen; seeds come first and keep their repetitions.
"""

from __future__ import annotations

import numpy as np


def add_seeds(ids, table, nodes):
    """Start a batch.

    Args:
        ids: int64[n], may repeat; every one is appended to `nodes`, the table keeps its first position.
        table: dict id -> position, empty.
        nodes: list, empty.
    Returns:
        int64[n]: how often the same id came before in `ids`.
    """
    times = {}
    copies = []
    for node in map(int, ids):
        copies.append(times.get(node, 0))
        times[node] = copies[-1] + 1
        table.setdefault(node, len(nodes))
        nodes.append(node)
    return np.array(copies, dtype=np.int64)


def relabel(ids, table, nodes):
    """Map ids to positions in `nodes`; append those not seen before.

    Args:
        ids: int64[m].
        table: dict id -> position. nodes: list of ids. Both updated.
    Returns:
        int64[m]: positions.
    """
    positions = []
    for node in map(int, ids):
        if node not in table:
            table[node] = len(nodes)
            nodes.append(node)
        positions.append(table[node])
    return np.array(positions, dtype=np.int64)


def lookup(ids, table):
    """Return int64[m]: positions of ids, -1 for those not in the batch."""
    return np.array([table.get(node, -1) for node in map(int, ids)], dtype=np.int64)
