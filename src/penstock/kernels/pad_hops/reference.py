"""Samples whose hops are filled up to given sizes: the definition.

`hops`, int64[n, 2], are a number and the size that it is filled up to, hop by hop; what fills it comes after what is there. Edges that fill
a hop run among nodes that do: the k-th of Q edges goes to the (k * P // Q)-th of P nodes of the hop before, and comes from the (k mod R)-th
of R of its own. So destinations still ascend, no node gets many more than others, and no node of the sample gets any. Where edges fill a
hop, nodes fill both.
"""

from __future__ import annotations

import numpy as np


def pad_ids(ids, hops):
    """Return int64[sum of sizes]: `ids` of one hop after the other, each followed by -1."""
    parts, first = [np.empty(0, np.int64)], 0
    for count, size in hops.tolist():
        parts += [ids[first : first + count], np.full(size - count, -1)]
        first += count
    return np.concatenate(parts)


def pad_edges(edge_index, edges, sources, targets):
    """Return int64[2, sum of sizes of edges].

    Args:
        edge_index: int64[2, num_edges], those of hop h into targets of hop h.
        edges: hops of the edges. sources, targets: of the nodes that they come from and go to, one more: the seeds first.
    """
    source_places, target_places = (np.flatnonzero(pad_ids(np.arange(hops[:, 0].sum()), hops) >= 0) for hops in (sources, targets))
    source_begins, target_begins = (np.cumsum(hops[:, 1]) - hops[:, 1] for hops in (sources, targets))
    parts, first = [np.empty((2, 0), np.int64)], 0
    for hop, (count, size) in enumerate(edges.tolist()):
        real = edge_index[:, first : first + count]
        parts.append(np.stack([source_places[real[0]], target_places[real[1]]]))
        numbers, num_targets, num_sources = np.arange(size - count), np.diff(targets)[hop, 0], np.diff(sources)[hop + 1, 0]
        if numbers.size:
            begin = source_begins[hop + 1] + sources[hop + 1, 0], target_begins[hop] + targets[hop, 0]
            parts.append(np.stack([begin[0] + numbers % num_sources, begin[1] + numbers * num_targets // numbers.size]))
        first += count
    return np.concatenate(parts, axis=1)


def pad_row_ptr(edge_index, num_rows):
    """Return int64[num_rows + 1]: where the edges of each destination begin; `edge_index` as `pad_edges` returns it."""
    return np.searchsorted(edge_index[1], np.arange(num_rows + 1))
