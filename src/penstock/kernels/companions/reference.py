"""For each node, the neighbour through which it is read most often: the definition."""

from __future__ import annotations


def choose_companions(indptr, indices, scores, first_dst, best, companions):
    """For each source of one edge type, choose the destination with the highest score.

    Args:
        indptr, indices: in-neighbour lists; sources in [0, num_src).
        scores: float32[num_dst], above 0: how often a list is read, times the share of it that is drawn.
        first_dst: added to a destination, so that the ids of all types differ.
        best: float32[num_src], the highest score over the edge types so far, 0 if there is none.
        companions: int32 or int64[num_src], the destination with this score.
    Returns:
        (best, companions), updated. Among equal scores, the first in the order of edge types and destinations stays.
    """
    best, companions = best.copy(), companions.copy()
    for dst in range(indptr.size - 1):
        for src in indices[indptr[dst] : indptr[dst + 1]]:
            if scores[dst] > best[src]:
                best[src], companions[src] = scores[dst], first_dst + dst
    return best, companions
