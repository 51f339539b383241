"""A model over all neighbours by several processes: of each layer, each computes the rows of some nodes, and keeps them for all.

In: steps of a model, see `penstock.inference`. Out: rows of nodes that are wanted, in each process. Invariants: each row is computed once,
by the process that has it (see `Division`), from rows of the layer before that are read off those who have them; all processes go through
equally many batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.feed import NeighborLoader
from penstock.feed.inputs import ArrayInput
from penstock.inference import OfRows
from penstock.inference.shelves import empty_rows
from penstock.inference.steps import Step, moved, num_nodes_by_bytes, rows_of_seeds, without_edges
from penstock.plan import Plan
from penstock.records import NodeType
from penstock.train.data import TrainingData
from penstock.train.division import Question
from penstock.train.models import GNN
from penstock.train.ranks import Ranks
from penstock.train.typed_models import TypedGNN

Rows = dict[NodeType, Tensor]
"""Of each node type, the rows that this process has."""


class SharedLayers:
    """See above. All processes make it, and call it, at the same point.

    Args:
        model: in evaluation mode, equal in all processes but for its learnt rows, of which each has its share.
        data: what it was trained on.
        ranks: of the processes.
        device: where the model computes.
        plan, num_workers: as of a loader.
        folder: for rows that memory should not hold, where it is there.
        advance: told of rows done.
    """

    def __init__(
        self,
        model: GNN | TypedGNN,
        data: TrainingData,
        ranks: Ranks,
        device: torch.device,
        *,
        plan: Plan,
        num_workers: int,
        folder: Path,
        advance: Callable[[int], None],
    ) -> None:
        self._data = data
        self._ranks = ranks
        self._device = device
        self._advance = advance
        self._folder = folder if folder.is_dir() else None
        self._loading = {"plan": plan, "num_workers": num_workers, "seed": 0}
        self._divisions = data.divide(ranks)
        self._learnt: Rows = {t: model.table(t).weight.detach().cpu() for t in data.without_features}

    def run(self, steps: Sequence[Step], wanted: np.ndarray, node_type: NodeType | None = None) -> np.ndarray:
        """Apply all steps; returns the rows of the last [n, ...] of int64[n] nodes of a type (None: the target), which are distinct."""
        data, target = self._data, self._data.target if node_type is None else node_type
        rows = self._learnt if data.graph.is_homogeneous and self._learnt else None  # None: the features
        for number, step in enumerate(steps[:-1]):
            made = {}
            for t in (t for t, count in data.graph.num_nodes.items() if count):
                if number == 0 and isinstance(step, OfRows) and t in self._learnt:
                    made[t] = self._learnt[t]  # have the common width
                    self._advance(len(made[t]))
                else:
                    made[t] = self._layer(number, step, t, self._divisions[t].nodes_of(self._ranks.number), rows)
            rows = made
        mine = np.flatnonzero(self._divisions[target].find(wanted)[0] == self._ranks.number)
        outputs = list(self._outputs(len(steps) - 1, steps[-1], target, wanted[mine], rows))
        said = self._ranks.gather((mine, np.concatenate(outputs)) if outputs else None)
        everyones = [each for each in said if each is not None]
        out = np.empty((wanted.size, *everyones[0][1].shape[1:]), everyones[0][1].dtype)
        for positions, theirs in everyones:
            out[positions] = theirs
        return out

    def _layer(self, number: int, step: Step, node_type: NodeType, nodes: np.ndarray, rows: Rows | None) -> Tensor:
        """What a step gives for all nodes of a type that are this process's, float[n, width]."""
        kept, done = np.empty((0, 0), np.float32), 0
        for made in self._outputs(number, step, node_type, nodes, rows):
            if not done:
                kept = empty_rows((nodes.size, made.shape[1]), made.dtype, self._folder, "evaluation keeps a layer")
            kept[done : done + len(made)] = made
            done += len(made)
        width = max(self._ranks.gather(kept.shape[1]))
        return torch.from_numpy(kept if done else kept.reshape(0, width))

    def _outputs(self, number: int, step: Step, node_type: NodeType, nodes: np.ndarray, rows: Rows | None) -> Iterator[np.ndarray]:
        """Yield what a step gives for some of this process's nodes, batch after batch; in all processes as often as a batch is there."""
        source = self._data.source() if rows is None else ArrayInput(self._data.graph, {})
        is_homogeneous, hops = self._data.graph.is_homogeneous, [-1]
        if isinstance(step, OfRows):
            source.graph, hops = without_edges(source.graph), []
        width_of = self._data.x if rows is None else rows
        row_bytes = dict.fromkeys(self._data.graph.num_nodes, 0) | {t: each.shape[1] * each.itemsize for t, each in width_of.items()}

        def make_loader() -> Any:
            if not nodes.size:
                return ()
            return NeighborLoader(
                source, hops, input_nodes=nodes if is_homogeneous else (node_type, nodes),
                batch_size=num_nodes_by_bytes(self._data.graph, row_bytes, node_type), **self._loading,
            )  # fmt: skip

        loader = self._ranks.agree(make_loader)
        for batch in self._ranks.in_step(loader, max(self._ranks.gather(len(loader))), len(loader)):
            for t, own in (rows or {}).items():
                self._read_into(batch if is_homogeneous or batch is None else batch[t], t, own)
            if batch is None:
                continue
            count = (batch if is_homogeneous else batch[node_type]).batch_size
            made = rows_of_seeds(step(moved(batch, self._device)), node_type, count, number)
            assert made is not None, "our models give rows for all types"
            yield made
            self._advance(count)

    def _read_into(self, batch: Any, node_type: NodeType, own: Tensor) -> None:
        """Put the rows of its nodes into a batch; None: answer the others."""
        ids = torch.empty(0, dtype=torch.int64) if batch is None else batch.n_id
        rows = Question(ids, self._divisions[node_type], self._ranks).answer(own)
        if batch is not None:
            batch.x = rows
