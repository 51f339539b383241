"""Probability that nodes are sampled: one hop over one edge type. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.inclusion import reference

draw_probability = helper(reference.draw_probability)

AHEAD = 32


@kernel
def spread_inclusion(indptr, indices, fanout, replace, included, missed):
    """Update `missed`; see `reference.spread_inclusion`. Returns -1, or the position of the first source out of range. Skips lists that lie
    outside the edges. Reads the lists once, in order."""
    num_edges, num_sources = indices.size, missed.size
    for node in range(included.size):
        start, end = indptr[node], indptr[node + 1]
        if included[node] <= 0.0 or end <= start or start < 0 or end > num_edges:
            continue
        factor = 1.0 - draw_probability(end - start, fanout, replace) * included[node]
        for position in range(start, end):
            if position + AHEAD < num_edges:
                prefetch_write(missed, load(indices, position + AHEAD))
            source = load(indices, position)
            if not 0 <= source < num_sources:
                return position
            store(missed, source, load(missed, source) * factor)
    return -1
