"""Pad the hops of a sample to given sizes: the definition.

`hops`, int64[n, 2], hold per hop the number of its nodes or edges and the size that it is padded to; padding comes after the real ones. A
padding edge joins padding nodes: of a hop's Q padding edges, the k-th goes to the (k * P // Q)-th of the P padding nodes of the hop before,
and comes from the (k mod R)-th of the R padding nodes of its own hop. So destinations still ascend, padding edges are spread evenly, and no
real node gets one. A hop with padding edges needs padding nodes both in the hop before and in itself.
"""

from __future__ import annotations

import numpy as np


def pad_ids(ids, hops):
    """Return int64[sum of sizes]: `ids`, hop by hop, each hop padded with -1."""
    parts, first = [np.empty(0, np.int64)], 0
    for count, size in hops.tolist():
        parts += [ids[first : first + count], np.full(size - count, -1)]
        first += count
    return np.concatenate(parts)


def pad_edges(edge_index, edges, sources, targets):
    """Return int64[2, sum of the sizes of `edges`]: the padded edges.

    Args:
        edge_index: int64[2, num_edges], hop by hop; edges of hop h go to targets[h].
        edges: `hops` of the edges. sources, targets: `hops` of the nodes of the source type and the destination type; one more than
            `edges`, since the seeds come first.
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
