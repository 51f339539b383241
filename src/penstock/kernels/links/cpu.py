"""Negative links, edges left out of a sample, and pairs held out of a graph. Same results as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, store
from penstock.kernels._random import below_wide, philox
from penstock.kernels._search import first_at_least

U53 = 2.0**-53


@helper
def _draw_node(high, low, most, order, sums):
    """Draw one of the first `most` candidates; see `reference.draw_node`."""
    if sums.size:
        total = load(sums, most - 1) if most else 0.0
        drawn = np.float64((high << np.uint64(21)) | (low >> np.uint64(11))) * U53 * total
        first, end = 0, sums.size - 1
        while first < end:
            middle = (first + end) >> 1
            known = load(sums, middle)
            if known > drawn or (known >= total and known > 0):
                end = middle
            else:
                first = middle + 1
        place = first
    else:
        place = np.int64(below_wide(high, low, np.uint64(most)))
    return np.int64(load(order, place)) if order.size else place


@helper
def _has_edge(links, source, target):
    """Whether an adjacency has the link (source, target); see `penstock.sample.negatives.Adjacency`."""
    if not links.indptr.size:
        return False
    first, end = load(links.indptr, target), load(links.indptr, target + 1)
    if end - first > links.longest:
        number = first_at_least(links.long_targets, 0, links.long_targets.size, target)
        end = load(links.long_ptr, number + 1)
        place = first_at_least(links.long_sources, load(links.long_ptr, number), end, source)
        return place < end and load(links.long_sources, place) == source
    while first < end and load(links.indices, first) != source:
        first += 1
    return first < end


@kernel
def are_links(links, sources, targets, found):
    """Write to uint8[n] `found` whether each pair of int64[n] `sources` and `targets` is one of `links`, a
    `penstock.sample.negatives.Adjacency`."""
    for number in range(sources.size):
        store(found, number, np.uint8(_has_edge(links, load(sources, number), load(targets, number))))


@kernel
def draw_negatives(
    key, batch, sources, source_most, source_order, source_sums, target_most, target_order, target_sums, edges, given, first, end,
    is_positive, drawn_sources, drawn_targets,
):  # fmt: skip
    """Draw negative links; see `reference.draw_negatives`. The positives are two adjacencies, `edges` and `given`, each a
    `penstock.sample.negatives.Adjacency`.

    Args:
        first, end: makes the attempts in [first, end), for the links that are positive so far.
        is_positive: uint8[n], whether each link is positive so far; updated. Before the first attempt, all 1.
        drawn_sources, drawn_targets: int64[n], the result.
    """
    zero = np.uint64(0)
    for number in range(target_most.size):
        for attempt in range(first, end):
            if not load(is_positive, number):
                break
            w0, w1, w2, w3 = philox(np.uint64(number), np.uint64(attempt), np.uint64(batch), zero, key[0], key[1])
            if sources.size:
                source = load(sources, number)
            else:
                source = _draw_node(w0, w1, load(source_most, number), source_order, source_sums)
            target = _draw_node(w2, w3, load(target_most, number), target_order, target_sums)
            store(drawn_sources, number, source)
            store(drawn_targets, number, target)
            store(is_positive, number, np.uint8(_has_edge(edges, source, target) or _has_edge(given, source, target)))


@helper
def _move(rows, columns, positions, at, to):
    store(rows, to, load(rows, at))
    store(columns, to, load(columns, at))
    store(positions, to, load(positions, at))


@kernel
def _leave_out(sources, targets, link_targets, link_ptr, link_sources, rows, columns, row_ptr, positions, hop_ends):
    """`leave_out`, row by row, in place.

    Args:
        link_targets: int64[k], distinct, ascending. link_ptr, link_sources: the sources of link_targets[i], ascending, are
            link_sources[link_ptr[i]:link_ptr[i + 1]].
        rows, columns: edge_index[0] and edge_index[1]. hop_ends: int64[hops], number of edges up to the end of each hop.
    Returns:
        how many edges are left.
    """
    kept, hop, begin, num_targets = 0, 0, 0, link_targets.size
    for row in range(row_ptr.size - 1):
        end, target = load(row_ptr, row + 1), load(targets, row)
        while hop < hop_ends.size and begin >= load(hop_ends, hop):  # a hop begins with a row
            store(hop_ends, hop, kept)
            hop += 1
        found = first_at_least(link_targets, 0, num_targets, target) if begin < end else num_targets
        if found < num_targets and load(link_targets, found) == target:
            first, last = load(link_ptr, found), load(link_ptr, found + 1)
            for at in range(begin, end):
                source = load(sources, load(rows, at))
                place = first_at_least(link_sources, first, last, source)
                if place == last or load(link_sources, place) != source:
                    _move(rows, columns, positions, at, kept)
                    kept += 1
        elif kept < begin:
            for at in range(begin, end):
                _move(rows, columns, positions, at, kept)
                kept += 1
        else:
            kept = end
        store(row_ptr, row + 1, kept)
        begin = end
    while hop < hop_ends.size:
        store(hop_ends, hop, kept)
        hop += 1
    return kept


def leave_out(sources, targets, links, edge_index, row_ptr, positions, num_per_hop):
    """Remove edges from a sample; see `reference.leave_out`. Overwrites `edge_index`, `row_ptr`, `positions` and returns views of them."""
    by_target = np.lexsort(links)
    distinct, firsts = np.unique(links[1, by_target], return_index=True)
    link_ptr, link_sources = np.append(firsts, by_target.size), np.ascontiguousarray(links[0, by_target])
    hop_ends, whole, num_edges = np.cumsum(num_per_hop or [], dtype=np.int64), edge_index.reshape(-1), positions.size
    rows, columns = whole[:num_edges], whole[num_edges:]
    kept = _leave_out(sources, targets, distinct, link_ptr, link_sources, rows, columns, row_ptr, positions, hop_ends)
    whole[kept : 2 * kept] = columns[:kept]
    hops = None if num_per_hop is None else np.diff(hop_ends, prepend=0).tolist()
    return whole[: 2 * kept].reshape(2, kept), row_ptr, positions[:kept], hops


@kernel
def divide_pairs(key, sources, targets, both_ways, bounds, parts):
    """Write to uint8[n] `parts` where each pair belongs; see `reference.divide_pairs`. `sources` and `targets` are int64[n]."""
    low_word = np.uint64(0xFFFFFFFF)
    for number in range(sources.size):
        source, target = np.uint64(load(sources, number)), np.uint64(load(targets, number))
        if both_ways and target < source:
            source, target = target, source
        ends = (source >> np.uint64(32)) | ((target >> np.uint64(32)) << np.uint64(16))
        high, low, _, _ = philox(source & low_word, target & low_word, ends, np.uint64(0), key[0], key[1])
        drawn = np.float64((high << np.uint64(21)) | (low >> np.uint64(11))) * U53
        part = 0
        while part < bounds.size and load(bounds, part) <= drawn:
            part += 1
        store(parts, number, np.uint8(part))
