"""Pad the hops of a sample to given sizes. Same results as `reference.py`, byte for byte, written to given arrays."""

from __future__ import annotations

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, store


@kernel
def pad_ids(ids, hops, out):
    """Write `ids`, hop by hop, to `out`, int64[sum of sizes]; each hop is padded with -1."""
    first = place = 0
    for hop in range(hops.shape[0]):
        count, size = hops[hop]
        for i in range(count):
            store(out, place + i, load(ids, first + i))
        for i in range(count, size):
            store(out, place + i, -1)
        first += count
        place += size


@kernel
def pad_edges(from_, to, edges, sources, targets, out_from, out_to):
    """Write the padded edges to int64[sum of sizes] `out_from` and `out_to`; arguments as in `reference.py`, `from_` and `to` are the rows
    of `edge_index`."""
    first = place = target_first = target_place = 0
    source_place = sources[0, 1]
    for hop in range(edges.shape[0]):
        (count, size), (num_targets, target_size), (num_sources, source_size) = edges[hop], targets[hop], sources[hop + 1]
        for i in range(count):
            node = place_of = load(from_, first + i)
            end = 0
            for before in range(hop + 1):  # a source belongs to this hop or an earlier one
                end += sources[before, 0]
                if node >= end:
                    place_of += sources[before, 1] - sources[before, 0]
            store(out_from, place + i, place_of)
            store(out_to, place + i, load(to, first + i) - target_first + target_place)
        begin_from, begin_to, num_added = source_place + num_sources, target_place + num_targets, size - count
        for i in range(num_added):
            store(out_from, place + count + i, begin_from + i % (source_size - num_sources))
            store(out_to, place + count + i, begin_to + i * (target_size - num_targets) // num_added)
        first += count
        place += size
        target_first += num_targets
        target_place += target_size
        source_place += source_size


@kernel
def pad_row_ptr(row_ptr, edges, targets, out):
    """Write row pointers of the padded edges to `out`, int64[1 + sum of sizes of targets[:num_hops]]. `row_ptr`: of the sampled edges."""
    first = place = target_first = target_place = 0
    for hop in range(edges.shape[0]):
        (count, size), (num_targets, target_size) = edges[hop], targets[hop]
        for i in range(num_targets):
            store(out, target_place + i, load(row_ptr, target_first + i) - first + place)
        num_added, num_more = size - count, target_size - num_targets
        for i in range(num_more):
            store(out, target_place + num_targets + i, place + count + (i * num_added + num_more - 1) // num_more)
        first += count
        place += size
        target_first += num_targets
        target_place += target_size
    out[target_place] = place
