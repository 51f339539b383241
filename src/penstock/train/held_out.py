"""Edges that were held out of a store's graph, as what a run learns by those that stayed: see `links.py` and `edge_labels.py`.

In: a store that `penstock.hold_out` made. Out: a loader of the edges that stayed, whose batches do not show them; what a model says of a
batch; and scores of the held-out parts, by rows of all their ends. Invariant: a score is the same by any number of processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from penstock.feed import LinkNeighborLoader
from penstock.feed.inputs import ArrayInput
from penstock.feed.link_arguments import all_edges
from penstock.records import EdgeType, Graph, NodeType
from penstock.store.links import HasLinks
from penstock.train.ranks import Ranks
from penstock.train.task import Task

PARTS = ("val", "test")

PAIRS = 1 << 16
"""Pairs that are scored together."""

Rows = dict[NodeType, tuple[np.ndarray, np.ndarray]]
"""Node type -> its nodes, int64[n], ascending, and a row for each."""


@dataclass(slots=True)
class HeldOutEdges(ABC):
    """Edges of one type.

    Attributes:
        what: a word for them.
        edge_type: theirs.
        reverses: edge types that hold their reverses.
        num_edges: how many stayed in the graph, and are learnt.
        ends: "val", "test" -> int[n] sources and int[n] targets; mapped.
    """

    what: ClassVar[str]
    edge_type: EdgeType
    reverses: list[EdgeType]
    num_edges: int
    ends: dict[str, tuple[np.ndarray, np.ndarray]]

    @property
    def counts(self) -> dict[str, int]:
        """Part ("train", "val", "test") -> number of edges."""
        return {"train": self.num_edges, **{part: sources.size for part, (sources, _) in self.ends.items()}}

    @property
    def node_types(self) -> tuple[NodeType, ...]:
        """Types of the ends."""
        return tuple(dict.fromkeys((self.edge_type[0], self.edge_type[2])))

    def loader(self, kind: type[LinkNeighborLoader], source: ArrayInput, num_neighbors: list[int], **how: Any) -> LinkNeighborLoader:
        """The loader of all edges that stayed, without these and their reverses in their own batches.

        Args:
            kind: its class. source: features. num_neighbors, how: as of a loader.
        """
        return kind(source, num_neighbors, **all_edges(source.graph, self.edge_type, self.reverses), **self._of_batches(), **how)

    @abstractmethod
    def _of_batches(self) -> dict[str, Any]:
        """What else a loader is told."""

    @abstractmethod
    def outputs(self, model: Any, rows: dict[NodeType, Tensor], batch: Any) -> tuple[Tensor, Tensor]:
        """What the task takes of a batch, (outputs[n, ...], labels[n, ...]). `rows`: of the seeds, by node type."""

    @abstractmethod
    def of_pairs(self, model: Any, sources: Tensor, targets: Tensor) -> Tensor:
        """float[n, k]: what the model says of pairs, by float[n, width] rows of either end."""

    @property
    @abstractmethod
    def most_nodes(self) -> int:
        """Nodes, at most, whose rows an evaluation needs."""

    @abstractmethod
    def nodes(self, graph: Graph, ranks: Ranks) -> dict[NodeType, np.ndarray]:
        """Node type -> int64[n], the nodes whose rows an evaluation needs, ascending."""

    @abstractmethod
    def score(self, model: Any, graph: Graph, part: str, rows: Rows, task: Task, ranks: Ranks) -> float:
        """The metric of val or test, by a model that is in evaluation mode; nan where it has no edges."""

    def _pieces(self, part: str, size: int, ranks: Ranks) -> Iterator[tuple[int, slice]]:
        """This process's share of the edges of a part: the number of each piece, and which they are."""
        count = self.counts[part]
        for number, first in list(enumerate(range(0, count, size)))[ranks.place :: ranks.num_ranks]:
            yield number, slice(first, min(first + size, count))


def ends_of(store: HasLinks, edge_type: EdgeType) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The ends of val and test; where none were held out, none: to apply a model it is enough to know the type."""
    nothing = np.empty(0, np.int64)
    ends: dict[str, tuple[np.ndarray, np.ndarray]] = {part: (nothing, nothing) for part in PARTS}
    for part in ends.keys() & store.link_parts(edge_type):
        ends[part] = store.link_ends(part, edge_type)
    return ends


def rows_of(known: tuple[np.ndarray, np.ndarray], nodes: np.ndarray) -> np.ndarray:
    """The rows of int64[...] nodes, which are all known."""
    ids, rows = known
    places = nodes if ids.size and ids[-1] == ids.size - 1 else np.searchsorted(ids, nodes)
    return rows[places]
