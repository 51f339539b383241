"""Negative links, edges left out of a sample, and pairs held out of a graph: the definition.

In: candidates, positive links, and a batch index. Out: pairs of nodes. Invariant: a negative depends only on its number in the batch, the
candidates, the positive links and the counter.

Counter of a negative link, 4 words of 32 bits: its number in the batch, the attempt, the batch, 0. Of the result, words 0 and 1 draw the
source, words 2 and 3 the target. Counter of a pair: the low words of the source and of the target, source >> 32 | target >> 32 << 16, 0.
"""

from __future__ import annotations

import numpy as np

from penstock import rng


def draw_node(high, low, most, order, sums):
    """Draw one of the first `most` candidates.

    Args:
        high, low: two random words of 32 bits.
        most: how many candidates may be drawn, at most 2**32 without weights. If 0, or if their weights sum to 0: the first candidate of
            all is drawn, with weights the first of positive weight.
        order: int64[n], the node of each candidate; empty: candidate i is node i.
        sums: float64[n], inclusive running sums of weights; empty: all candidates are equally likely.
    """
    if sums.size:
        total = sums[most - 1] if most else 0.0
        drawn = float((int(high) << 21) | (int(low) >> 11)) * 2.0**-53 * total
        place = int(np.flatnonzero((sums > drawn) | ((sums >= total) & (sums > 0)))[0])
    else:
        place = ((int(high) << 32 | int(low)) * int(most)) >> 64
    return int(order[place]) if order.size else place


def has_edge(positives, source, target):
    """Whether any of the adjacencies (indptr, indices) has the link."""
    return any(source in indices[indptr[target] : indptr[target + 1]] for indptr, indices in positives if indptr.size)


def draw_negatives(
    key, batch, sources, source_most, source_order, source_sums, target_most, target_order, target_sums, positives, attempts
):
    """Draw negative links.

    Args:
        key: uint64[2], from `rng.derive_key`. batch: index of the batch.
        sources: int64[n], the sources if they are given; empty: they are drawn too.
        source_most: int64[n], `most` of each link. source_order, source_sums: see `draw_node`. target_...: likewise.
        positives: adjacencies (indptr int64[num_dst + 1], indices int[m]) of the links that must not be drawn; empty arrays: no link.
        attempts: most draws per link, at least 1. Drawing stops at the first pair that is not positive; the last pair stays in any case.
    Returns:
        (int64[n] sources, int64[n] targets, how many of these pairs are positives).
    """
    drawn, num_positives = [], 0
    for number in range(target_most.size):
        for attempt in range(attempts):
            w0, w1, w2, w3 = rng.philox(np.uint64(number), np.uint64(attempt), np.uint64(batch), np.uint64(0), key[0], key[1])
            source = sources[number] if sources.size else draw_node(w0, w1, source_most[number], source_order, source_sums)
            target = draw_node(w2, w3, target_most[number], target_order, target_sums)
            is_positive = has_edge(positives, source, target)
            if not is_positive:
                break
        num_positives += is_positive
        drawn.append((source, target))
    sources, targets = np.array(drawn, np.int64).reshape(-1, 2).T
    return sources, targets, num_positives


def leave_out(sources, targets, links, edge_index, row_ptr, positions, num_per_hop):
    """Remove edges from a sample.

    Args:
        sources, targets: int64, global ids of the batch's nodes of the source type and of the destination type.
        links: int64[2, m], (source, target) ids of the edges to remove.
        edge_index, row_ptr, positions, num_per_hop: see `penstock.records.SampledEdges`.
    Returns:
        (edge_index, row_ptr, positions, num_per_hop) without these edges.
    """
    unwanted = set(zip(*links.tolist(), strict=True))
    pairs = zip(sources[edge_index[0]].tolist(), targets[edge_index[1]].tolist(), strict=True)
    is_kept = np.array([pair not in unwanted for pair in pairs], bool)
    before = np.concatenate([[0], np.cumsum(is_kept)])
    hops = None if num_per_hop is None else np.diff(before[np.concatenate([[0], np.cumsum(num_per_hop)])]).tolist()
    return edge_index[:, is_kept], before[row_ptr], positions[is_kept], hops


def divide_pairs(key, sources, targets, both_ways, bounds):
    """Divide pairs of nodes by chance, each pair always the same way.

    Args:
        key: uint64[2].
        sources, targets: int[n], below 2**40.
        both_ways: (u, v) and (v, u) are the same pair.
        bounds: float64[k], ascending, in [0, 1].
    Returns:
        uint8[n]: how many bounds are at most the pair's number, which is uniform in [0, 1) and has 53 bits.
    """
    parts = np.empty(len(sources), np.uint8)
    for number, pair in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        source, target = sorted(pair) if both_ways else pair
        words = (source & 0xFFFFFFFF, target & 0xFFFFFFFF, source >> 32 | target >> 32 << 16, 0)
        high, low, *_ = rng.philox(*map(np.uint64, words), *key)
        parts[number] = np.count_nonzero(bounds <= float((int(high) << 21) | (int(low) >> 11)) * 2.0**-53)
    return parts
