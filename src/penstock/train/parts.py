"""A partition as what a run trains on: the store that it was cut from, as far as a run reads it.

In: a graph that was joined. Out: what `read_training_data` asks of a store. Labels are those of the nodes in the split, and are read once,
where they are; or of edges, and stay there. What all labels make together, whether classes and how many, is as of the store. Features are
only said to be there: the loader reads them from whoever has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.errors import MissingFieldError, UsageError
from penstock.exchange import PartitionedGraph, join
from penstock.feed.fields import PYG_EDGE_NAMES
from penstock.feed.inputs.parts import PartsInput
from penstock.gather import TieredTable
from penstock.partition import is_partition
from penstock.partition.book import Book
from penstock.partition.part import num_parts_at
from penstock.records import EdgeType, Graph, NodeType
from penstock.store import ArraySpec
from penstock.store.links import HasLinks
from penstock.train.config import TrainConfig
from penstock.train.edge_labels import LabelledEdges, labels_of_edges
from penstock.train.held_out import HeldOutEdges
from penstock.train.labels import as_labels
from penstock.train.ranks import Ranks


@contextmanager
def joined(path: str, ranks: Ranks) -> Iterator[PartitionedGraph | None]:
    """Join the partition at a path, and learn who has which part; None where it is none, but a store."""
    if not any(ranks.gather(is_partition(path))):
        yield None
        return
    num_parts = ranks.agree(lambda: num_parts_at(path))
    if ranks.num_ranks == 1:
        count = f"as many as it has parts, {num_parts}" if num_parts else "equally many for each part"
        if num_parts == 1:
            raise UsageError(f"{path} is a partition of one part: train on the store that it was cut from")
        raise UsageError(f"{path} is a partition, which several processes train on together: start {count}, by torchrun")
    with join(path, group=ranks.group) as graph:
        ranks.numbers = [number for _, number in sorted(ranks.gather((graph.rank, ranks.number)))]
        yield graph


class PartsStore(HasLinks):
    """See above.

    Args:
        path: of the partition, or of the part.
        graph: joined by all.
        ranks: of those who did.
        split: whose nodes have labels here.
    """

    def __init__(self, path: str, graph: PartitionedGraph, ranks: Ranks, split: str | None) -> None:
        self._joined, self._ranks, self._split = graph, ranks, split
        self._labels: dict[NodeType, SomeLabels] = {}
        self._labelled: dict[EdgeType, LabelledEdges] = {}
        self.path, self.manifest = Path(path), graph.part.manifest
        self.digest, self.cut_from = self.manifest.digest, self.manifest.cut_from

    def map(self, spec: ArraySpec) -> np.ndarray:
        """The map of an array of this part."""
        return self._joined.part.map(spec)

    @property
    def held_out(self) -> Mapping[str, Any]:
        """See `HasLinks`."""
        return self.manifest.held_out

    @property
    def rank(self) -> int:
        """Of this process in the partition: see `PartitionedGraph`."""
        return self._joined.rank

    @property
    def num_nodes(self) -> dict[NodeType, int]:
        """Of the whole graph."""
        return self._joined.num_nodes

    @property
    def node_types(self) -> list[NodeType]:
        """All of them."""
        return list(self.num_nodes)

    def node_fields(self, node_type: NodeType) -> dict[str, ArraySpec]:
        """Name -> what is known of it; shapes are those of this part."""
        return self.manifest.nodes[node_type].fields

    @property
    def edge_types(self) -> list[EdgeType]:
        """All of them."""
        return list(self.manifest.edges)

    def edge_fields(self, edge_type: EdgeType) -> dict[str, ArraySpec]:
        """Name -> what is known of it; shapes are those of this part."""
        return self.manifest.edges[edge_type].fields

    def graph(self) -> Graph:
        """The topology, but for its neighbours."""
        return self._joined.graph()

    def node_field(self, name: str, node_type: NodeType) -> Any:
        """Labels (y): `SomeLabels`, after `read_labels`. Of others, features, what has their shape and dtype: nobody reads its values."""
        spec = self.node_fields(node_type)[name]
        if name == "y":
            return self._labels[node_type]
        return np.broadcast_to(np.zeros((), spec.storage_dtype), (self.num_nodes[node_type], *spec.shape[1:]))

    def split_names(self, node_type: NodeType) -> list[str]:
        """Names of its splits."""
        return list(self.manifest.nodes[node_type].splits)

    def split(self, part: str, split: str | None, node_type: NodeType) -> np.ndarray:
        """int64[n], ids of one part of a split."""
        return self._joined.part.split(part, split, node_type)

    def book(self, node_type: NodeType) -> Book:
        """Which part owns which node."""
        return self._joined.books[node_type]

    def labelled(self, edge_type: EdgeType) -> LabelledEdges:
        """The labels of edges, after `read_labels`."""
        return self._labelled[edge_type]

    def read_labels(self, config: TrainConfig, target: NodeType, edge_type: EdgeType | None) -> None:
        """Have the labels that are learnt: of an edge type, or of those nodes of the target that are in the split. All processes come here
        together, and tell each other what is theirs."""
        if edge_type is None:
            self._read_labels_of_nodes(target, config.metric)
        elif config.edge_label is not None:
            self._labelled[edge_type] = labels_of_edges(self, config, edge_type, ranks=self._ranks)

    def _read_labels_of_nodes(self, target: NodeType, metric: str) -> None:
        if target not in self.node_types or "y" not in self.node_fields(target):
            return  # which is said where the labels are looked for
        ids, positions, rows, are_floats, most = self._ranks.agree(lambda: self._own_labels(target, metric))
        everyones = self._ranks.gather((positions, rows, are_floats, most))
        values = np.empty((ids.size, *rows.shape[1:]), rows.dtype)
        for positions, rows, _, _ in everyones:
            values[positions] = rows
        if any(each[2] for each in everyones):
            metric = "rmse"  # they are numbers for all
        values = as_labels(values, self.node_fields(target)["y"], f"{self.path}: labels of '{target}'", metric)
        self._labels[target] = SomeLabels(ids, values, self.num_nodes[target], max(each[3] for each in everyones))

    def _own_labels(self, target: NodeType, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool, int]:
        """What this process can say of labels.

        Returns:
            (ids of nodes in the split, which of them are this part's, their labels; of all labels of this part whether they are floats as a
            task reads them, and the largest class, where nothing else says how many there are).
        """
        part, spec = self._joined.part, self.node_fields(target)["y"]
        known = [np.empty(0, np.int64)]
        for name in ("train", "val", "test"):
            with suppress(MissingFieldError):
                known.append(self.split(name, self._split, target))
        ids, book, stored = np.unique(np.concatenate(known)), self._joined.books[target], part.map(spec)
        positions = np.flatnonzero(book.owners(ids) == part.number)
        rows = stored[book.local(ids[positions], part.number)]
        labels = as_labels(stored, spec, f"{self.path}: labels of '{target}'", metric, "a node")
        are_floats = labels.dtype.kind == "f"
        is_known = are_floats or not labels.size or "num_classes" in spec.properties
        return ids, positions, rows, are_floats, -1 if is_known else int(labels.max())

    def input(self, edges: HeldOutEdges | None) -> PartsInput:
        """What loaders load from: features of nodes, and of edges labels, if these are learnt."""
        return _Features(self._joined, edges)


class SomeLabels:
    """Labels of some nodes, looked up by id as in an array of all of them; there are none of the others.

    Args:
        ids: int64[n], ascending. values: [n, ...]. num_nodes: of the type. most: the largest label of all nodes.
    """

    def __init__(self, ids: np.ndarray, values: np.ndarray, num_nodes: int, most: int) -> None:
        self._ids, self._values, self._most = ids, values, most
        self.dtype, self.ndim, self.shape = values.dtype, values.ndim, (num_nodes, *values.shape[1:])

    def __getitem__(self, nodes: Any) -> np.ndarray:
        return self._values[np.searchsorted(self._ids, nodes)]

    def max(self) -> Any:
        """The largest of all nodes."""
        return self._most


class _Features(PartsInput):
    """Features of nodes, and nothing of edges but labels that are learnt: nobody asks for it, and it would be read from others."""

    def __init__(self, graph: PartitionedGraph, edges: HeldOutEdges | None) -> None:
        super().__init__(graph)
        self.graph, self._edges = self.graph.without_edge_numbers(), edges

    def edge_field(self, edge_type: EdgeType, name: str) -> Callable[[np.ndarray], torch.Tensor]:
        """The labels that are learnt, as the loss takes them."""
        assert isinstance(self._edges, LabelledEdges)
        read, _ = self.edge_rows(edge_type, PYG_EDGE_NAMES.get(name, name))
        return self._edges.of_batch(read)

    def tables(self) -> dict[NodeType | EdgeType, TieredTable]:
        """Tables of node types only."""
        return {key: table for key, table in super().tables().items() if not isinstance(key, tuple)}
