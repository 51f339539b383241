"""Links as what a run learns: edges that were held out of a store's graph, told from pairs that no edge joins.

In: a store that `penstock.hold_out` made, or a partition of one. Out: see `HeldOutEdges`. Invariants: the score of a pair is the product of
the rows of its ends; each link of val and test has the same negatives in every evaluation, none of which is a link that the store knows.
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
from penstock.records import EdgeType, Graph, NodeType
from penstock.sample.negatives import Candidates, Negatives, adjacency_of, known_edges, make_candidates
from penstock.store.links import HasLinks
from penstock.train.config import TrainConfig
from penstock.train.held_out import PAIRS, PARTS, HeldOutEdges, Rows, ends_of, rows_of
from penstock.train.ranks import Ranks
from penstock.train.task import Task

POOL = 1 << 14
"""Random nodes, about, that the negatives of evaluations are among, so that these need the rows of few nodes besides the ends of links."""

_NO_EPOCH = 1 << 63
"""From here on no training has epochs whose random numbers these could be."""


@dataclass(slots=True)
class HeldOutLinks(HeldOutEdges):
    """Links of one edge type.

    Attributes:
        num_negatives: targets that each link is told from, in training.
        eval_negatives: the same, in evaluations.
        seed: of these.
    """

    what = "links"
    num_negatives: int
    eval_negatives: int
    seed: int
    _negatives: Negatives | None = field(default=None, repr=False)

    def _of_batches(self) -> dict[str, Any]:
        return {"neg_sampling": ("triplet", self.num_negatives)}

    def outputs(self, model: Any, rows: dict[NodeType, Tensor], batch: Any) -> tuple[Tensor, Tensor]:
        """float[n, 1 + num_negatives]: scores of each link of a batch, and of its negatives; the place of each link, 0."""
        source, _, target = self.edge_type
        of_source, of_target = (batch[source], batch[target]) if isinstance(batch, HeteroData) else (batch, batch)
        others = of_target.dst_neg_index.view(of_source.src_index.numel(), -1)
        candidates = torch.cat([of_target.dst_pos_index[:, None], others], dim=1)
        ends = rows[source].index_select(0, of_source.src_index)  # adds up gradients in one order, as `rows[index]` does not
        scores = products(ends, rows[target].index_select(0, candidates.view(-1)).view(*candidates.shape, -1))
        return scores, torch.zeros(len(scores), dtype=torch.int64, device=scores.device)

    def of_pairs(self, model: Any, sources: Tensor, targets: Tensor) -> Tensor:
        """float[n, 1]: scores."""
        return products(sources, targets[:, None])

    @property
    def most_nodes(self) -> int:
        """See `HeldOutEdges`."""
        return 2 * (self.counts["val"] + self.counts["test"]) + POOL

    def nodes(self, graph: Graph, ranks: Ranks) -> dict[NodeType, np.ndarray]:
        """The ends of links, and their negatives."""
        source, _, target = self.edge_type

        def find() -> dict[NodeType, np.ndarray]:
            is_needed = {t: np.zeros(graph.num_nodes[t], np.bool_) for t in self.node_types}
            for sources, candidates in (block for part in PARTS for block in self._blocks(graph, part, ranks)):
                is_needed[source][sources] = True
                is_needed[target][candidates.reshape(-1)] = True
            return {t: np.flatnonzero(each) for t, each in is_needed.items()}

        found = ranks.gather(ranks.agree(find))
        return {t: np.unique(np.concatenate([each[t] for each in found])) for t in self.node_types}

    def score(self, model: Any, graph: Graph, part: str, rows: Rows, task: Task, ranks: Ranks) -> float:
        """See `HeldOutEdges`."""
        source, _, target = self.edge_type

        def digest() -> list[np.ndarray]:
            found = []
            for sources, candidates in self._blocks(graph, part, ranks):
                ends, others = (torch.from_numpy(rows_of(*each)) for each in ((rows[source], sources), (rows[target], candidates)))
                found.append(task.digest(products(ends, others).numpy()))
            return found

        count, own = self.counts[part], ranks.agree(digest)
        return task.score_digest(ranks.merge(own), np.zeros(count, np.int64)) if count else float("nan")

    def _blocks(self, graph: Graph, part: str, ranks: Ranks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """This process's links of a part, a few at a time: (int64[n] sources, int64[n, 1 + eval_negatives] targets, of which the first is
        the link's)."""
        if self._negatives is None:
            self._negatives = self._make_negatives(graph)
        sources, targets = self.ends[part]
        for number, piece in self._pieces(part, max(1, PAIRS // (1 + self.eval_negatives)), ranks):
            mine, own = sources[piece].astype(np.int64), targets[piece].astype(np.int64)
            _, others, _ = self._negatives.draw(mine, None, seed=self.seed, epoch=_NO_EPOCH + PARTS.index(part), batch=number)
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


def links_of(store: HasLinks, config: TrainConfig, edge_type: EdgeType) -> HeldOutLinks:
    """The links of an edge type."""
    how = config.num_negatives, config.eval_negatives, config.seed
    of_type = store.reverses_left_out(edge_type), store.manifest.edges[edge_type].num_edges, ends_of(store, edge_type)
    return HeldOutLinks(edge_type, *of_type, *how)
