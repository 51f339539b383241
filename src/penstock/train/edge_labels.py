"""Labels of edges as what a run learns: a field of the edges of a type, ratings or kinds for instance, told of those that were held out.

In: a store that `penstock.hold_out` made. Out: see `HeldOutEdges`. Invariant: what is said of a pair is made of the rows of its ends alone,
by the model's `of_pairs`, and of a graph that has not got the edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from penstock.errors import InputError, MissingFieldError, argument, listed
from penstock.records import EdgeType, Graph, NodeType
from penstock.store import ArraySpec, Store
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

    def of(self, part: str) -> Callable[[np.ndarray], Tensor]:
        """What reads labels of a part by int64[n] numbers of its edges, as the loss of the task takes them."""

        def read(numbers: np.ndarray) -> Tensor:
            return torch.from_numpy(self.labels[part][numbers].astype(self.task.dtype, copy=False))

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
        others: of other parts, whose classes are such too.
    """

    def __init__(self, values: np.ndarray, spec: ArraySpec, name: str, metric: str, others: tuple[EdgeLabels, ...] = ()) -> None:
        self._values, self._spec, self._name, self._metric, self._others = values, spec, name, metric, others
        one = self[:1]
        self.dtype, self.ndim, self.shape = one.dtype, one.ndim, (len(values), *one.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, edges: Any) -> np.ndarray:
        return as_labels(self._values[edges], self._spec, self._name, self._metric, "an edge")

    def max(self) -> Any:
        """The largest, also of the others."""
        return max(part[first : first + BLOCK].max() for part in (self, *self._others) for first in range(0, len(part), BLOCK))


def labels_of_edges(store: Store, config: TrainConfig, edge_type: EdgeType, task: Task | None = None) -> LabelledEdges:
    """The labels of an edge type.

    Args:
        task: what was learnt of another store; labels are left out then.
    Raises:
        MissingFieldError: the edges have no such field, or held-out links that were given have none. InputError: some have no label, or
            what is there can be none.
    """
    name, where = str(config.edge_label), f"{store.path}: edges {'/'.join(edge_type)}"
    specs = store.edge_fields(edge_type)
    of_type = store.reverses_left_out(edge_type), store.num_edges[edge_type], ends_of(store, edge_type)
    if task is not None:
        return LabelledEdges(edge_type, *of_type, name, {}, task)
    if name not in specs:
        raise MissingFieldError(f"{where} have no field {name!r} to learn ({argument('edge_label')}); they have {listed(specs)}")
    values = {"train": store.edge_field(name, edge_type)}
    for part in store.link_parts(edge_type):
        if name not in store.link_fields(part, edge_type):
            raise MissingFieldError(
                f"{where}: links {part!r} were given, without {name!r}: hold edges out by share, which keep their fields"
            )
        values[part] = store.link_field(name, part, edge_type)
    metric, of = config.metric, f"{where}: field {name!r}"
    if metric == "auto" and any(is_fractional(each, specs[name]) for each in values.values()):
        metric = "rmse"
    labels = {part: EdgeLabels(each, specs[name], of, metric) for part, each in values.items()}
    labels["train"] = EdgeLabels(values["train"], specs[name], of, metric, tuple(labels[part] for part in labels if part != "train"))
    task = define_task(labels["train"], None, metric, of, specs[name].properties.get("num_classes"))
    if isinstance(task, Classes) and task.num_outputs > len(values["train"]):
        whole = argument("metric", "rmse")
        raise InputError(f"{of} makes {task.num_outputs} classes for {len(values['train'])} edges: choose a field of classes, or {whole}")
    for part, each in labels.items():
        _check_all(each, task, f"{of}: {part} edge", _numbers_of(store, part, edge_type))
    return LabelledEdges(edge_type, *of_type, name, labels, task)


def _numbers_of(store: Store, part: str, edge_type: EdgeType) -> np.ndarray | None:
    """What the user knows the edges of a part by (`e_id`), where the store keeps it."""
    if part == "train":
        return store.csc(edge_type).edge_ids
    return store.link_field("edge_id", part, edge_type) if "edge_id" in store.link_fields(part, edge_type) else None


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
