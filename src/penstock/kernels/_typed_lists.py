"""Neighbour lists of several edge types over one space of ids, for kernels that go through a whole graph.

In: row pointers of an edge type, and the id at which its destinations begin. Out: where the list of a node lies.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper
from penstock.kernels._memory import load


@helper
def list_of(indptr, first, node):
    """Where the list of a node begins and ends; an empty one where the node is of another type, or `indptr` is empty."""
    row = node - first
    if row < 0 or row >= indptr.size - 1:
        return np.int64(0), np.int64(0)
    return np.int64(load(indptr, row)), np.int64(load(indptr, row + 1))
