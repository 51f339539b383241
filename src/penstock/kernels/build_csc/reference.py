"""Edge list -> in-neighbour lists, in the order of the edge list: the definition."""

from __future__ import annotations

import numpy as np


def build_csc(src, dst, num_dst):
    """Group edges by destination.

    Args:
        src, dst: int[num_edges], the ends of each edge.
        num_dst: number of destination nodes.
    Returns:
        (indptr int64[num_dst + 1], indices [num_edges] of src's dtype, edge_ids int64[num_edges]): see `penstock.records.CSC`.
    """
    edge_ids = np.argsort(dst, kind="stable")
    return np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_dst))]), src[edge_ids], edge_ids
