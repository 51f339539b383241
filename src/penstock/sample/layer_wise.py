"""Layer-wise sampling: a number of nodes for all lists of a hop together, not for each list.

In: the nodes of a hop, their lists, and the nodes that the batch has. Out: new nodes, at most so many, and every edge into the hop from a
node of the batch. Invariant: new nodes come by successive sampling without replacement, in proportion to their edges into the hop; which
they are follows from seed, epoch, batch, hop and edge type alone.
Source: LADIES, Zou et al., NeurIPS 2019; FastGCN, Chen et al., ICLR 2018; PaGraph 5.1. See `docs/design/layer_wise.md`.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import NotSupportedError, UsageError, argument
from penstock.kernels.sample_layer import cpu
from penstock.records import Graph
from penstock.sample.workspace import LayerScratch


def check_layer_wise(graph: Graph, *, replace: bool, disjoint: bool, shared_draws: int) -> None:
    """Refuse what does not go with a number of nodes for all lists together."""
    name = argument("layer_wise")
    if replace:
        raise UsageError(f"{name} takes each node once at the most: leave out replace=True")
    if shared_draws:
        raise UsageError(f"{name} draws nodes for all lists together, and {argument('shared_draws')} for each: leave out one of them")
    if disjoint or any(csc.timed is not None for csc in graph.adjacency.values()):
        raise UsageError(f"{name} takes nodes for all trees together, and disjoint ones (of times too) share none: leave out one of them")
    if any(csc.sums is not None for csc in graph.adjacency.values()):
        raise NotSupportedError(f"{name} counts edges, and these are drawn by weight: leave out one of them")


def choose(layer: LayerScratch, indptr: np.ndarray, frontier: np.ndarray, fanout: int, place: tuple, longest: int, num_known: int) -> int:
    """Choose among the candidates of a hop.

    Args:
        layer: ids and sources, see there; the first `num_known` ids are nodes of the batch. They are what is kept afterwards.
        place: key, batch, hop and number of the edge type.
        longest: list.
    Returns:
        Number of edges that are taken; all, where there are no more candidates than `fanout`.
    """
    ids, sources, num_candidates = layer.ids, layer.sources, layer.ids.size - num_known
    if num_candidates <= fanout:
        return sources.size
    numbers, first, places = layer.scratch(cpu.scratch_size(longest), num_candidates)
    cpu.find_first(indptr, frontier, sources, num_known, *place, numbers, first)
    bound = np.partition(first, fanout - 1)[fanout - 1]
    cpu.choose(first, bound, fanout, num_known, ids.values, places)
    ids.size = num_known + fanout
    return cpu.keep(sources, num_known, places)
