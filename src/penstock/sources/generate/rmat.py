"""R-MAT graphs: recursive choice of a quadrant of the adjacency matrix, with the same probabilities at every level.

Edge i is a pure function of (seed, i). Multi-edges and self-loops are kept. The number of nodes need not be a power of two: an edge with
an end outside the graph is drawn again.
Source: Chakrabarti, Zhan, Faloutsos: R-MAT: a recursive model for graph mining (SDM 2004). Defaults as in Graph500.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.errors import UsageError, argument
from penstock.kernels.rmat.cpu import rmat_edges
from penstock.kernels.rmat.reference import LEVELS, alias_table
from penstock.rng import MAX_NODES
from penstock.sources.generate.options import (
    EDGES,
    GeneratorOptions,
    Shuffle,
    draw_words,
    edge_table,
    need_at_least,
    need_share,
    need_size,
)
from penstock.sources.source import Source

MAX_SCALE = MAX_NODES.bit_length() - 1
MIN_A = 0.01
"""Smallest `a`: if num_nodes is just above a power of two, hardly more than a share `a` of the edges drawn are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RMat(GeneratorOptions):
    """Options of an R-MAT graph.

    Attributes:
        num_nodes: number of nodes; give either this or `scale`.
        scale: makes 2**scale nodes.
        num_edges: number of edges; by default 16 per node.
        a, b, c: probabilities of the quadrants (low, low), (low, high), (high, low) of (source, destination); the rest is d.
        permute: give the nodes random ids; otherwise low ids have high degrees.
    """

    num_nodes: int | None = None
    scale: int | None = None
    num_edges: int | None = None
    a: float = 0.57
    b: float = 0.19
    c: float = 0.19
    permute: bool = True

    def __post_init__(self) -> None:
        super(RMat, self).__post_init__()
        if (self.num_nodes is None) == (self.scale is None):
            raise UsageError(f"give either {argument('num_nodes')} or {argument('scale')}")
        if self.scale is not None:
            need_at_least("scale", self.scale, 0)
            if self.scale > MAX_SCALE:
                raise UsageError(f"{argument('scale')} must be at most {MAX_SCALE}, got {self.scale}")
        need_size(self._size, self._length)
        for name in ("a", "b", "c"):
            need_share(name, getattr(self, name))
        if self.a + self.b + self.c > 1 + 1e-9 or self.a < MIN_A:
            a, b, c = map(argument, "abc")
            raise UsageError(f"{a} must be at least {MIN_A} and {a} + {b} + {c} at most 1, got {self.a:g} + {self.b:g} + {self.c:g}")

    @property
    def _size(self) -> int:
        return self.num_nodes if self.num_nodes is not None else 1 << (self.scale or 0)

    @property
    def _length(self) -> int:
        return 16 * self._size if self.num_edges is None else self.num_edges

    def source(self) -> Source:
        """Describe the graph."""
        d = max(1 - self.a - self.b - self.c, 0)
        key, table = self.key, alias_table((self.a, self.b, self.c, d))
        num_levels = max(self._size - 1, 0).bit_length()
        shuffle = Shuffle(key, self._size) if self.permute else None

        def draw(first: int, tile: np.ndarray) -> None:
            words = draw_words(key, first, tile.shape[1], EDGES, -(-num_levels // (4 * LEVELS)))
            rmat_edges(words.ravel(), first, key, EDGES, table, num_levels, self._size, tile[0], tile[1])

        edges = edge_table(self._length, draw, shuffle, "rmat")
        return self.make_source(self._size, edges, self.node_table(self._size, "rmat"))
