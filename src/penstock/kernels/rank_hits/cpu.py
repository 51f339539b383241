"""Hits of static caches of many capacities at once. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_read, store

AHEAD = 48

LANES = 4
"""Number of copies of the counts: otherwise consecutive ids of the same level would wait for each other."""


@kernel
def count_levels(ids, levels, num_levels, counts):
    """Add to `counts`, int64[LANES * num_levels]; the sum of the copies is the result."""
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_read(levels, load(ids, i + AHEAD))
        at = (i & (LANES - 1)) * num_levels + load(levels, load(ids, i))
        store(counts, at, load(counts, at) + 1)
