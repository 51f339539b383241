"""Forecast of an ingestion, before it starts: memory, disk space, time.

In: the tables and the budget. Out: a `Forecast`, right to the order of magnitude. A table that does not know its number of rows before it
is read gives an estimate (`Table.expected_rows`), and the forecast says "about"; tables without an estimate are left out and named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.records import EdgeType, NodeType, index_dtype
from penstock.sources.source import DST, SRC, EdgeTable, NodeTable, Table
from penstock.store.budget import Budget, format_bytes
from penstock.store.format import DTYPES, row_bytes
from penstock.store.ingestion.fields import stored_dtype
from penstock.store.ingestion.options import IngestOptions

READ_BYTES_PER_S = 1e9
WRITE_BYTES_PER_S = 800e6
EDGE_PASS_S = 10e-9
MAP_ID_S = 50e-9
PARSE_VALUE_S = 70e-9
"""Rates on two cores of a 2020s server with a disk of 1.5 GB/s; the forecast of time is a guess of the right order."""
EDGES_PER_NODE = 16
"""Guess, if the number of nodes follows only from the edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Forecast of an ingestion.

    Attributes:
        memory: the bound and how it is divided, in words.
        memory_bytes: the bound.
        num_edges: most edges that will be stored, of tables with a known or estimated number of rows.
        disk_bytes: size of the finished store.
        scratch_bytes: disk space beside it while it is made.
        certain_bytes: least size of the store: what given numbers of nodes take, without any edges.
        seconds: a rough estimate.
        spills: whether edges are spilled to disk.
        is_about: whether numbers of rows are estimates.
        unknown: tables left out because their number of rows is not even estimated.
    """

    memory: str
    memory_bytes: int
    num_edges: int
    disk_bytes: int
    scratch_bytes: int
    seconds: float
    spills: bool
    certain_bytes: int = 0
    is_about: bool = False
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        route = "through the disk, in buckets" if self.spills else "in memory"
        about = "about " if self.is_about else ""
        num_edges = _rounded(self.num_edges) if self.is_about else self.num_edges
        sizes = f"{format_bytes(self.disk_bytes)} for the store, {format_bytes(self.scratch_bytes)} beside it while it is made"
        lines = [
            f"memory  {self.memory}",
            f"disk    {about}{sizes}",
            f"time    about {_duration(self.seconds)}: {about}{num_edges:,} edges, placed {route}",
        ]
        if self.unknown:
            lines.append(f"        more for {', '.join(self.unknown)}: how many rows they have only reading tells")
        return "\n".join(lines)


def _rounded(count: int) -> int:
    """Round to two digits: an estimate must not look exact."""
    return round(count, 2 - len(str(count)))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def make_forecast(
    nodes: Mapping[NodeType, NodeTable],
    edges: Mapping[EdgeType, EdgeTable],
    mapped: frozenset[NodeType],
    options: IngestOptions,
    budget: Budget,
) -> Forecast:
    """Forecast an ingestion."""
    counts = {name: _expected_nodes(name, table, edges) for name, table in nodes.items()}
    disk_bytes = 0
    scratch_bytes = 0
    certain_bytes = 0
    seconds = 0.0
    num_edges = 0
    spills = False
    for name, node_table in nodes.items():
        bytes_per_row = _fields_bytes(node_table.table, options) + (16 if name in mapped else 0)
        disk_bytes += counts[name] * bytes_per_row
        certain_bytes += (node_table.num_nodes or 0) * _fields_bytes(node_table.table, options)
        seconds += counts[name] * bytes_per_row / READ_BYTES_PER_S + _parse_s(node_table.table, counts[name])
    for edge_type, edge_table in edges.items():
        num_rows = edge_table.table.expected_rows or 0
        is_mapped = edge_type[0] in mapped or edge_type[2] in mapped
        num_records = num_rows * (2 if options.undirected and edge_type[0] == edge_type[2] else 1)
        record_bytes = _record_bytes(edge_table.table, num_rows, counts[edge_type[0]], options)
        lists_bytes, degrees_bytes = num_records * record_bytes, 8 * counts[edge_type[2]]
        certain_bytes += 8 * (nodes[edge_type[2]].num_nodes or 0)
        spills_here = lists_bytes + degrees_bytes > budget.work_bytes
        disk_bytes += lists_bytes + degrees_bytes
        scratch_bytes += (num_records * (record_bytes + 4) if spills_here else 0) + (8 * num_rows if is_mapped else 0)
        table_bytes = num_rows * sum(column.row_bytes for column in edge_table.table.columns.values())
        seconds += 2 * table_bytes / READ_BYTES_PER_S + num_records * EDGE_PASS_S * (3 if spills_here else 2)
        seconds += 2 * _parse_s(edge_table.table, num_rows) + num_rows * 2 * MAP_ID_S * is_mapped
        spills, num_edges = spills or spills_here, num_edges + num_records
    return Forecast(
        memory=budget.describe(),
        memory_bytes=budget.bound_bytes,
        num_edges=num_edges,
        disk_bytes=disk_bytes,
        scratch_bytes=scratch_bytes,
        certain_bytes=certain_bytes,
        seconds=seconds + (disk_bytes + 2 * scratch_bytes) / WRITE_BYTES_PER_S,
        spills=spills,
        is_about=_is_about(nodes, edges),
        unknown=_unknown(nodes, edges),
    )


def _expected_nodes(name: NodeType, nodes: NodeTable, edges: Mapping[EdgeType, EdgeTable]) -> int:
    """Return the number of nodes of a type; if it follows only from the edges, guess it from their number."""
    if nodes.num_nodes is not None:
        return nodes.num_nodes
    if nodes.table is not None and nodes.table.columns:
        return nodes.table.expected_rows or 0
    return max([(each.table.expected_rows or 0) // EDGES_PER_NODE for ends, each in edges.items() if name in (ends[0], ends[2])], default=0)


def _is_about(nodes: Mapping[NodeType, NodeTable], edges: Mapping[EdgeType, EdgeTable]) -> bool:
    """Whether rows are estimated. Guessed numbers of nodes do not count: degrees are a small part beside the edges."""
    tables = [each.table for each in edges.values()]
    tables += [each.table for each in nodes.values() if each.num_nodes is None and each.table is not None and each.table.columns]
    return any(table.num_rows is None for table in tables)


def _unknown(nodes: Mapping[NodeType, NodeTable], edges: Mapping[EdgeType, EdgeTable]) -> tuple[str, ...]:
    tables = {f"nodes {name}": each.table for name, each in nodes.items() if each.table is not None and each.num_nodes is None}
    tables |= {f"edges {'-'.join(edge_type)}": each.table for edge_type, each in edges.items()}
    return tuple(name for name, table in tables.items() if table.columns and table.expected_rows is None)


def _parse_s(table: Table | None, num_rows: int) -> float:
    """Return the seconds for parsing the text columns of a table once."""
    parsed = [column for column in table.columns.values() if column.is_parsed] if table is not None else []
    return num_rows * PARSE_VALUE_S * sum(math.prod(column.row_shape) for column in parsed)


def _fields_bytes(table: Table | None, options: IngestOptions) -> int:
    if table is None:
        return 0
    columns = [column for name, column in table.columns.items() if name not in (SRC, DST, "id")]
    return sum(row_bytes(DTYPES[stored_dtype(column, options, table.name)], column.row_shape) for column in columns)


def _record_bytes(table: Table, num_rows: int, num_src: int, options: IngestOptions) -> int:
    fields_bytes = _fields_bytes(table, options)
    keeps_ids = options.edge_ids or (options.edge_ids is None and fields_bytes > 0)
    source_bytes, number_bytes = (np.dtype(index_dtype(most)).itemsize for most in (num_src, num_rows))
    return source_bytes + number_bytes * bool(keeps_ids) + fields_bytes + (options.duplicates == "drop")
