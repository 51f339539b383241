"""What a run trains on: a store, read as features, labels, splits and a task.

In: an open store and a configuration. Out: everything the loop and the inference need, checked, with the reason where something lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from penstock.errors import InputError, MissingFieldError, UsageError, argument, damaged
from penstock.feed.inputs import ArrayInput, StoreFeatures
from penstock.records import NODE, EdgeType, Graph, NodeType
from penstock.sample.weights import choose_weights
from penstock.store import ArraySpec, Store
from penstock.store.opened import no_split
from penstock.train.aggregate import MODEL_OF
from penstock.train.config import PLAIN_MODELS, TYPED_MODELS, TrainConfig
from penstock.train.division import Division
from penstock.train.edge_labels import LabelledEdges, labels_of_edges
from penstock.train.held_out import HeldOutEdges
from penstock.train.labels import as_labels, define_task, has_label
from penstock.train.links import links_of
from penstock.train.models import GNN, PairHead
from penstock.train.parts import PartsStore
from penstock.train.ranks import Ranks
from penstock.train.rows import LearntRows
from penstock.train.task import Task, as_float, link_task, normalize_rows
from penstock.train.typed_models import TypedGNN

logger = logging.getLogger("penstock")

MAX_EMBEDDING_BYTES = 4 << 30
"""Weights and Adam's moments of the rows that nodes learn in place of features, at most, in a process."""


@dataclass(slots=True)
class TrainingData:
    """A store as a learning problem.

    Attributes:
        graph: topology.
        target: node type whose labels are learnt, or that the edges lead to that are.
        edges: that are learnt, links or labels of edges; None: labels of nodes are. With them there are no others, and no nodes in parts.
        x: features per node type that has any; of a partition only their shape and dtype.
        labels: of the target, see `as_labels`. Of a partition, those of the nodes in the split (`SomeLabels`).
        parts: "train", "val", "test" -> int64 ids of the target that have a label; val and test may be empty.
        num_unlabelled: "train", "val", "test" -> nodes of it that have no label, and are left out.
        task: what is learnt.
        bfloat16: node types whose features are bfloat16, kept as uint16.
        split: name of the split, or None.
        normalize: how features are normalised.
        aggregated: how they were aggregated (see `penstock.aggregate`); None: they were not.
        store: that it was read from, which may have copies of fields that are packed for a disk; or a partition.
    """

    graph: Graph
    target: NodeType
    x: dict[NodeType, np.ndarray]
    labels: np.ndarray
    parts: dict[str, np.ndarray]
    num_unlabelled: dict[str, int]
    task: Task
    bfloat16: frozenset[NodeType]
    split: str | None
    normalize: str
    aggregated: str | None
    store: Store | PartsStore
    edges: HeldOutEdges | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Part ("train", "val", "test") -> number of nodes or edges."""
        return {part: int(ids.size) for part, ids in self.parts.items()} if self.edges is None else self.edges.counts

    @property
    def what(self) -> str:
        """What is learnt of the graph: a node type or an edge type, as `TrainConfig.target` has it."""
        return self.target if self.edges is None else ",".join(self.edges.edge_type)

    def source(self) -> ArrayInput:
        """The input of the training loader: features. Labels are those of the seeds alone, and are looked up there."""
        return self.store.input(self.edges) if isinstance(self.store, PartsStore) else _Features(self.store, self.edges)

    def labels_of(self, nodes: np.ndarray) -> np.ndarray:
        """The labels of nodes of the target, as the loss of the task takes them."""
        return self.labels[nodes].astype(self.task.dtype, copy=False)

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        """Turn raw features into what the model reads."""
        if x.dtype == torch.uint16:
            x = x.view(torch.bfloat16)
        x = as_float(x)
        return normalize_rows(x) if self.normalize == "rows" else x

    @property
    def without_features(self) -> list[NodeType]:
        """Node types whose nodes learn a row each."""
        return [t for t in self.graph.num_nodes if t not in self.x]

    def divide(self, ranks: Ranks) -> dict[NodeType, Division]:
        """Which of several processes has the rows of which node: the owners of a partition, each some of a store."""
        books = {t: self.store.book(t) if isinstance(self.store, PartsStore) else None for t in self.graph.num_nodes}
        return {t: Division(self.graph.num_nodes[t], ranks.numbers, book) for t, book in books.items()}

    def make_model(self, config: TrainConfig, nodes: dict[NodeType, np.ndarray] | None = None) -> GNN | TypedGNN:
        """Build the model; weights follow torch's seed.

        Args:
            config: says which.
            nodes: those that have their learnt rows here, see `LearntRows`, of types without features; others have all.
        """
        usual = "rgcn" if not self.graph.is_homogeneous else "sage" if self.aggregated is None else MODEL_OF[self.aggregated]
        kind = config.model if config.model != "auto" else usual
        suited = PLAIN_MODELS if self.graph.is_homogeneous else TYPED_MODELS
        if kind not in suited:
            graph = f"this graph of {len(self.graph.num_nodes)} node and {len(self.graph.adjacency)} edge types"
            raise UsageError(f"{argument('model', kind)} does not suit {graph}: take one of {', '.join(suited)}")
        if self.aggregated is not None and kind != usual:
            raise UsageError(
                f"{argument('model', kind)} does not suit features that are aggregated by {self.aggregated}: take {usual}, or the store "
                "that they were aggregated from"
            )
        widths = {t: self.x[t].shape[1] if t in self.x else None for t in self.graph.num_nodes}
        nodes, all_nodes = nodes or {}, self.graph.num_nodes
        outputs, of_pairs = self.task.num_outputs, None
        if isinstance(self.edges, LabelledEdges):
            outputs, of_pairs = config.hidden, PairHead(config.hidden, outputs, config.dropout)
        if self.graph.is_homogeneous:
            is_aggregated, width = self.aggregated is not None, widths[NODE] or config.hidden
            width = width // 2 if self.aggregated in ("mean", "sum") else width
            sizes = [width, *[config.hidden] * (config.num_layers - 1 + is_aggregated), outputs]
            rows = None if widths[NODE] else LearntRows(all_nodes[NODE], config.hidden, nodes.get(NODE))
            return GNN(
                kind, sizes, rows=rows, dropout=config.dropout, input_dropout=config.input_dropout, heads=config.heads,
                is_aggregated=is_aggregated, of_pairs=of_pairs,
            )  # fmt: skip
        make_rows = lambda t: LearntRows(all_nodes[t], config.hidden, nodes.get(t))  # noqa: E731 (in the order of the types)
        source = None if self.edges is None else self.edges.edge_type[0]
        return TypedGNN(
            kind, widths, make_rows, self.graph.edge_types, self.target, source, hidden=config.hidden, num_outputs=outputs,
            num_layers=config.num_layers, dropout=config.dropout, input_dropout=config.input_dropout, heads=config.heads,
            of_pairs=of_pairs,
        )  # fmt: skip

    def read(self, outputs: np.ndarray) -> np.ndarray:
        """What the model returns for nodes, as users read it."""
        return outputs if self.edges is not None else self.task.read(outputs)

    def check_rows(self, hidden: int, nodes: dict[NodeType, np.ndarray] | None = None) -> None:
        """Refuse learnt rows whose training would take too much of this process; `nodes` as of `make_model`."""
        needed = 12 * hidden * sum(len((nodes or {}).get(t, range(self.graph.num_nodes[t]))) for t in self.without_features)
        who = "the nodes have" if self.graph.is_homogeneous else f"node types {self.without_features} have"
        if needed > MAX_EMBEDDING_BYTES:
            raise UsageError(
                f"{who} no features; rows that they learn would take {needed / 2**30:.1f} GiB: give features, a smaller "
                f"{argument('hidden')} than {hidden}, or more processes (torchrun), each of which has a share"
            )


class _Features(StoreFeatures):
    """Features of nodes, and of edges the weights that they are drawn by, and labels that are learnt."""

    def __init__(self, store: Store, edges: HeldOutEdges | None) -> None:
        super().__init__(store)
        self._edges = edges

    def edge_field(self, edge_type: EdgeType, name: str) -> Callable[[np.ndarray], torch.Tensor]:
        """The labels that are learnt, as the loss takes them."""
        assert isinstance(self._edges, LabelledEdges)
        rows = self.store.edge_field(name, edge_type)
        return self._edges.of_batch(lambda numbers: rows[numbers])


def read_training_data(store: Store | PartsStore, config: TrainConfig, task: Task | None = None) -> TrainingData:
    """Read a store for a run, or raise with what is missing. `task`: what was learnt from another store; labels and splits are left out
    then, and `config` says the target."""
    graph = store.graph().without_edge_numbers()
    target, edge_type = what_is_learnt(store, config, task)
    edges = None if edge_type is None else _edges(store, config, edge_type, task)
    if config.weight is not None:
        choose_weights({e: store.edge_fields(e) for e in store.edge_types}, config.weight, str(store.path))
    specs = _features(store)
    if not specs and config.normalize != "none":
        raise UsageError(f"{argument('normalize', config.normalize)} is for features, and {store.path} has none: leave it out")
    aggregated = specs[NODE].properties.get("aggregated") if NODE in specs else None
    if aggregated is not None and config.normalize != "none":
        raise UsageError(
            f"{argument('normalize', config.normalize)} comes too late for the features of {store.path}, which are aggregated: leave it out"
        )
    labels, parts, num_unlabelled = np.empty(0, np.int64), {}, {}
    if isinstance(edges, LabelledEdges):
        task = edges.task
    elif edges is not None:
        task = link_task(config.metric, config.hidden)
    elif task is None:
        labels, parts, num_unlabelled, task = _read_labels(store, config.split, target, config.metric)
    return TrainingData(
        graph=graph,
        target=target,
        x={t: store.node_field("x", t) for t in specs},
        labels=labels,
        parts=parts,
        num_unlabelled=num_unlabelled,
        task=task,
        bfloat16=frozenset(t for t, spec in specs.items() if spec.dtype == "bfloat16"),
        split=config.split,
        normalize=config.normalize,
        aggregated=aggregated,
        store=store,
        edges=edges,
    )


def what_is_learnt(store: Store | PartsStore, config: TrainConfig, task: Task | None = None) -> tuple[NodeType, EdgeType | None]:
    """The node type whose labels are learnt; or that edges lead to, and their type. `task`: as of `read_training_data`."""
    edge_type = store.edges_learnt(config.target, "target", split=config.split, edge_label=config.edge_label, are_held_out=task is None)
    return (config.target or _type_with_labels(store), None) if edge_type is None else (edge_type[2], edge_type)


def _edges(store: Store | PartsStore, config: TrainConfig, edge_type: EdgeType, task: Task | None) -> HeldOutEdges:
    """What is learnt of an edge type."""
    if config.edge_label is None:
        return links_of(store, config, edge_type)
    return store.labelled(edge_type) if isinstance(store, PartsStore) else labels_of_edges(store, config, edge_type, task)


def _read_labels(
    store: Store | PartsStore, split: str | None, target: NodeType, metric: str
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, int], Task]:
    """(labels, parts, num_unlabelled, task) of `TrainingData`."""
    if "y" not in store.node_fields(target):
        hint = f"ingest them, or choose another {argument('target')}"
        raise MissingFieldError(f"{store.path}: node type '{target}' has no labels (field y); {hint}")
    names = store.split_names(target)
    if not names:
        raise no_split(store.path, target)
    if split is not None and split not in names:
        raise UsageError(f"{store.path} has no split {split!r}; it has {', '.join(names)}")
    labels, y, of_target = store.node_field("y", target), store.node_fields(target)["y"], f"{store.path}: labels of '{target}'"
    if isinstance(store, Store):
        labels = as_labels(labels, y, of_target, metric)
    parts = {part: _part(store, part, split, target) for part in ("train", "val", "test")}
    if parts["train"].size == 0:
        raise MissingFieldError(f"{store.path}: split {split or 'default'!r} of '{target}' has no train nodes")
    known = y.properties
    task = define_task(labels, parts["train"], metric, of_target, known.get("num_classes"), known.get("class_names", ()))
    labelled = {part: has_label(labels, ids, task) for part, ids in parts.items()}
    parts |= {part: parts[part][mask] for part, mask in labelled.items() if not mask.all()}
    return labels, parts, {part: int((~mask).sum()) for part, mask in labelled.items()}, task


def _features(store: Store | PartsStore) -> dict[NodeType, ArraySpec]:
    """The features of every node type that has any."""
    specs = {t: store.node_fields(t)["x"] for t in store.node_types if "x" in store.node_fields(t)}
    for t, spec in specs.items():
        if len(spec.shape) != 2 or spec.shape[1] == 0:
            raise InputError(f"{store.path}: features of '{t}' must be a matrix of a column at least, got shape {list(spec.shape)}")
    return specs


def _type_with_labels(store: Store | PartsStore) -> NodeType:
    labelled = [t for t in store.node_types if "y" in store.node_fields(t)]
    if len(labelled) == 1:
        return labelled[0]
    if not labelled:
        raise MissingFieldError(
            f"{store.path} has no labels (field y): ingest them with the graph; or, to learn links, hold some out (`penstock hold-out`)"
        )
    raise UsageError(f"several node types have labels, choose one by {argument('target')}: {', '.join(labelled)}")


def _part(store: Store | PartsStore, part: str, split: str | None, target: NodeType) -> np.ndarray:
    try:
        ids = store.split(part, split, target)  # mapped: eight bytes a node that the system may drop
    except MissingFieldError:
        return np.empty(0, dtype=np.int64)
    if ids.size and not 0 <= ids.min() <= ids.max() < store.num_nodes[target]:
        raise damaged(
            f"splits of {store.path}", f"split {split or 'default'!r} has {part} nodes outside the {store.num_nodes[target]} of '{target}'"
        )
    return ids
