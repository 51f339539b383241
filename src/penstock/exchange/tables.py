"""What a part gives to the others: tables of rows, numbered as in the whole graph.

In: a part. Out: a table for each type that has fields, for the neighbours of each edge type, and for which pairs of nodes it joins; and of
each field of edges that is one number, the running sums, and draws by it.
Invariant: every part of a partition has the same tables in the same order, so that a number says which is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.exchange import wire
from penstock.exchange.draws import DrawTable, SumsTier, WeighedLists
from penstock.exchange.pairs import MOST_PAIRS, PairShares, PairTier, PartLists
from penstock.partition import Part, Shares
from penstock.records import EdgeType, NodeType, index_dtype
from penstock.sample.weights import Weights, decoded
from penstock.store.format import ArraySpec
from penstock.store.tiers import MappedTier, Tier

NEIGHBORS, NUMBERS, FIELDS, PAIRS = "neighbors", "numbers", "fields", "pairs"

Key = tuple[str, NodeType | EdgeType]
"""(FIELDS, type): the fields of its nodes or edges; (NEIGHBORS, edge type): the sources of its edges; (NUMBERS, edge type): the user's
numbers of them; (PAIRS, edge type): which pairs of nodes are edges; (`sums_of`, edge type): running sums of a field within each list. Edges
are rows by their positions."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind.

    Attributes:
        key: which.
        arrays: this part's rows, per field. shares: whose the rows of the whole graph are.
        fields: name -> what is known of it, in the order of the arrays; empty for lists.
        make_tier: of rows that are worked out, from no array.
    """

    key: Key
    arrays: list[np.ndarray]
    shares: Shares
    fields: dict[str, ArraySpec]
    make_tier: Callable[[], Tier] | None = None

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Of row numbers on their way."""
        return np.dtype(index_dtype(self.shares.num_rows)).newbyteorder("<")

    def tier(self) -> Tier:
        """This part's rows, by their numbers in it; with counts of its own."""
        return MappedTier(self.arrays, "own part") if self.make_tier is None else self.make_tier()

    def answer(self, rows: np.ndarray, part: int) -> Iterator[list[np.ndarray]]:
        """Yield rows of this part, by their numbers in the whole graph, in pieces (see `wire`): per field uint8[n * row_bytes], memory that
        the next piece takes again."""
        if rows.size and not (int(rows.min()) >= 0 and int(rows.max()) < self.shares.num_rows):
            raise UsageError(f"rows from {rows.min()} to {rows.max()} were asked for, and there are {self.shares.num_rows}")
        local, tier = self.shares.local(rows, part), self.tier()
        step = wire.rows_of_a_piece(sum(tier.row_bytes))
        outs, places = [np.empty(min(step, rows.size) * width, np.uint8) for width in tier.row_bytes], np.arange(min(step, rows.size))
        for first in range(0, rows.size, step):
            piece = local[first : first + step]
            tier.submit(piece, outs, places[: piece.size]).wait()
            yield [out[: piece.size * width] for out, width in zip(outs, tier.row_bytes, strict=True)]


def tables_of(part: Part) -> list[Table | DrawTable]:
    """Make the tables of a part."""
    tables: list[Table | DrawTable] = []
    for node_type, nodes in part.manifest.nodes.items():
        if nodes.fields:
            tables.append(Table((FIELDS, node_type), part.rows(nodes.fields), part.books[node_type], nodes.fields))
    for edge_type, edges in part.manifest.edges.items():
        shares, neighbors = part.shares(edge_type), part.map(edges.indices)
        tables.append(Table((NEIGHBORS, edge_type), [neighbors], shares, {}))
        pairs = PairShares(shares.book, part.manifest.nodes[edge_type[0]].num_nodes)
        if pairs.num_rows < MOST_PAIRS:
            lists = PartLists(shares.list_ptr, neighbors, pairs.num_sources)
            tables.append(Table((PAIRS, edge_type), [], pairs, {}, partial(PairTier, lists)))
        if edges.edge_id is not None:
            tables.append(Table((NUMBERS, edge_type), [part.map(edges.edge_id)], shares, {}))
        if edges.fields:
            tables.append(Table((FIELDS, edge_type), part.rows(edges.fields), shares, edges.fields))
        for name in (name for name, spec in edges.fields.items() if len(spec.shape) == 1):
            weighed = WeighedLists(edge_type, pairs.num_sources, shares, part.number, neighbors, partial(_weights, part, edge_type, name))
            tables.append(Table((sums_of(name), edge_type), [], shares, {}, partial(SumsTier, weighed)))
            tables.append(DrawTable((draws_by(name), edge_type), weighed))
    return tables


def _weights(part: Part, edge_type: EdgeType, name: str) -> Weights:
    """Those of this part's edges."""
    edges = part.manifest.edges[edge_type]
    return Weights(decoded(edges.fields[name], part.map(edges.fields[name])), name, by_position=True, indptr=part.map(edges.indptr))


def sums_of(name: str) -> str:
    """What a table of running sums of a field of edges is called."""
    return f"sums of {name}"


def draws_by(name: str) -> str:
    """What a table of draws by a field of edges is called."""
    return f"draws by {name}"
