"""Shared draws (layer-neighbour sampling): lists with common neighbours choose the same ones where they can.

In: lists of in-neighbours. Out: a uniform sample without replacement of each list. Invariant: in one hop every node has one random number
for all lists, and each list takes the neighbours with the smallest numbers. The number is a function of (seed, epoch, group of batches,
hop, type, node). So the sample of each list is uniform, given the hops before. The samples of two lists are not independent, and a batch
has fewer nodes.
Source: LABOR, Balin and Catalyurek, NeurIPS 2023 (with a fixed number of neighbours: LABOR-0); batches that share numbers, GraphBolt's
`batch_dependency`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.errors import NotSupportedError, UsageError, argument
from penstock.records import Graph

PIECE = 1 << 18
"""Neighbours read at a time where whole lists are read from a tier; a longer list is one piece."""


def check_shared(graph: Graph, *, replace: bool, disjoint: bool) -> None:
    """Raise UsageError or NotSupportedError for options that shared draws exclude."""
    name = argument("shared_draws")
    if replace:
        raise UsageError(f"{name} takes each neighbour once at the most: leave out replace=True")
    if disjoint or any(csc.timed is not None for csc in graph.adjacency.values()):
        raise UsageError(
            f"{name} needs lists with common nodes, and disjoint trees (also those of sampling by time) have none: leave out one of them"
        )
    if any(csc.sums is not None for csc in graph.adjacency.values()):
        raise NotSupportedError(f"{name} draws uniformly, not by weight: leave out one of them")


def pieces(row_ptr: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (first, last) of lists, with at most `most` edges per range; a longer list is a range by itself."""
    first = 0
    while first < row_ptr.size - 1:
        last = max(first + 1, int(np.searchsorted(row_ptr, row_ptr[first] + most, side="right")) - 1)
        yield first, last
        first = last
