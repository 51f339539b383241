"""Negative links: pairs of nodes that no edge joins, drawn for the links of a batch.

In: candidates for either end, and what is no negative. Out: pairs. Invariants: a pure function of (candidates, seed, epoch, batch, times of
the links); no candidate of a link is later than the link; a pair that an edge joins is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock import rng
from penstock.errors import InputError, NotSupportedError, UsageError
from penstock.kernels.build_csc import cpu as build_kernels
from penstock.kernels.links import cpu
from penstock.records import NodeType, index_dtype

ATTEMPTS = 64
"""To find a pair that no edge joins. Where fewer than half of all pairs are edges, all of them fail for one in 2**64."""

_NO_IDS, _NO_SUMS = np.empty(0, np.int64), np.empty(0, np.float64)


class Adjacency(NamedTuple):
    """Links by their targets: the sources of links into v are `indices[indptr[v]:indptr[v + 1]]`."""

    indptr: np.ndarray
    indices: np.ndarray


NOTHING = Adjacency(_NO_IDS, np.empty(0, np.int32))


def adjacency_of(sources: np.ndarray, targets: np.ndarray, num_sources: int, num_targets: int) -> Adjacency:
    """Put links in the order of their targets. Cost: 4 bytes a link (8 from 2**31 nodes on), twice that for a moment, 8 a target."""
    degrees = np.zeros(num_targets + 1, np.int64)
    build_kernels.count_degrees(targets, degrees[1:])
    indptr, indices = np.cumsum(degrees, out=degrees), np.empty(sources.size, index_dtype(num_sources))
    build_kernels.place_edges(sources, targets, indptr[:-1].copy(), indices, np.empty(sources.size, index_dtype(sources.size)))
    return Adjacency(indptr, indices)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Nodes of one type that an end of a negative link may be.

    Attributes:
        num_nodes: of the type.
        order: int64[num_nodes], from the earliest on, and times: int64[num_nodes], of them in that order; empty where they have no times.
        sums: float64[num_nodes], running sums of their weights in that order; empty where all are as likely.
    """

    num_nodes: int
    order: np.ndarray
    times: np.ndarray
    sums: np.ndarray

    def most(self, num_links: int, until: np.ndarray | None) -> np.ndarray:
        """int64[num_links]: how many of them are there at the time of each link."""
        if until is None or not self.times.size:
            return np.full(num_links, self.num_nodes)
        return np.searchsorted(self.times, until, side="right")


def make_candidates(node_type: NodeType, num_nodes: int, weight: np.ndarray | None, times: np.ndarray | None) -> Candidates:
    """Make those of a node type.

    Args:
        weight: float[num_nodes], 0 or more, in proportion to which each is drawn; None: all are as likely.
        times: int[num_nodes], when each came; None: all are always there.
    Raises:
        UsageError: there is no node. InputError: weights that are none. NotSupportedError: more than 2**32 nodes.
    Cost: 16 bytes a node with times, 8 with weights.
    """
    if not num_nodes:
        raise UsageError(f"there are no nodes of type '{node_type}' to draw negative links from")
    if num_nodes > 1 << 32:
        raise NotSupportedError(f"negative links are drawn of at most 2**32 nodes, and '{node_type}' has {num_nodes:,}")
    order = _NO_IDS if times is None else np.argsort(times, kind="stable")
    moments = _NO_IDS if times is None else times[order].astype(np.int64)
    if weight is None:
        return Candidates(num_nodes, order, moments, _NO_SUMS)
    if weight.shape != (num_nodes,):
        raise InputError(f"neg_sampling: weights are one number for each of the {num_nodes} nodes of '{node_type}', got {weight.shape}")
    weight = weight.astype(np.float64)
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.sum() > 0:
        raise InputError(f"neg_sampling: weights of '{node_type}' must be finite, 0 or more, and not all 0")
    return Candidates(num_nodes, order, moments, np.cumsum(weight if times is None else weight[order]))


@dataclass(frozen=True, slots=True)
class Negatives:
    """How negative links are drawn.

    Attributes:
        amount: of them, for each link.
        sources, targets: who the ends may be. Without sources, a negative keeps the source of its link.
        positives: at most two adjacencies whose links are no negatives.
    """

    amount: float
    sources: Candidates | None
    targets: Candidates
    positives: Sequence[Adjacency] = ()

    def count(self, num_links: int) -> int:
        """Negatives of so many links."""
        return math.ceil(num_links * self.amount)

    def draw(
        self, sources: np.ndarray, times: np.ndarray | None, *, seed: int, epoch: int, batch: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Draw those of a batch. Number i belongs to link i modulo their number, and is no later than it.

        Args:
            sources: int64[n], of the links. times: int64[n], theirs, or None.
        Returns:
            (int64[count] sources, int64[count] targets, how many of them are positives all the same).
        """
        count = self.count(sources.size)
        links = np.arange(count) % max(1, sources.size)
        until = None if times is None else times[links]
        kept = sources[links] if self.sources is None else _NO_IDS
        drawn = np.empty(count, np.int64), np.empty(count, np.int64)
        of_sources = self.sources or self.targets
        first, second = (*self.positives, NOTHING, NOTHING)[:2]
        num_positives = cpu.draw_negatives(
            rng.derive_key(seed, epoch, rng.NEGATIVE), batch, np.ascontiguousarray(kept),
            of_sources.most(count, until), of_sources.order, of_sources.sums,
            self.targets.most(count, until), self.targets.order, self.targets.sums,
            *first, *second, ATTEMPTS, *drawn,
        )  # fmt: skip
        return *drawn, num_positives
