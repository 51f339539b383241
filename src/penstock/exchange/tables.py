"""What a part gives to the others: tables of rows, numbered as in the whole graph.

In: a part. Out: for each node type with fields a table of its rows, for each edge type one of its neighbour lists. Invariant: every part
of a partition has the same tables in the same order, so that a number says which is meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.partition import Part, Shares
from penstock.records import EdgeType, NodeType, index_dtype
from penstock.store.format import ArraySpec
from penstock.store.tiers import MappedTier, Tier


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind.

    Attributes:
        key: node type: the fields of its nodes; edge type: its neighbours, at their positions.
        arrays: this part's rows, per field. shares: whose the rows of the whole graph are.
        fields: name -> what is known of it, in the order of the arrays; empty for lists.
    """

    key: NodeType | EdgeType
    arrays: list[np.ndarray]
    shares: Shares
    fields: dict[str, ArraySpec]

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Of row numbers on their way."""
        return np.dtype(index_dtype(self.shares.num_rows)).newbyteorder("<")

    def tier(self) -> Tier:
        """This part's rows, by their numbers in it; with counts of its own."""
        return MappedTier(self.arrays, "own part")

    def read(self, rows: np.ndarray, part: int) -> list[np.ndarray]:
        """Per field uint8[n * row_bytes]: rows of this part, by their numbers in the whole graph."""
        if rows.size and not (int(rows.min()) >= 0 and int(rows.max()) < self.shares.num_rows):
            raise UsageError(f"rows from {rows.min()} to {rows.max()} were asked for, and there are {self.shares.num_rows}")
        tier, places = self.tier(), np.arange(rows.size)
        outs = [np.empty(rows.size * width, np.uint8) for width in tier.row_bytes]
        tier.submit(self.shares.local(rows, part), outs, places).wait()
        return outs


def tables_of(part: Part) -> list[Table]:
    """Make the tables of a part."""
    tables = []
    for node_type, nodes in part.manifest.nodes.items():
        if nodes.fields:
            tables.append(Table(node_type, [*part.rows(node_type).values()], part.books[node_type], nodes.fields))
    for edge_type in part.manifest.edges:
        indices, shares = part.lists(edge_type)
        tables.append(Table(edge_type, [indices], shares, {}))
    return tables
