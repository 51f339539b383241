"""Labels of edges as what a run learns: a field of the edges of a type, ratings or kinds for instance, told of those that were held out.

In: a store that `penstock.hold_out` made, or a partition of one. Out: see `HeldOutEdges`. Invariant: what is said of a pair is made of the
rows of its ends alone, by the model's `of_pairs`, and of a graph that has not got the edge.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from penstock.errors import InputError, MissingFieldError, argument, listed
from penstock.records import EdgeType, Graph, NodeType
from penstock.store import ArraySpec
from penstock.store.links import HasLinks
from penstock.train.config import TrainConfig
from penstock.train.held_out import PAIRS, HeldOutEdges, Rows, ends_of, rows_of
from penstock.train.labels import BLOCK, as_labels, define_task, is_fractional
from penstock.train.ranks import Ranks
from penstock.train.task import Classes, Labels, Numbers, Task


@dataclass(slots=True)
class LabelledEdges(HeldOutEdges):
    """Edges of one type with labels.

    Attributes:
        field: the name of the field that holds them.
        labels: "train", "val", "test" -> the labels of its edges.
        task: what is learnt of them; its `dtype` is that of the labels in a batch.
    """

    what = "edges"
    field: str
    labels: dict[str, EdgeLabels]
    task: Task

    def _of_batches(self) -> dict[str, Any]:
        return {"edge_label": self.field}

    def of_batch(self, rows: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], Tensor]:
        """What reads labels of int64[n] train edges, as the loss of the task takes them. `rows`: reads the field as it is stored."""

        def read(numbers: np.ndarray) -> Tensor:
            return torch.from_numpy(self.labels["train"].read(rows(numbers)).astype(self.task.dtype, copy=False))

        return read

    def outputs(self, model: Any, rows: dict[NodeType, Tensor], batch: Any) -> tuple[Tensor, Tensor]:
        """float[n, num_outputs]: what the model says of each edge of a batch; their labels."""
        source, _, target = self.edge_type
        seeds = batch[self.edge_type] if isinstance(batch, HeteroData) else batch
        first, second = seeds.edge_label_index
        return self.of_pairs(model, rows[source].index_select(0, first), rows[target].index_select(0, second)), seeds.edge_label

    def of_pairs(self, model: Any, sources: Tensor, targets: Tensor) -> Tensor:
        """float[n, num_outputs]."""
        return model.of_pairs(sources, targets)

    @property
    def most_nodes(self) -> int:
        """See `HeldOutEdges`."""
        return 2 * (self.counts["val"] + self.counts["test"])

    def nodes(self, graph: Graph, ranks: Ranks) -> dict[NodeType, np.ndarray]:
        """The ends of the edges."""
        source, _, target = self.edge_type
        is_needed = {t: np.zeros(graph.num_nodes[t], np.bool_) for t in self.node_types}
        for sources, targets in self.ends.values():
            is_needed[source][sources] = True
            is_needed[target][targets] = True
        return {t: np.flatnonzero(each) for t, each in is_needed.items()}

    @torch.no_grad()
    def score(self, model: Any, graph: Graph, part: str, rows: Rows, task: Task, ranks: Ranks) -> float:
        """See `HeldOutEdges`."""
        known, device = (rows[self.edge_type[0]], rows[self.edge_type[2]]), next(model.of_pairs.parameters()).device

        def digest(piece: slice) -> np.ndarray:
            ends = (torch.from_numpy(rows_of(of, nodes[piece])).to(device) for of, nodes in zip(known, self.ends[part], strict=True))
            return task.digest(self.of_pairs(model, *ends).cpu().numpy())

        count, own = self.counts[part], ranks.agree(lambda: [digest(piece) for _, piece in self._pieces(part, PAIRS, ranks)])
        return task.score_digest(ranks.merge(own), self.labels[part][np.arange(count)]) if count else float("nan")


class EdgeLabels:
    """A field of edges, read as labels where it is indexed.

    Args:
        values, spec: as stored. name: for messages. metric: see `as_labels`.
        ranks: that have the other edges, each some; None: all are here.
        others: of other parts, whose classes are such too.
    """

    def __init__(
        self,
        values: np.ndarray,
        spec: ArraySpec,
        name: str,
        metric: str,
        ranks: Ranks | None = None,
        others: tuple[EdgeLabels, ...] = (),
    ) -> None:
        self._values, self._spec, self._name, self._metric, self._ranks, self._others = values, spec, name, metric, ranks, others
        nothing = self[:0]
        self.dtype, self.ndim, self.shape = nothing.dtype, nothing.ndim, (len(values), *nothing.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, edges: Any) -> np.ndarray:
        return self.read(self._values[edges])

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the field as labels."""
        return as_labels(rows, self._spec, self._name, self._metric, "an edge")

    def scored_by(self, metric: str) -> EdgeLabels:
        """The same field, as another metric needs it."""
        others = tuple(each.scored_by(metric) for each in self._others)
        return EdgeLabels(self._values, self._spec, self._name, metric, self._ranks, others)

    def fold(self, of: Callable[[np.ndarray], Any], join: Callable[[Any, Any], Any], start: Any) -> Any:
        """What `of` makes of some labels at a time, joined, over all that have some: they come here together."""

        def own() -> Any:
            return reduce(join, (of(self[first : first + BLOCK]) for first in range(0, len(self), BLOCK)), start)

        ranks = self._ranks or Ranks()
        return reduce(join, ranks.gather(ranks.agree(own)))

    def max(self) -> Any:
        """The largest, also of the others."""
        return max(part.fold(np.max, max, -1) for part in (self, *self._others))

    def are_fractional(self) -> bool:
        """Whether they are floats of one column, not all whole."""
        return self.dtype.kind == "f" and self.ndim == 1 and self.fold(is_fractional, operator.or_, False)


def labels_of_edges(
    store: HasLinks, config: TrainConfig, edge_type: EdgeType, task: Task | None = None, ranks: Ranks | None = None
) -> LabelledEdges:
    """The labels of an edge type.

    Args:
        task: what was learnt of another store; labels are left out then.
        ranks: that have the parts of a partition, of which `store` is this one's; they come here together.
    Raises:
        MissingFieldError: the edges have no such field, or held-out links that were given have none. InputError: some have no label, or
            what is there can be none.
    """
    name, where, ranks = str(config.edge_label), f"{store.path}: edges {'/'.join(edge_type)}", ranks or Ranks()
    num_edges = store.manifest.edges[edge_type].num_edges
    of_type = store.reverses_left_out(edge_type), num_edges, ranks.agree(lambda: ends_of(store, edge_type))
    if task is not None:
        return LabelledEdges(edge_type, *of_type, name, {}, task)
    values, spec = ranks.agree(lambda: _values(store, edge_type, name, where)), store.manifest.edges[edge_type].fields[name]
    metric, of = config.metric, f"{where}: field {name!r}"
    others = {part: EdgeLabels(values[part], spec, of, "rmse") for part in values if part != "train"}
    train = EdgeLabels(values["train"], spec, of, "rmse", ranks, tuple(others.values()))
    if metric == "auto" and any(each.are_fractional() for each in (train, *others.values())):
        metric = "rmse"
    labels = {part: each.scored_by(metric) for part, each in {"train": train, **others}.items()}
    task = define_task(labels["train"], None, metric, of)  # links that were given may have classes that the ingested edges had not
    if isinstance(task, Classes) and task.num_outputs > num_edges:
        whole = argument("metric", "rmse")
        raise InputError(f"{of} makes {task.num_outputs} classes for {num_edges} edges: choose a field of classes, or {whole}")
    for part, each in labels.items():
        _check_all(each, task, f"{of}: {part} edge", _numbers_of(store, part, edge_type))
    return LabelledEdges(edge_type, *of_type, name, labels, task)


def _values(store: HasLinks, edge_type: EdgeType, name: str, where: str) -> dict[str, np.ndarray]:
    """The field of the edges in the graph ("train"), or of this part's, and of those that were held out."""
    entry = store.manifest.edges[edge_type]
    if name not in entry.fields:
        raise MissingFieldError(f"{where} have no field {name!r} to learn ({argument('edge_label')}); they have {listed(entry.fields)}")
    values = {"train": store.map(entry.fields[name])}
    for part in store.link_parts(edge_type):
        if name not in store.link_fields(part, edge_type):
            raise MissingFieldError(
                f"{where}: links {part!r} were given, without {name!r}: give a table with a column of that name, or hold edges out by "
                "share, which keep their fields"
            )
        values[part] = store.link_field(name, part, edge_type)
    return values


def _numbers_of(store: HasLinks, part: str, edge_type: EdgeType) -> np.ndarray | None:
    """What the user knows the edges of a part by (`e_id`), where that is kept."""
    entry = store.manifest.edges[edge_type]
    spec = entry.edge_id if part == "train" else entry.links[part].get("edge_id")
    return None if spec is None else store.map(spec)


def _check_all(labels: EdgeLabels, task: Task, of: str, numbers: np.ndarray | None) -> None:
    """Raise where an edge has no label. `numbers`: to name it by."""
    for first in range(0, len(labels), BLOCK):
        bad = np.flatnonzero(~task.is_labelled(labels[first : first + BLOCK]))
        if not bad.size:
            continue
        place = first + bad[0]
        edge = f"{of} {place}" if numbers is None else f"{of} {place}, row {numbers[place]} of the input,"
        if isinstance(task, Labels):
            whole = argument("metric", "rmse")
            raise InputError(f"{edge} has something else than 0 and 1: leave such edges out, or learn numbers by {whole}")
        below = ", for integers below 0 are none: store floats" if isinstance(task, Numbers) and labels.dtype.kind == "i" else ""
        raise InputError(f"{edge} has no label{below or ': leave such edges out, or give them an edge type of their own'}")
