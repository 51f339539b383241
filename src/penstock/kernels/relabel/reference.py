"""Compaction: global ids -> positions in the batch's list of nodes, in first-seen order. The definition.

In: ids, and a table of the ids seen before. Out: the positions of the ids; new ids are appended to the list. Invariant: seeds come first
and keep their repetitions; after them, the list holds each other id once, in first-seen order.
"""

from __future__ import annotations

import numpy as np


def add_seeds(ids, table, nodes):
    """Start a batch.

    Args:
        ids: int64[n], the seeds, may repeat. Each is appended to `nodes`; the table keeps the first position of each.
        table: dict id -> position, empty.
        nodes: list, empty.
    Returns:
        int64[n]: how often the same id occurs earlier in `ids`.
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
    """Map ids to positions in `nodes`; append ids not seen before.

    Args:
        ids: int64[m].
        table: dict id -> position. nodes: list of ids. Both are updated.
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
    """Return int64[m]: the position of each id, -1 if it is not in the batch."""
    return np.array([table.get(node, -1) for node in map(int, ids)], dtype=np.int64)
