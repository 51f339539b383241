"""The tables that a part serves to other processes: rows, numbered as in the whole graph.

In: a part. Out: tables for the fields of each node and edge type; for each edge type, its neighbours and which pairs of nodes it joins; and
draws by each field that may be a weight or a time. Invariant: every part of a partition has the same tables in the same order, so that a
number identifies a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.exchange import wire
from penstock.exchange.draws import DrawTable, OwnLists, SumsTier
from penstock.exchange.pairs import MOST_PAIRS, PairShares, PairTier, PartLists
from penstock.partition import Part, Shares
from penstock.records import CSC, EdgeType, Graph, NodeType, index_dtype
from penstock.sample.times import Timestamps, with_times
from penstock.sample.weights import Weights, decoded, with_weights
from penstock.store.format import BFLOAT16, ArraySpec
from penstock.store.tiers import Elements, MappedTier, Tier

NEIGHBORS = "neighbors"
NUMBERS = "numbers"
FIELDS = "fields"
PAIRS = "pairs"

Key = tuple[str, NodeType | EdgeType]
"""(FIELDS, type): the fields of its nodes or edges; (NEIGHBORS, edge type): the sources of its edges; (NUMBERS, edge type): the user's
numbers of its edges; (PAIRS, edge type): which pairs of nodes are edges; (`sums_of`, edge type): running sums of a field within each list.
The row of an edge is its position."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind.

    Attributes:
        key: identifies the table.
        arrays: this part's rows, per field. shares: which part has which rows of the whole graph.
        fields: name -> description, in the order of the arrays; empty for lists.
        make_tier: makes the tier, for rows that are computed rather than stored.
    """

    key: Key
    arrays: list[np.ndarray]
    shares: Shares
    fields: dict[str, ArraySpec]
    make_tier: Callable[[], Tier] | None = None

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Integer type of row numbers when they are sent."""
        return np.dtype(index_dtype(self.shares.num_rows)).newbyteorder("<")

    def tier(self) -> Tier:
        """Return a new tier of this part's rows, by their numbers in the part; with its own counts."""
        return MappedTier(self.arrays, "own part") if self.make_tier is None else self.make_tier()

    def answer(self, rows: np.ndarray, part: int) -> Iterator[list[np.ndarray]]:
        """Yield rows of this part, by their numbers in the whole graph, in pieces (see `wire`): per field uint8[n * row_bytes]. The next
        piece reuses the memory."""
        if rows.size and not (int(rows.min()) >= 0 and int(rows.max()) < self.shares.num_rows):
            raise UsageError(f"rows from {rows.min()} to {rows.max()} were asked for, and there are {self.shares.num_rows}")
        local, tier = self.shares.local(rows, part), self.tier()
        step = wire.rows_of_a_piece(sum(tier.row_bytes))
        outs, places = [np.empty(min(step, rows.size) * width, np.uint8) for width in tier.row_bytes], np.arange(min(step, rows.size))
        for first in range(0, rows.size, step):
            piece = local[first : first + step]
            tier.submit(piece, outs, places[: piece.size]).wait()
            yield [out[: piece.size * width] for out, width in zip(outs, tier.row_bytes, strict=True)]


def tables_of(part: Part, tiers: Mapping[Key, Tier]) -> list[Table | DrawTable]:
    """Make the tables of a part. `tiers`: read the tables from all parts; used at the first request for draws by times of sources."""
    tables, all_nodes = list[Table | DrawTable](), part.manifest.nodes
    for node_type, nodes in all_nodes.items():
        if nodes.fields:
            tables.append(Table((FIELDS, node_type), part.rows(nodes.fields), part.books[node_type], nodes.fields))
        for name in _whole_numbers(nodes.fields):
            tables.append(Table((numbers_in(name), node_type), [part.map(nodes.fields[name])], part.books[node_type], {}))
    for edge_type, edges in part.manifest.edges.items():
        shares, neighbors = part.shares(edge_type), part.map(edges.indices)
        tables.append(Table((NEIGHBORS, edge_type), [neighbors], shares, {}))
        pairs = PairShares(shares.book, all_nodes[edge_type[0]].num_nodes)
        if pairs.num_rows < MOST_PAIRS:
            lists = PartLists(shares.list_ptr, neighbors, pairs.num_sources)
            tables.append(Table((PAIRS, edge_type), [], pairs, {}, partial(PairTier, lists)))
        if edges.edge_id is not None:
            tables.append(Table((NUMBERS, edge_type), [part.map(edges.edge_id)], shares, {}))
        if edges.fields:
            tables.append(Table((FIELDS, edge_type), part.rows(edges.fields), shares, edges.fields))
        own = partial(OwnLists, edge_type, pairs.num_sources, shares, part.number, neighbors)
        for name in (name for name, spec in edges.fields.items() if len(spec.shape) == 1):
            weighed = own(partial(_weigh, part, edge_type, name))
            tables.append(Table((sums_of(name), edge_type), [], shares, {}, partial(SumsTier, weighed)))
            tables.append(DrawTable((draws_by(name), edge_type), weighed))
        for name in _whole_numbers(edges.fields):
            tables.append(Table((numbers_in(name), edge_type), [part.map(edges.fields[name])], shares, {}))
            tables.append(DrawTable((draws_in_time(name), edge_type), own(partial(_put_in_order, part, edge_type, name))))
        for name, spec in _whole_numbers(all_nodes[edge_type[0]].fields).items():
            prepare = partial(_put_in_order_of_sources, part, edge_type, name, spec.storage_dtype, tiers)
            tables.append(DrawTable((draws_in_time_of_sources(name), edge_type), own(prepare)))
    return tables


def _whole_numbers(fields: dict[str, ArraySpec]) -> dict[str, ArraySpec]:
    """Return the fields that may be times: one integer per row."""
    return {name: spec for name, spec in fields.items() if len(spec.shape) == 1 and np.dtype(spec.storage_dtype).kind in "iu"}


def _weigh(part: Part, edge_type: EdgeType, name: str, csc: CSC) -> CSC:
    """Return the lists of a part with running sums of an edge field."""
    edges = part.manifest.edges[edge_type]
    values = decoded(part.map(edges.fields[name]), edges.fields[name].dtype == BFLOAT16)
    weights = {edge_type: Weights(values, name, by_position=True, indptr=part.map(edges.indptr))}
    return with_weights(_graph(part, edge_type, csc), weights).adjacency[edge_type]


def _put_in_order(part: Part, edge_type: EdgeType, name: str, csc: CSC) -> CSC:
    """Return the lists of a part with their order by an edge field."""
    values = part.map(part.manifest.edges[edge_type].fields[name])
    return with_times(_graph(part, edge_type, csc), Timestamps({}, {edge_type: values}, name, by_position=True)).adjacency[edge_type]


def _put_in_order_of_sources(part: Part, edge_type: EdgeType, name: str, dtype: Any, tiers: Mapping[Key, Tier], csc: CSC) -> CSC:
    """Return the lists of a part with their order by a field of their sources, which is read from all parts."""
    values = Elements(tiers[numbers_in(name), edge_type[0]], dtype)[:]
    return with_times(_graph(part, edge_type, csc), Timestamps({edge_type[0]: values}, {}, name)).adjacency[edge_type]


def _graph(part: Part, edge_type: EdgeType, csc: CSC) -> Graph:
    """Return a graph with all nodes and the lists of one edge type."""
    return Graph({t: nodes.num_nodes for t, nodes in part.manifest.nodes.items()}, {edge_type: csc}, part.manifest.is_homogeneous)


def numbers_in(name: str) -> str:
    """Return the name of the table of a single integer field."""
    return f"numbers in {name}"


def sums_of(name: str) -> str:
    """Return the name of the table of running sums of an edge field."""
    return f"sums of {name}"


def draws_by(name: str) -> str:
    """Return the name of the table of draws by weight, for an edge field."""
    return f"draws by {name}"


def draws_in_time(name: str) -> str:
    """Return the name of the table of draws by time, for an edge field."""
    return f"draws in time by {name}"


def draws_in_time_of_sources(name: str) -> str:
    """Return the name of the table of draws by time, for a field of the sources."""
    return f"draws in time by {name} of sources"
