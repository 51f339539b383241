"""Expanding a real graph: its Kronecker product with a small synthetic graph, as Ginex made its graphs.

Every node u becomes num_copies nodes, copy i at i * num_nodes + u. The small graph has self-loops of probability 1, so that every copy
holds the whole graph, its communities included; between copies i and j an edge u -> v is kept with probability theta**h, where h is the
number of bits in which i and j differ (the Kronecker power of [[1, theta], [theta, 1]]), so that copies form communities of
communities. Every copy has nearly the same expected degree, hence the degree distribution keeps its shape and moves by
num_edges / num_copies. A symmetric graph stays symmetric; equal edges are kept or dropped together.

Belletti et al. also shuffle rows and columns of each block independently. That is left out: in a graph it would mix the degrees and destroy
the communities.
Source: Belletti, Lakshmanan, Krichene, Chen, Anderson: Scalable realistic recommendation datasets through fractal expansions (2019);
Ginex, section 5.1 and table 2 (papers100M: 4 times the nodes, 8.8 times the edges).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.errors import InputError, UsageError, argument
from penstock.kernels.kronecker.cpu import kronecker_edges
from penstock.kernels.kronecker.reference import CERTAIN
from penstock.records import CSC
from penstock.sources.generate.options import GeneratorOptions, edge_columns, feature_rows, need_at_least, need_size
from penstock.sources.source import Chunk, Column, Source, Table
from penstock.sources.tables import ComputedTable

MAX_COPIES = 1024
TILE_PLACES, MIN_TILE = 1 << 13, 16
"""Base edges are expanded in tiles that need at most 2**13 random words (32 KiB, for the first-level cache), but of at least 16 edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kronecker(GeneratorOptions):
    """Options of the expansion of a graph.

    Attributes:
        base: the graph to expand; its arrays may be memory-mapped.
        num_copies: factor by which the number of nodes grows.
        edge_factor: factor by which the expected number of edges grows; from num_copies (separate copies) to num_copies**2 (all kept). By
            default 2.2 times num_copies, as in Ginex.
        x: features of the base nodes, any dtype, or None. Copies have the same rows, plus noise.
        feature_noise: standard deviation of noise added to x, which makes x float32.
        y: labels of the base nodes, or None. Copies have the same.
        class_names: the word of each label, if labels are words.
        feature_dim, num_classes: for random features and labels instead.
        train, val, test: shares of the nodes, drawn anew (Ginex trained on 10%).
    """

    base: CSC | None = None
    num_copies: int = 4
    edge_factor: float | None = None
    x: np.ndarray | None = None
    feature_noise: float = 0.0
    y: np.ndarray | None = None
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super(Kronecker, self).__post_init__()
        if self.base is None:
            raise UsageError(f"kronecker needs a graph to expand: name it by {argument('base')}")
        need_at_least("num_copies", self.num_copies, 1)
        need_size(max(self.base.num_dst * self.num_copies, 1), 0)
        if self.num_copies > MAX_COPIES:
            raise UsageError(f"{argument('num_copies')} must be at most {MAX_COPIES}, got {self.num_copies}")
        if not self.num_copies <= self._factor <= self.num_copies**2:
            raise UsageError(
                f"{argument('edge_factor')} must lie in [{argument('num_copies')}, {argument('num_copies')}**2] = "
                f"[{self.num_copies}, {self.num_copies**2}], got {self._factor:g}"
            )
        for name, array, random in (("x", self.x, self.feature_dim), ("y", self.y, self.num_classes)):
            if array is not None and len(array) != self.base.num_dst:
                raise InputError(f"{name} has {len(array)} rows for {self.base.num_dst} base nodes")
            if array is not None and random:
                option = argument("feature_dim" if name == "x" else "num_classes")
                raise UsageError(f"the base graph has {name} already: leave {option} out, which asks for a random one")
        if self.feature_noise < 0 or (self.feature_noise > 0 and self.x is None):
            raise UsageError(f"{argument('feature_noise')} must be at least 0, and 0 without x, got {self.feature_noise!r}")

    @property
    def _factor(self) -> float:
        return min(2.2 * self.num_copies, float(self.num_copies**2)) if self.edge_factor is None else self.edge_factor

    def source(self) -> Source:
        """Describe the graph."""
        assert self.base is not None
        num_nodes = self.base.num_dst * self.num_copies
        edges = KroneckerEdges(self.base, self.num_copies, small_graph(self.num_copies, self._factor), self.key)
        source = self.make_source(num_nodes, edges, self._nodes(num_nodes))
        source.provenance["base"] = {"num_nodes": self.base.num_dst, "num_edges": self.base.num_edges}
        return source

    def _nodes(self, num_nodes: int) -> Table | None:
        fields = {name: array for name, array in (("x", self.x), ("y", self.y)) if array is not None}
        if not fields:
            return self.node_table(num_nodes, "kronecker")
        dtypes = {name: np.dtype(np.float32) if name == "x" and self.feature_noise else array.dtype for name, array in fields.items()}
        columns = [Column(name=name, dtype=dtypes[name], row_shape=array.shape[1:]) for name, array in fields.items()]

        def compute(first: int, count: int, names: tuple[str, ...]) -> dict[str, np.ndarray]:
            rows = np.arange(first, first + count) % (num_nodes // self.num_copies)
            out = {name: fields[name][rows] for name in names}
            if "x" in out and self.feature_noise:
                noise = feature_rows(self.key, first, np.zeros((1, out["x"].shape[1]), dtype=np.float32), np.zeros(count, dtype=np.int64))
                out["x"] = out["x"].astype(np.float32) + np.float32(self.feature_noise) * noise
            return out

        return ComputedTable(columns, num_nodes, compute, "kronecker nodes", self.class_names)


def small_graph(num_copies: int, edge_factor: float) -> np.ndarray:
    """Make the small graph: uint64[num_copies, num_copies], probabilities theta**h times 2**32, whose sum is `edge_factor`."""
    numbers = np.arange(num_copies)
    differing = np.bitwise_count(numbers[:, None] ^ numbers).astype(np.int64)
    how_many = np.bincount(differing.ravel())
    low, high = 0.0, 1.0
    for _ in range(53):
        theta = (low + high) / 2
        low, high = (theta, high) if float(how_many @ _powers(theta, how_many.size)) < edge_factor else (low, theta)
    return np.round(_powers(high, how_many.size) * CERTAIN).astype(np.uint64)[differing]


def _powers(theta: float, count: int) -> np.ndarray:
    """Return theta**0 to theta**(count - 1), by multiplication only: the same on every machine."""
    powers = np.ones(count)
    for i in range(1, count):
        powers[i] = powers[i - 1] * theta
    return powers


class KroneckerEdges(Table):
    """The expanded edges, base edge after base edge in order of destinations. Their number is not known before they are made."""

    def __init__(self, base: CSC, num_copies: int, thresholds: np.ndarray, key: np.ndarray) -> None:
        self.name = "kronecker edges"
        self.columns = {column.name: column for column in edge_columns()}
        self.num_rows = None
        self._base = base
        self._num_copies = num_copies
        self._thresholds = thresholds.ravel()
        self._key = key

    @property
    def expected_rows(self) -> int:
        """The expected number of edges."""
        return round(float(self._thresholds.sum(dtype=np.float64)) / CERTAIN * self._base.num_edges)

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Expand as many base edges at a time as yield at most `max_rows` edges; one by one if a single one may yield more."""
        step, first = max(1, max_rows // self._num_copies**2), 0
        for start in range(0, self._base.num_edges, step):
            ends = self.expand(start, min(step, self._base.num_edges - start))
            for cut in range(0, ends.shape[1], max_rows):
                piece = ends[:, cut : cut + max_rows]
                yield Chunk(first, {name: piece[0] if name == "src" else piece[1] for name in (self.columns if names is None else names)})
                first += piece.shape[1]

    def expand(self, first: int, count: int) -> np.ndarray:
        """Expand base edges `first` to `first + count`: int64[2, m]."""
        base, num_places = self._base, self._num_copies**2
        sources = base.indices[first : first + count].astype(np.int64)
        destinations = _destinations(base.indptr, first, count)
        tile = max(MIN_TILE, TILE_PLACES // num_places)
        words = np.empty((num_places + 3) // 4 * 4 * tile, dtype=np.uint32)
        out = np.empty((2, count * num_places + 1), dtype=np.int64)
        made = kronecker_edges(
            sources, destinations, base.num_dst, self._num_copies, self._thresholds, self._key, tile, words, out[0], out[1]
        )
        return out[:, :made]


def _destinations(indptr: np.ndarray, first: int, count: int) -> np.ndarray:
    """Return int64[count]: the destination of each of the edges from `first` on."""
    low = int(np.searchsorted(indptr, first, side="right")) - 1
    high = int(np.searchsorted(indptr, first + count, side="left"))
    bounds = np.clip(indptr[low : high + 1].astype(np.int64), first, first + count)
    return np.repeat(np.arange(low, high), np.diff(bounds))
