"""For each node, the neighbour through which it is read most often. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_read, store

AHEAD = 24


@kernel
def choose_companions(indptr, indices, scores, first_dst, best, companions):
    """Update `best` and `companions`; see `reference.choose_companions`. Returns the position of the first source out of range, or -1."""
    for dst in range(indptr.size - 1):
        score = load(scores, dst)
        for i in range(load(indptr, dst), load(indptr, dst + 1)):
            src = np.int64(load(indices, i))
            if src < 0 or src >= best.size:
                return i
            if i + AHEAD < indices.size:
                prefetch_read(best, np.int64(load(indices, i + AHEAD)))
            if score > load(best, src):
                store(best, src, score)
                store(companions, src, first_dst + dst)
    return -1
