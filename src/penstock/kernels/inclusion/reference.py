"""Probability that nodes are sampled: one hop over one edge type. The definition.

Source: Kaler et al., SALIENT++ (MLSys'23): vertex inclusion probability.
"""

from __future__ import annotations


def draw_probability(degree, fanout, replace):
    """Probability that a given one of `degree` > 0 neighbours is drawn; fanout -1 = all."""
    if fanout < 0 or (not replace and degree <= fanout):
        return 1.0
    if not replace:
        return fanout / degree
    avoided = 1.0
    for _ in range(fanout):
        avoided *= 1.0 - 1.0 / degree
    return 1.0 - avoided


def spread_inclusion(indptr, indices, fanout, replace, included, missed):
    """Multiply `missed` of every source by the probability that no destination draws it.

    Args:
        indptr, indices: in-neighbour lists of one edge type.
        included: float64[num_dst], probability that each destination is expanded; destinations count as independent.
        missed: float64[num_src], probability that the edge types so far do not draw the source.
    Returns:
        float64[num_src], or the position of the first source outside [0, num_src).
    """
    missed = missed.copy()
    for node, probability in enumerate(included):
        for position in range(indptr[node], indptr[node + 1]) if probability > 0 else ():
            source = indices[position]
            if not 0 <= source < missed.size:
                return position
            missed[source] *= 1.0 - draw_probability(indptr[node + 1] - indptr[node], fanout, replace) * probability
    return missed
