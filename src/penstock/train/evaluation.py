"""A model's outputs for nodes during a run, over all neighbours or over sampled ones, and their scores.

In: a learner, and the loader that it learns from. Out: a row per node, or val and test. Invariant: the loader and the state of the run stay
what they are.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from penstock.feed import LinkNeighborLoader, NeighborLoader
from penstock.inference.needed import find_needed
from penstock.inference.shelves import SHARE, MemoryShelf
from penstock.inference.steps import num_rows, run
from penstock.plan import Plan
from penstock.records import NodeType
from penstock.store.budget import format_bytes
from penstock.store.process_memory import free_bytes
from penstock.train.config import TrainConfig
from penstock.train.held_out import HeldOutEdges
from penstock.train.inference import Finish, infer_sampled, source_of, steps_of
from penstock.train.learner import Learner
from penstock.train.ranks import Ranks
from penstock.train.shared_layers import SharedLayers

AnyLoader = NeighborLoader | LinkNeighborLoader

_ALL = 1 << 20
"""Fanout that stands for all neighbours, in estimates."""


class Evaluation:
    """Evaluates the model of a run.

    Args:
        config, plan: of the run.
        learner: has the model.
        ranks: the processes that train together; they share the batches, or the nodes whose rows each computes.
        folder: for files of rows of layers that memory should not hold.
        advance: is called with (rows done, rows in all).
    Attributes:
        is_sampled: whether it is over sampled neighbourhoods, as in training, with memory that does not grow with the graph. It stays the
            same for a run.
        reason: why it is, where the user has not asked for it; else empty.
    """

    def __init__(
        self, config: TrainConfig, plan: Plan, learner: Learner, ranks: Ranks, folder: Path, advance: Callable[[int, int], None]
    ) -> None:
        self.is_sampled, self.reason = config.is_sampled_evaluation, ""
        if config.evaluation == "auto" and not self.is_sampled:
            self.reason = "" if ranks.num_ranks > 1 else _lack_of_room(config, learner)
            self.is_sampled = ranks.num_ranks > 1 or bool(self.reason)
        self._learner = learner
        self._ranks = ranks
        self._folder = folder
        self._advance = advance
        self._num_workers = config.num_workers
        fanouts = [fanout if fanout >= 0 else _ALL for fanout in config.num_neighbors]
        of_hops = [count / config.batch_size for count in fanouts] if config.layer_wise else itertools.accumulate(fanouts, operator.mul)
        self._ends: dict[NodeType, np.ndarray] | None = None
        self._rows_of_a_node = 0 if plan.host_memory is not None else 1 + sum(of_hops)
        self._plan = Plan(huge_pages=plan.huge_pages and plan.host_memory is None)

    def scores(self, loader: AnyLoader) -> tuple[float | None, float | None]:
        """Return (val, test); None without such nodes, and for what cannot be said, such as auc over one class."""
        data = self._learner.data
        if data.edges is not None:
            return self._scores_of_edges(data.edges, loader)
        parts = [data.parts[part] for part in ("val", "test")]
        digests = self.rows(loader, np.concatenate(parts), finish=data.task.digest)
        of_parts = zip(np.split(digests, [parts[0].size]), parts, strict=True)
        val, test = (data.task.score_digest(ours, data.labels_of(ids)) for ours, ids in of_parts)
        return _known(val), _known(test)

    def _scores_of_edges(self, edges: HeldOutEdges, loader: AnyLoader) -> tuple[float | None, float | None]:
        """The same for edges, by the rows of all nodes that are their ends, or negatives."""
        data, model = self._learner.data, self._learner.model
        if self._ends is None:
            self._ends = edges.nodes(data.graph, self._ranks)
        rows = {t: (nodes, self.rows(loader, nodes, data.read, t)) for t, nodes in self._ends.items()}
        val, test = (edges.score(model, data.graph, part, rows, data.task, self._ranks) for part in ("val", "test"))
        return _known(val), _known(test)

    def rows(self, loader: AnyLoader, nodes: np.ndarray, finish: Finish, node_type: NodeType | None = None) -> np.ndarray:
        """Return what `finish` makes of the logits of nodes of a type, in their order; each process has all. None: the target."""
        data = self._learner.data
        target = data.target if node_type is None else node_type
        model = self._learner.model
        ranks = self._ranks
        done = 0
        steps = [] if self.is_sampled else steps_of(model, data.graph, data.prepare, finish, target)
        total = nodes.size if self.is_sampled else num_rows(data.graph, steps, nodes.size)

        def advance(count: int) -> None:
            nonlocal done
            done += count * ranks.num_ranks
            self._advance(min(done, total), total)

        model.eval()
        if self.is_sampled:
            make = loader.beside if isinstance(loader, NeighborLoader) else loader.beside_nodes
            beside = make((target, nodes), rank=ranks.place, num_ranks=ranks.num_ranks)
            batches = ranks.in_step(beside, max(ranks.gather(len(beside))), len(beside))
            with self._learner.reading(int(nodes.size * self._rows_of_a_node)):
                forward = partial(self._learner.forward, node_type=target)
                return ranks.merge(infer_sampled(forward, batches, advance=advance, finish=finish))
        with torch.no_grad():
            if ranks.num_ranks > 1:
                layers = SharedLayers(
                    model, data, ranks, self._learner.device, plan=self._plan, num_workers=self._num_workers, folder=self._folder,
                    advance=advance,
                )  # fmt: skip
                return layers.run(steps, nodes, target)
            source = source_of(model, data)
            needed = find_needed(source, steps, (target, nodes), self._num_workers)
            total = needed.num_rows
            return run(
                source, steps, needed, MemoryShelf(self._folder), plan=self._plan, num_workers=self._num_workers,
                device=self._learner.device, advance=advance,
            )  # fmt: skip


def _lack_of_room(config: TrainConfig, learner: Learner) -> str:
    """Say so where memory would not hold what layers give for nodes of val and test, and for all that these read: rows in a file are read
    at random, neighbour by neighbour, which takes longer than training where memory does not hold that file either."""
    data, num_kept = learner.data, len(steps_of(learner.model, learner.data.graph)) - 1
    num_nodes = sum(data.graph.num_nodes.values())
    grows = 1 + sum(csc.num_edges for csc in data.graph.adjacency.values()) / max(1, num_nodes)
    wanted = data.counts["val"] + data.counts["test"] if data.edges is None else min(num_nodes, data.edges.most_nodes)
    rows = [min(num_nodes, int(wanted * grows**hops)) for hops in range(1, num_kept + 1)]
    left = max(0, free_bytes() - learner.num_bytes_to_come)
    num_bytes = 4 * config.hidden * sum(rows[-2:])  # one layer is read while the next one is written
    if num_bytes <= SHARE * left:
        return ""
    return (
        f"val and test are computed over sampled neighbourhoods: over all neighbours, layers have rows of {format_bytes(num_bytes)}, and "
        f"{format_bytes(left)} of memory are free; --evaluation full computes these too, partly in files"
    )


def _known(score: float) -> float | None:
    return None if math.isnan(score) else score
