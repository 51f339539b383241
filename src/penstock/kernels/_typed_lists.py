"""Neighbour lists of several edge types over one id space, for kernels that traverse a whole graph.

In: row pointers of an edge type, and the id at which its destinations begin. Out: the range of a node's list.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper
from penstock.kernels._memory import load


@helper
def list_of(indptr, first, node):
    """Return (begin, end) of a node's list; (0, 0) if the node is of another type or `indptr` is empty."""
    row = node - first
    if row < 0 or row >= indptr.size - 1:
        return np.int64(0), np.int64(0)
    return np.int64(load(indptr, row)), np.int64(load(indptr, row + 1))
