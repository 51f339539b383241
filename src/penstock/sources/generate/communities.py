"""Planted communities: a graph in which the class of a node follows from its neighbourhood, but hardly from its own features.

Nodes belong to communities, communities to classes. The source of an edge is mostly in the community of the destination. Features are the
centre of the class plus noise; the noise is such that the best classifier without the graph reaches the requested accuracy. A mean over
neighbours removes the noise. Row i and edge i are pure functions of (seed, i).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock import rng
from penstock.errors import UsageError, argument
from penstock.sources.generate.options import (
    EDGES,
    SIGNS,
    GeneratorOptions,
    Shuffle,
    draw_words,
    edge_table,
    feature_rows,
    need_at_least,
    need_share,
    need_size,
)
from penstock.sources.generate.rank_law import power_of, ranks, uniform
from penstock.sources.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Communities(GeneratorOptions):
    """Options of a graph of planted communities.

    Attributes:
        num_nodes: number of nodes.
        num_edges: number of edges; by default 20 per node.
        num_classes: number of classes of the labels.
        num_communities: number of communities, at least num_classes; by default num_classes. Community c has class c % num_classes.
        mixing: share of the edges whose source is drawn from all nodes.
        skew: skew of the degrees within a community, in [0, 0.95]; see `Zipf`.
        feature_dim: width of the features.
        feature_accuracy: approximate accuracy of the best classifier that sees only a node's own features.
        train, val, test: shares of the nodes.
    """

    num_nodes: int = 100_000
    num_edges: int | None = None
    num_classes: int = 16
    num_communities: int | None = None
    mixing: float = 0.3
    skew: float = 0.33
    feature_dim: int = 64
    feature_accuracy: float = 0.45
    train: float = 0.5
    val: float = 0.25
    test: float = 0.25

    def __post_init__(self) -> None:
        super(Communities, self).__post_init__()
        need_size(self.num_nodes, self._length)
        need_at_least("num_classes", self.num_classes, 2)
        need_at_least("feature_dim", self.feature_dim, 1)
        need_share("mixing", self.mixing)
        power_of(self.skew)
        if not self.num_classes <= self._num_groups <= self.num_nodes:
            raise UsageError(
                f"{argument('num_communities')} must lie in [{argument('num_classes')}, {argument('num_nodes')}] = "
                f"[{self.num_classes}, {self.num_nodes}], got {self._num_groups}"
            )
        if not 1 / self.num_classes <= self.feature_accuracy <= 0.999:
            limits = f"[1 / {argument('num_classes')}, 0.999]"
            raise UsageError(f"{argument('feature_accuracy')} must lie in {limits}, got {self.feature_accuracy!r}")

    @property
    def _length(self) -> int:
        return 20 * self.num_nodes if self.num_edges is None else self.num_edges

    @property
    def _num_groups(self) -> int:
        return self.num_classes if self.num_communities is None else self.num_communities

    def source(self) -> Source:
        """Describe the graph."""
        key, shuffle, centers = self.key, Shuffle(self.key, self.num_nodes), self._centers()
        first_places = np.arange(self._num_groups + 1) * self.num_nodes // self._num_groups

        def compute_nodes(first: int, count: int, names: tuple[str, ...]) -> dict[str, np.ndarray]:
            places = np.arange(first, first + count)
            shuffle.back(places)
            classes = self._community_of(places) % self.num_classes
            return {name: classes if name == "y" else feature_rows(key, first, centers, classes) for name in names}

        edges = edge_table(self._length, partial(self._draw_tile, key, first_places), shuffle, "communities")
        return self.make_source(self.num_nodes, edges, self.node_table(self.num_nodes, "communities", compute_nodes))

    def _community_of(self, places: np.ndarray) -> np.ndarray:
        """Return the community of each place before ids are shuffled; communities are ranges of places whose sizes differ by at most
        one."""
        return ((places + 1) * self._num_groups - 1) // self.num_nodes

    def _draw_tile(self, key: np.ndarray, first_places: np.ndarray, first: int, ends: np.ndarray) -> None:
        """Write the places of both ends, int64[2, n]: words 0-1 and 2-3 choose within a community, 4 and 5 the communities, 6 whether to
        mix."""
        words = draw_words(key, first, ends.shape[1], EDGES, 2)
        num_groups = np.uint64(self._num_groups)
        target = rng.below_narrow(words[4], num_groups).astype(np.int64)
        other = rng.below_narrow(words[5], num_groups).astype(np.int64)
        source = np.where(words[6] < np.uint64(round(self.mixing * 2**32)), other, target)
        power = power_of(self.skew)
        for out, community, high, low in ((ends[0], source, words[0], words[1]), (ends[1], target, words[2], words[3])):
            start = first_places[community]
            size = first_places[community + 1] - start
            np.add(start, ranks(uniform(high, low), size, power), out=out)

    def _centers(self) -> np.ndarray:
        """Make the centre of each class, float32[num_classes, feature_dim]: random signs times the strength for the requested accuracy."""
        count = self.num_classes * self.feature_dim
        signs = (draw_words(self.key, 0, count, SIGNS)[0] & np.uint64(1)).astype(np.float32) * 2 - 1
        strength = np.float32(center_norm(self.feature_accuracy, self.num_classes) / math.sqrt(self.feature_dim))
        return (signs * strength).reshape(self.num_classes, self.feature_dim)


def center_norm(accuracy: float, num_classes: int) -> float:
    """Return the distance of orthogonal class centres from the origin at which, under noise of deviation 1, the best guess has this
    accuracy.

    Solves accuracy = E[Phi(z + norm)**(num_classes - 1)], z normal; rounded to 1/64, so that it is the same on every machine.
    """
    grid = np.arange(-8, 8, 1 / 64)
    density = np.exp(-grid * grid / 2) / math.sqrt(2 * math.pi) / 64
    low, high = 0.0, 16.0
    while high - low > 1 / 256:
        middle = (low + high) / 2
        phi = np.array([math.erf((z + middle) / math.sqrt(2)) for z in grid]) / 2 + 0.5
        if float((density * phi ** (num_classes - 1)).sum()) < accuracy:
            low = middle
        else:
            high = middle
    return round(high * 64) / 64
