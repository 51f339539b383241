"""A partition that was joined, as an input of a loader: this process's part is here, the rest is read from whoever has it.

In: a `PartitionedGraph`. Out: a graph whose lists, and tables whose rows, lie with their owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NoReturn

import numpy as np
import torch

from penstock.errors import NotSupportedError
from penstock.exchange import PartitionedGraph
from penstock.exchange.tables import FIELDS, NEIGHBORS
from penstock.feed.inputs.arrays import PYG_EDGE_NAMES, ArrayInput
from penstock.feed.inputs.base import no_such_label
from penstock.feed.links import EdgeEnds, Ends
from penstock.gather import RowKind, TieredTable
from penstock.partition import Book
from penstock.records import EdgeType, Graph, NodeType
from penstock.sample.times import Timestamps
from penstock.sample.weights import choose_weights, label_of, weights_are_none
from penstock.store.format import BFLOAT16
from penstock.store.tiers import Elements


class PartsInput(ArrayInput):
    """See above. `split`: name of the split for seeds given as "train", "val" or "test"; None takes the only one."""

    def __init__(self, parts: PartitionedGraph, split: str | None = None) -> None:
        super().__init__(parts.graph(), {}, {}, lambda part, node_type: parts.part.split(part, split, node_type))
        self.parts = parts

    @property
    def books(self) -> Mapping[NodeType, Book]:
        """Those of the partition."""
        return self.parts.books

    def tables(self) -> dict[NodeType | EdgeType, TieredTable]:
        """Node or edge type -> its fields, read from their owners."""
        found = {}
        for (what, key), table in self.parts.tables.items():
            if what == FIELDS:
                names = PYG_EDGE_NAMES if isinstance(key, tuple) else {}
                kinds = [
                    RowKind(names.get(name, name), one.storage_dtype, one.shape[1:], one.dtype == BFLOAT16)
                    for name, one in table.fields.items()
                ]
                found[key] = TieredTable(self.parts.tiers[what, key], kinds)
        return found

    def all_links(self, edge_type: EdgeType) -> tuple[Ends, Elements | None]:
        """In CSC order; ends and numbers are read from their owners, for the links of a batch when it begins."""
        csc = self.graph.adjacency[edge_type]
        return EdgeEnds(edge_type, csc, self.graph.num_nodes[edge_type[0]], self.parts.elements(NEIGHBORS, edge_type)), csc.numbers

    def edge_field(self, edge_type: EdgeType, name: str) -> Callable[[np.ndarray], torch.Tensor]:
        """Read with the other fields of the edges."""
        table = self.tables().get(edge_type)
        kinds = {} if table is None else {kind.name: number for number, kind in enumerate(table.kinds)}
        if table is None or name not in kinds:
            raise no_such_label(edge_type, name, kinds)
        number = kinds[name]

        def read(numbers: np.ndarray) -> torch.Tensor:
            rows = torch.from_numpy(table.submit(numbers, are_distinct=False).wait()[number])
            return rows.view(torch.bfloat16) if table.kinds[number].is_bfloat16 else rows

        return read

    def weighted(self, name: str) -> Graph:
        """Those who have the lists draw of them."""
        fields = {e: edges.fields for e, edges in self.parts.part.manifest.edges.items()}
        adjacency = dict(self.graph.adjacency)
        for edge_type, stored in choose_weights(
            {e: {each: each for each in of} for e, of in fields.items()}, name, str(self.parts.part.path)
        ).items():
            spec, csc = fields[edge_type][stored], adjacency[edge_type]
            if len(spec.shape) > 1:
                raise weights_are_none(label_of(name, edge_type), csc.num_edges, spec.storage_dtype, (csc.num_edges, *spec.shape[1:]))
            adjacency[edge_type] = self.parts.weighed(edge_type, csc, stored)
        return replace(self.graph, adjacency=adjacency)

    def times(self, name: str) -> Timestamps:
        """Not here."""
        self._refuse(f"time_attr={name!r}", "leave it out")

    def _refuse(self, what: str, advice: str) -> NoReturn:
        raise NotSupportedError(f"{what}: each process of a partition has a part of the edges only; {advice}")
