"""For each node, the neighbour through which it is read most often: the definition."""

from __future__ import annotations


def choose_companions(indptr, indices, scores, first_dst, best, companions):
    """Let each source of one edge type choose the destination of the highest score.

    Args:
        indptr, indices: in-neighbour lists; sources in [0, num_src).
        scores: float32[num_dst], above 0: how often a list is read, times the share of it that is drawn.
        first_dst: added to a destination, so that those of all types are told apart.
        best: float32[num_src], the highest score so far, 0 where there is none.
        companions: int32 or int64[num_src], whose it is.
    Returns:
        (best, companions): of this edge type too. Among equal scores the first one in the order of edge types and destinations stays.
    """
    best, companions = best.copy(), companions.copy()
    for dst in range(indptr.size - 1):
        for src in indices[indptr[dst] : indptr[dst + 1]]:
            if scores[dst] > best[src]:
                best[src], companions[src] = scores[dst], first_dst + dst
    return best, companions
