"""Zipf graphs: both ends of every edge are drawn by one rank law, through one random permutation of the ids.

Hence a node with many in-edges has many out-edges too, as in social and citation graphs; otherwise neighbours are independent. Edge i is
a pure function of (seed, i). Multi-edges and self-loops are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.errors import UsageError, argument
from penstock.sources.generate.options import EDGES, GeneratorOptions, Shuffle, draw_words, edge_table, need_size
from penstock.sources.generate.rank_law import power_of, ranks, uniform
from penstock.sources.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Zipf(GeneratorOptions):
    """Options of a Zipf graph.

    Attributes:
        num_nodes: number of nodes.
        num_edges: number of edges; by default 16 per node.
        skew: in [0, 0.95]: rank r has a weight of about (r + 1)**-skew, and the number of nodes of degree d falls as d**-(1 + 1/skew).
    """

    num_nodes: int = 0
    num_edges: int | None = None
    skew: float = 0.6

    def __post_init__(self) -> None:
        super(Zipf, self).__post_init__()
        if self.num_nodes == 0:
            raise UsageError(f"{argument('num_nodes')} is needed: how many nodes?")
        need_size(self.num_nodes, self._length)
        power_of(self.skew)

    @property
    def _length(self) -> int:
        return 16 * self.num_nodes if self.num_edges is None else self.num_edges

    def source(self) -> Source:
        """Describe the graph."""
        key, power, shuffle = self.key, power_of(self.skew), Shuffle(self.key, self.num_nodes)

        def draw(first: int, tile: np.ndarray) -> None:
            words = draw_words(key, first, tile.shape[1], EDGES)
            for out, high, low in ((tile[0], words[0], words[1]), (tile[1], words[2], words[3])):
                out[:] = ranks(uniform(high, low), self.num_nodes, power)

        edges = edge_table(self._length, draw, shuffle, "zipf")
        return self.make_source(self.num_nodes, edges, self.node_table(self.num_nodes, "zipf"))
