"""Common parts of all generators: a seed, random features, labels and splits of the nodes.

All random words use the key of the seed, and each use has a stream of its own, so that a change to one part of a graph leaves the others
unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock import rng
from penstock.errors import UsageError, argument
from penstock.kernels.noise_rows.cpu import noise_rows
from penstock.kernels.noise_rows.reference import DEVIATION
from penstock.kernels.random_words.cpu import random_words
from penstock.kernels.shuffle_ids.cpu import shuffle_ids, unshuffle_ids
from penstock.kernels.shuffle_ids.reference import half_bits
from penstock.records import EDGE, NODE
from penstock.sources.source import Column, EdgeTable, NodeTable, Source, Table
from penstock.sources.splits import DEFAULT, Split, append
from penstock.sources.tables import ComputedTable

TILE = 1 << 13
"""Number of rows made at a time within a chunk, so that their random words stay in the processor's cache."""

SPLIT_TILE = 1 << 20
Compute = Callable[[int, int, tuple[str, ...]], dict[str, np.ndarray]]
"""(first row, number of rows, names of columns) -> column name -> array."""

EDGES, SHUFFLE, FEATURES, LABELS, SPLIT, SIGNS = range(6)
"""Streams: independent random numbers under one seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """Options of every generator.

    Attributes:
        seed: with the other options, it determines the whole graph, on any machine.
        feature_dim: width of the features `x`, float32 with standard deviation 1; 0 for no features.
        num_classes: number of classes of the labels `y`, drawn uniformly; 0 for no labels.
        train, val, test: share of the nodes in each part of the split, approximately: the part of each node is drawn independently.
    """

    seed: int = 0
    feature_dim: int = 0
    num_classes: int = 0
    train: float = 0.0
    val: float = 0.0
    test: float = 0.0

    def __post_init__(self) -> None:
        rng.derive_key(self.seed, 0, rng.GENERATE)
        need_at_least("feature_dim", self.feature_dim, 0)
        need_at_least("num_classes", self.num_classes, 0)
        if self.num_classes > 1 << 32:  # drawn by words of 32 bits
            raise UsageError(f"{argument('num_classes')} must be at most 2**32, got {self.num_classes}")
        for name in ("train", "val", "test"):
            need_share(name, getattr(self, name))
        if self.train + self.val + self.test > 1 + 1e-9:
            shares = " + ".join(map(argument, ("train", "val", "test")))
            raise UsageError(f"{shares} must be at most 1, got {self.train + self.val + self.test:g}")

    @property
    def key(self) -> np.ndarray:
        """Philox key of the graph."""
        return rng.derive_key(self.seed, 0, rng.GENERATE)

    def source(self) -> Source:
        """Describe the graph."""
        raise NotImplementedError

    def make_source(self, num_nodes: int, edges: Table, nodes: Table | None) -> Source:
        """Return the source of a homogeneous graph: its tables and its split."""
        split, values = self._split(num_nodes), {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        options = {name: value for name, value in values.items() if isinstance(value, int | float | str | bool | None)}
        return Source(
            nodes={NODE: NodeTable(node_type=NODE, num_nodes=num_nodes, table=nodes, num_classes=self.num_classes or None)},
            edges={EDGE: EdgeTable(edge_type=EDGE, table=edges)},
            is_homogeneous=True,
            splits={NODE: {DEFAULT: split}} if split else {},
            provenance={"kind": "generated", "generator": type(self).__name__.lower(), "options": options},
        )

    def node_table(self, num_nodes: int, name: str, compute: Compute | None = None) -> Table | None:
        """Return the table of features and labels, None if there are neither; `compute` makes them, by default at random."""
        columns = []
        if self.feature_dim:
            columns.append(Column(name="x", dtype=np.dtype(np.float32), row_shape=(self.feature_dim,)))
        if self.num_classes:
            columns.append(Column(name="y", dtype=np.dtype(np.int64)))
        return ComputedTable(columns, num_nodes, compute or self._node_fields, f"{name} nodes") if columns else None

    def _node_fields(self, first: int, count: int, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        fields = {}
        if "x" in names:
            centers = np.zeros((1, self.feature_dim), dtype=np.float32)
            fields["x"] = feature_rows(self.key, first, centers, np.zeros(count, dtype=np.int64))
        if "y" in names:
            words = draw_words(self.key, first, count, LABELS)
            fields["y"] = rng.below_narrow(words[0], np.uint64(self.num_classes)).astype(np.int64)
        return fields

    def _split(self, num_nodes: int) -> Split:
        """Assign every node to a part, or to none, by one random word."""
        shares = {"train": self.train, "val": self.val, "test": self.test}
        ends = np.minimum(np.round(np.cumsum(list(shares.values())) * 2.0**32), 2.0**32).astype(np.uint64)
        split: Split = {part: np.empty(0, np.int64) for part, share in shares.items() if share > 0}
        for first in range(0, num_nodes if split else 0, SPLIT_TILE):
            word = draw_words(self.key, first, min(SPLIT_TILE, num_nodes - first), SPLIT)[0]
            number = np.searchsorted(ends, word, side="right")
            for i, part in enumerate(shares):
                if part in split:
                    append(split[part], first + np.flatnonzero(number == i))
        return split


def need_at_least(name: str, value: int, least: int) -> None:
    """Raise UsageError unless `value` is a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or value < least:
        raise UsageError(f"{argument(name)} must be a whole number of at least {least}, got {value!r}")


def need_share(name: str, value: float) -> None:
    """Raise UsageError unless `value` lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise UsageError(f"{argument(name)} must lie in [0, 1], got {value!r}")


def need_size(num_nodes: int, num_edges: int) -> None:
    """Raise UsageError for a graph without nodes, or with more than 2**40."""
    need_at_least("num_nodes", num_nodes, 1)
    need_at_least("num_edges", num_edges, 0)
    if num_nodes > rng.MAX_NODES:
        raise UsageError(f"{argument('num_nodes')} must be at most 2**40, got {num_nodes}")


def draw_words(key: np.ndarray, first: int, count: int, stream: int, num_blocks: int = 1) -> np.ndarray:
    """Draw 4 * num_blocks random words below 2**32 for each of the indices from `first` on: uint64[4 * num_blocks, count]."""
    words = np.empty((4 * num_blocks, count), dtype=np.uint64)
    for block in range(num_blocks):
        random_words(key, first, count, stream, block, *words[4 * block : 4 * block + 4])
    return words


def feature_rows(key: np.ndarray, first: int, centers: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Make float32[num_rows, num_columns]: noise of standard deviation 1 around the centre of each row's class.

    Args:
        key: Philox key of the graph.
        first: number of the first row.
        centers: float32[num_classes, num_columns].
        classes: int64[num_rows].
    """
    num_columns = centers.shape[1]
    out = np.empty((classes.size, num_columns), dtype=np.float32)
    words = np.empty(-(-num_columns // 4) * 4, dtype=np.uint32)
    scale = np.float32(1 / DEVIATION)
    noise_rows(key, first, FEATURES, scale, centers.ravel(), classes, num_columns, words, out.ravel())
    return out


class Shuffle:
    """A random permutation of the ids, and its inverse."""

    def __init__(self, key: np.ndarray, num_ids: int) -> None:
        self._keys = draw_words(key, 0, 1, SHUFFLE)[:, 0].copy()
        self._num_ids, self._half = num_ids, half_bits(num_ids)

    def forward(self, ids: np.ndarray) -> None:
        """Replace int64[n] ranks by ids, in place."""
        shuffle_ids(ids, self._num_ids, self._half, self._keys)

    def back(self, ids: np.ndarray) -> None:
        """Replace int64[n] ids by ranks, in place."""
        unshuffle_ids(ids, self._num_ids, self._half, self._keys)


def edge_table(num_edges: int, draw: Callable[[int, np.ndarray], None], shuffle: Shuffle | None, name: str) -> Table:
    """Describe edges that are drawn tile by tile.

    Args:
        num_edges: number of edges.
        draw: (number of the first edge, int64[2, n]) -> None: writes the sources and destinations of n edges.
        shuffle: applied to the ids of both ends afterwards, if given.
        name: name of the generator.
    """

    def compute(first: int, count: int, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        ends = np.empty((2, count), dtype=np.int64)
        for start in range(0, count, TILE):
            tile = ends[:, start : start + TILE]
            draw(first + start, tile)
            if shuffle is not None:
                shuffle.forward(tile[0])
                shuffle.forward(tile[1])
        return {name: ends[0] if name == "src" else ends[1] for name in names}

    return ComputedTable(edge_columns(), num_edges, compute, f"{name} edges")


def edge_columns() -> Sequence[Column]:
    """Return the columns of a generated edge table: `src` and `dst`, int64."""
    return [Column(name=name, dtype=np.dtype(np.int64)) for name in ("src", "dst")]
