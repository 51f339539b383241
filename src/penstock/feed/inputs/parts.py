"""A partition that was joined, as an input of a loader: this process's part is here, the rest is read from whoever has it.

In: a `PartitionedGraph`. Out: a graph whose lists, and tables whose rows, lie with their owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from penstock.exchange import PartitionedGraph
from penstock.exchange.tables import FIELDS, NEIGHBORS, draws_by, draws_in_time, draws_in_time_of_sources, numbers_in, sums_of
from penstock.feed.fields import PYG_EDGE_NAMES
from penstock.feed.inputs.arrays import ArrayInput
from penstock.feed.inputs.base import no_such_label
from penstock.feed.inputs.held_out import links_held_out
from penstock.feed.links import ChosenLinks, EdgeEnds, Ends
from penstock.gather import RowKind, TieredTable
from penstock.partition import Book
from penstock.records import EdgeType, Graph, NodeType
from penstock.sample.times import PYG_NAMES, Timestamps, choose_times, times_are_bfloat16
from penstock.sample.weights import choose_weights, label_of, weights_are_none
from penstock.store.fingerprint import fingerprint
from penstock.store.format import BFLOAT16, ArraySpec
from penstock.store.tiers import Elements


class PartsInput(ArrayInput):
    """See above. `split`: name of the split for seeds given as "train", "val" or "test"; None takes the only one."""

    def __init__(self, parts: PartitionedGraph, split: str | None = None) -> None:
        super().__init__(parts.graph(), {}, {}, lambda part, node_type: parts.part.split(part, split, node_type))
        self.parts = parts

    @property
    def books(self) -> Mapping[NodeType, Book]:
        """The books of the partition."""
        return self.parts.books

    def tables(self) -> dict[NodeType | EdgeType, TieredTable]:
        """Node or edge type -> its fields, read from their owners."""
        return {key: self._table(key) for what, key in self.parts.tables if what == FIELDS}

    def _table(self, key: NodeType | EdgeType) -> TieredTable:
        names, fields = PYG_EDGE_NAMES if isinstance(key, tuple) else {}, self.parts.tables[FIELDS, key].fields
        kinds = [RowKind(names.get(name, name), one.storage_dtype, one.shape[1:], one.dtype == BFLOAT16) for name, one in fields.items()]
        return TieredTable(self.parts.tiers[FIELDS, key], kinds)

    def own_rows(self) -> list[np.ndarray]:
        """Lists, and those fields that batches have."""
        keys = [*((NEIGHBORS, e) for e in self.graph.adjacency), *((FIELDS, key) for key in self.tables())]
        return [array for key in keys for array in self.parts.tables[key].arrays]

    def all_links(self, edge_type: EdgeType) -> tuple[Ends, Elements | None]:
        """All edges in CSC order; for each batch, ends and numbers of its links are read from their owners."""
        csc = self.graph.adjacency[edge_type]
        return EdgeEnds(edge_type, csc, self.graph.num_nodes[edge_type[0]], self.parts.elements(NEIGHBORS, edge_type)), csc.numbers

    def links_by_name(self, part: str, edge_type: EdgeType | None) -> ChosenLinks:
        """Those that were held out of the whole graph, which every part has; "train": all edges of their type."""
        return links_held_out(self, self.parts.part, part, edge_type)

    def edge_field(self, edge_type: EdgeType, name: str) -> Callable[[np.ndarray], torch.Tensor]:
        """Read with the other fields of the edges."""
        read, kind = self.edge_rows(edge_type, name)

        def as_tensor(numbers: np.ndarray) -> torch.Tensor:
            rows = torch.from_numpy(read(numbers))
            return rows.view(torch.bfloat16) if kind.is_bfloat16 else rows

        return as_tensor

    def edge_rows(self, edge_type: EdgeType, name: str) -> tuple[Callable[[np.ndarray], np.ndarray], RowKind]:
        """What reads a field of int64[n] edges as it is stored, from their owners, and what that is; MissingFieldError."""
        table = self._table(edge_type) if (FIELDS, edge_type) in self.parts.tables else None
        kinds = {} if table is None else {kind.name: number for number, kind in enumerate(table.kinds)}
        if table is None or name not in kinds:
            raise no_such_label(edge_type, name, kinds)
        number = kinds[name]
        return lambda numbers: table.submit(numbers, are_distinct=False).wait()[number], table.kinds[number]

    def weighted(self, name: str) -> Graph:
        """Those who have the lists draw of them."""
        fields = {e: edges.fields for e, edges in self.parts.part.manifest.edges.items()}
        names = {e: dict(zip(known, known, strict=True)) for e, known in fields.items()}
        adjacency = dict(self.graph.adjacency)
        for edge_type, stored in choose_weights(names, name, str(self.parts.part.path)).items():
            spec, csc = fields[edge_type][stored], adjacency[edge_type]
            if len(spec.shape) > 1:
                raise weights_are_none(label_of(name, edge_type), csc.num_edges, spec.storage_dtype, (csc.num_edges, *spec.shape[1:]))
            sums = Elements(self.parts.tiers[sums_of(stored), edge_type], np.int64)
            adjacency[edge_type] = replace(csc, sums=sums, draws=self.parts.draws(draws_by(stored), edge_type))
        return replace(self.graph, adjacency=adjacency)

    def times(self, name: str) -> Timestamps:
        """The times of that name, of nodes or of edges, the latter in CSC order; read where they are asked for."""
        (of_nodes, of_edges), manifest = self._choose_times(name), self.parts.part.manifest
        nodes = {t: self._numbers(t, manifest.nodes[t].fields[name], name, manifest.nodes[t].num_nodes) for t in of_nodes}
        edges = {e: self._numbers(e, manifest.edges[e].fields[each], each, manifest.edges[e].num_edges) for e, each in of_edges.items()}
        return Timestamps(nodes, edges, name, by_position=True)

    def timed(self, graph: Graph, times: Timestamps) -> Graph:
        """Those who have the lists draw of them."""
        (of_nodes, of_edges), adjacency = self._choose_times(times.name), dict(graph.adjacency)
        for edge_type, csc in graph.adjacency.items():
            if edge_type in of_edges:
                what, given = draws_in_time(of_edges[edge_type]), times.of_edges[edge_type]
            elif edge_type[0] in of_nodes:
                what, given = draws_in_time_of_sources(times.name), times.of_nodes[edge_type[0]]
            else:
                continue
            adjacency[edge_type] = replace(csc, timed=fingerprint(given), draws=self.parts.draws(what, edge_type))
        return replace(graph, adjacency=adjacency)

    def _choose_times(self, name: str) -> tuple[list[NodeType], dict[EdgeType, str]]:
        """Return the types that have times of that name, and their fields."""
        part = self.parts.part
        nodes = {node_type: each.fields for node_type, each in part.manifest.nodes.items()}
        edges = {edge_type: each.fields for edge_type, each in part.manifest.edges.items()}
        of_nodes, of_edges = choose_times(nodes, edges, name, str(part.path), PYG_NAMES)
        specs = [*(nodes[t][name] for t in of_nodes), *(edges[e][stored] for e, stored in of_edges.items())]
        if any(spec.dtype == BFLOAT16 for spec in specs):
            raise times_are_bfloat16(part.path, name)
        return of_nodes, of_edges

    def _numbers(self, key: NodeType | EdgeType, spec: ArraySpec, stored: str, count: int) -> np.ndarray | Elements:
        """The values of a field of whole numbers; of others what has their shape and dtype, by which they are refused."""
        if (numbers_in(stored), key) in self.parts.tiers:
            return self.parts.elements(numbers_in(stored), key)
        return np.broadcast_to(np.zeros((), spec.storage_dtype), (count, *spec.shape[1:]))
