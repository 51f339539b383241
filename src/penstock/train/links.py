"""Links as what a run learns: edges that were held out of a store's graph, told from pairs that no edge joins.

In: a store that `penstock.hold_out` made, or a partition of one. Out: a loader of the edges that stayed, whose batches do not show them;
the scores of a batch; and those of the held-out parts, by rows of all their nodes. Invariants: the score of a pair is the product of the
rows of its ends; each link of val and test has the same negatives in every evaluation, by any number of processes, none of which is a link
that the store knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from penstock import rng
from penstock.errors import UsageError, argument
from penstock.feed import LinkNeighborLoader
from penstock.feed.inputs import ArrayInput
from penstock.records import EdgeType, Graph, NodeType
from penstock.sample.negatives import Candidates, Negatives, adjacency_of, known_edges, make_candidates
from penstock.store.links import HasLinks
from penstock.train.config import TrainConfig
from penstock.train.ranks import Ranks
from penstock.train.task import Task

PARTS = ("val", "test")

POOL = 1 << 14
"""Random nodes, about, that the negatives of evaluations are among, so that these need the rows of few nodes besides the ends of links."""

_BLOCK = 1 << 16
"""Pairs that are scored together."""
_NO_EPOCH = 1 << 63
"""From here on no training has epochs whose random numbers these could be."""

Rows = dict[NodeType, tuple[np.ndarray, np.ndarray]]
"""Node type -> its nodes, int64[n], ascending, and a row for each."""


@dataclass(slots=True)
class HeldOutLinks:
    """Links of one edge type.

    Attributes:
        edge_type: theirs.
        reverses: edge types that hold their reverses.
        num_edges: how many stayed in the graph, and are learnt.
        ends: "val", "test" -> int[n] sources and int[n] targets; mapped.
        num_negatives: targets that each link is told from, in training.
        eval_negatives: the same, in evaluations.
        seed: of these.
    """

    edge_type: EdgeType
    reverses: list[EdgeType]
    num_edges: int
    ends: dict[str, tuple[np.ndarray, np.ndarray]]
    num_negatives: int
    eval_negatives: int
    seed: int
    _negatives: Negatives | None = field(default=None, repr=False)

    @property
    def counts(self) -> dict[str, int]:
        """Part ("train", "val", "test") -> number of links."""
        return {"train": self.num_edges, **{part: sources.size for part, (sources, _) in self.ends.items()}}

    @property
    def node_types(self) -> tuple[NodeType, ...]:
        """Types of the ends."""
        return tuple(dict.fromkeys((self.edge_type[0], self.edge_type[2])))

    def loader(self, kind: type[LinkNeighborLoader], source: ArrayInput, num_neighbors: list[int], **how: Any) -> LinkNeighborLoader:
        """The loader of all edges that stayed, with negatives, and without these edges and their reverses in their own batches.

        Args:
            kind: its class. source: features. num_neighbors, how: as of a loader.
        """
        left_out = [e for e in dict.fromkeys((self.edge_type, *self.reverses)) if e in source.graph.adjacency]
        return kind(
            source,
            num_neighbors,
            edge_label_index=None if source.graph.is_homogeneous else self.edge_type,
            neg_sampling=("triplet", self.num_negatives),
            exclude_links=left_out,
            **how,
        )

    def scores(self, rows: dict[NodeType, Tensor], batch: Any) -> Tensor:
        """float[n, 1 + num_negatives]: of each link of a batch, and of its negatives. `rows`: of the seeds, by node type."""
        source, _, target = self.edge_type
        of_source, of_target = (batch[source], batch[target]) if isinstance(batch, HeteroData) else (batch, batch)
        others = of_target.dst_neg_index.view(of_source.src_index.numel(), -1)
        candidates = torch.cat([of_target.dst_pos_index[:, None], others], dim=1)
        ends = rows[source].index_select(0, of_source.src_index)  # adds up gradients in one order, as `rows[index]` does not
        return products(ends, rows[target].index_select(0, candidates.view(-1)).view(*candidates.shape, -1))

    @property
    def most_nodes(self) -> int:
        """Nodes, at most, whose rows an evaluation needs."""
        return 2 * (self.counts["val"] + self.counts["test"]) + POOL

    def nodes(self, graph: Graph, ranks: Ranks) -> dict[NodeType, np.ndarray]:
        """Node type -> int64[n], the nodes whose rows an evaluation needs, ascending."""
        source, _, target = self.edge_type

        def find() -> dict[NodeType, np.ndarray]:
            is_needed = {t: np.zeros(graph.num_nodes[t], np.bool_) for t in self.node_types}
            for sources, candidates in (block for part in PARTS for block in self._blocks(graph, part, ranks)):
                is_needed[source][sources] = True
                is_needed[target][candidates.reshape(-1)] = True
            return {t: np.flatnonzero(each) for t, each in is_needed.items()}

        found = ranks.gather(ranks.agree(find))
        return {t: np.unique(np.concatenate([each[t] for each in found])) for t in self.node_types}

    def score(self, graph: Graph, part: str, rows: Rows, task: Task, ranks: Ranks) -> float:
        """The metric of val or test; nan where it has no links."""
        source, _, target = self.edge_type

        def digest() -> list[np.ndarray]:
            blocks = self._blocks(graph, part, ranks)
            return [task.digest(products(_rows_of(rows[source], ends), _rows_of(rows[target], others)).numpy()) for ends, others in blocks]

        count, own = len(self.ends[part][0]), ranks.agree(digest)
        return task.score_digest(ranks.merge(own), np.zeros(count, np.int64)) if count else float("nan")

    def _blocks(self, graph: Graph, part: str, ranks: Ranks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """This process's links of a part, a few at a time: (int64[n] sources, int64[n, 1 + eval_negatives] targets, of which the first is
        the link's)."""
        if self._negatives is None:
            self._negatives = self._make_negatives(graph)
        sources, targets = self.ends[part]
        size = max(1, _BLOCK // (1 + self.eval_negatives))
        for number, first in list(enumerate(range(0, sources.size, size)))[ranks.place :: ranks.num_ranks]:
            mine = sources[first : first + size].astype(np.int64)
            _, others, _ = self._negatives.draw(mine, None, seed=self.seed, epoch=_NO_EPOCH + PARTS.index(part), batch=number)
            own = targets[first : first + size].astype(np.int64)
            yield mine, np.concatenate([own[:, None], others.reshape(-1, mine.size).T], axis=1)

    def _make_negatives(self, graph: Graph) -> Negatives:
        source, _, target = self.edge_type
        num_sources, num_targets = (graph.num_nodes[t] for t in (source, target))
        edges, are_edges = known_edges(graph, self.edge_type, "the score of links")
        sources, targets = (np.concatenate(ends) for ends in zip(*self.ends.values(), strict=True))
        return Negatives(
            self.eval_negatives,
            None,
            self._candidates(target, num_targets),
            edges,
            adjacency_of(sources, targets, num_sources, num_targets),
            are_edges,
        )

    def _candidates(self, node_type: NodeType, num_nodes: int) -> Candidates:
        """Nodes that can be negatives in evaluations: all of few, some of many."""
        every = make_candidates(node_type, num_nodes, None, None)
        if num_nodes <= POOL:
            return every
        high, low, *_ = rng.random_words(rng.derive_key(self.seed, 0, rng.HOLD_OUT), 0, POOL, stream=1).T
        pool = np.unique(rng.below_wide(high, low, np.uint64(num_nodes)).astype(np.int64))
        return replace(every, num_nodes=pool.size, order=pool)


def products(ends: Tensor, others: Tensor) -> Tensor:
    """float[n, k]: the product of each row of float[n, d] with each of its own float[n, k, d], over the root of d, as in attention: else
    the first steps are spent on making rows small."""
    return (others @ ends.unsqueeze(2)).squeeze(2) / math.sqrt(ends.shape[1])


def _rows_of(known: tuple[np.ndarray, np.ndarray], nodes: np.ndarray) -> Tensor:
    """The rows of int64[...] nodes, which are all known."""
    ids, rows = known
    places = nodes if ids.size and ids[-1] == ids.size - 1 else np.searchsorted(ids, nodes)
    return torch.from_numpy(rows[places])


def links_of(store: HasLinks, config: TrainConfig, edge_type: EdgeType) -> HeldOutLinks:
    """The links of an edge type; where none were held out of it, only their type is known, as it is enough to apply a model."""
    nothing, parts = np.empty(0, np.int64), store.link_parts(edge_type)
    ends = {part: store.link_ends(part, edge_type) if part in parts else (nothing, nothing) for part in PARTS}
    how = config.num_negatives, config.eval_negatives, config.seed
    return HeldOutLinks(edge_type, store.reverses_left_out(edge_type), store.manifest.edges[edge_type].num_edges, ends, *how)


def edge_type_named(store: HasLinks, target: str, *, is_to_be_learnt: bool) -> EdgeType:
    """The edge type that a text names, whose links were held out where they are to be learnt."""
    found: Any = tuple(part.strip() for part in target.split(","))
    if found not in store.manifest.edges or (is_to_be_learnt and not store.link_parts(found)):
        held_out = " or ".join(map(",".join, store.types_with_links())) or "none"
        raise UsageError(
            f"{argument('target', target)} is not a node type of {store.path}, which are {', '.join(store.manifest.nodes)}, nor an edge "
            f"type that links were held out of, which are {held_out}"
        )
    return found
