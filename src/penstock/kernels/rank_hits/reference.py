"""Hits of static caches of many capacities at once: the definition."""

from __future__ import annotations

import numpy as np


def count_levels(ids, levels, num_levels):
    """Return int64[num_levels]: how many of `ids`, int64[n], are at each level; the level of node v is levels[v]."""
    counts = np.zeros(num_levels, dtype=np.int64)
    for node in ids:
        counts[levels[node]] += 1
    return counts
