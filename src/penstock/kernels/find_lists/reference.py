"""Find the node whose neighbour list contains a position: the definition."""

from __future__ import annotations

import numpy as np


def find_lists(indptr, positions):
    """Return int64[n]: for each of int64[n] `positions` in [0, indptr[-1]) the node v with indptr[v] <= position < indptr[v + 1]."""
    return np.searchsorted(indptr, positions, side="right") - 1
