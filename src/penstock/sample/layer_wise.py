"""Layer-wise sampling: a hop adds a fixed number of nodes for all its lists together, not for each list.

In: the frontier, its lists, and the nodes of the batch. Out: at most `fanout` new nodes, and every edge into the frontier from a node of
the batch. Invariant: new nodes are chosen by successive sampling without replacement, in proportion to their edges into the frontier. The
choice is a pure function of (graph, frontier, nodes of the batch, fanout, seed, epoch, batch, hop, edge type).
Source: LADIES, Zou et al., NeurIPS 2019; FastGCN, Chen et al., ICLR 2018; PaGraph 5.1. See `docs/design/layer_wise.md`.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import NotSupportedError, UsageError, argument
from penstock.kernels.sample_layer import cpu
from penstock.records import Graph
from penstock.sample.workspace import LayerScratch


def check_layer_wise(graph: Graph, *, replace: bool, disjoint: bool, shared_draws: int) -> None:
    """Raise UsageError or NotSupportedError for options that layer-wise sampling excludes."""
    name = argument("layer_wise")
    if replace:
        raise UsageError(f"{name} takes each node once at the most: leave out replace=True")
    if shared_draws:
        raise UsageError(f"{name} draws nodes for all lists together, and {argument('shared_draws')} for each: leave out one of them")
    if disjoint or any(csc.timed is not None for csc in graph.adjacency.values()):
        raise UsageError(
            f"{name} chooses nodes for all lists together, and disjoint trees (also those of sampling by time) share none: "
            "leave out one of them"
        )
    if any(csc.sums is not None for csc in graph.adjacency.values()):
        raise NotSupportedError(f"{name} chooses nodes by their numbers of edges, not by weight: leave out one of them")


def choose(layer: LayerScratch, indptr: np.ndarray, frontier: np.ndarray, fanout: int, place: tuple, longest: int, num_known: int) -> int:
    """Choose among the candidates of a hop. Afterwards `layer.ids` holds the nodes of the batch and the chosen candidates.

    Args:
        layer: ids and sources, see `LayerScratch`; the first `num_known` ids are nodes of the batch.
        indptr: int64[num_dst + 1].
        frontier: int64[n], the nodes of the hop.
        fanout: number of candidates to choose.
        place: (key, batch, hop, number of the edge type).
        longest: length of the longest list of the frontier.
    Returns:
        Number of edges that are taken: all if there are at most `fanout` candidates.
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
