"""What an ingestion will take, told before it starts: memory, disk, time.

In: the tables and the budget. Out: a `Forecast`. Rows that only reading tells are left out, and that is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.records import EdgeType, NodeType
from penstock.sources.source import DST, SRC, EdgeTable, NodeTable, Table
from penstock.store.budget import Budget, format_bytes
from penstock.store.edges import EdgeRules
from penstock.store.fields import FieldRules, stored_dtype
from penstock.store.format import DTYPES, MAX_INT32, row_bytes

READ_BYTES_PER_S = 1e9
WRITE_BYTES_PER_S = 800e6
EDGE_PASS_S = 10e-9
MAP_ID_S = 50e-9
"""Rates on two cores of a 2020s server with a disk of 1.5 GB/s; the forecast of time is a guess of the right order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What an ingestion will take.

    Attributes:
        memory: the sum that makes the bound, written out.
        memory_bytes: the bound.
        num_edges: that will be stored at most, of the tables that know.
        disk_bytes: of the finished store.
        scratch_bytes: beside it, while it is made.
        seconds: a guess.
        spills: whether edges go through the disk.
        unknown: tables whose rows only reading tells.
    """

    memory: str
    memory_bytes: int
    num_edges: int
    disk_bytes: int
    scratch_bytes: int
    seconds: float
    spills: bool
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        route = "through the disk, in buckets" if self.spills else "in memory"
        lines = [
            f"memory  {self.memory}",
            f"disk    {format_bytes(self.disk_bytes)} for the store, {format_bytes(self.scratch_bytes)} beside it while it is made",
            f"time    about {_duration(self.seconds)}: {self.num_edges:,} edges, placed {route}",
        ]
        if self.unknown:
            lines.append(f"        more for {', '.join(self.unknown)}: how many rows they have only reading tells")
        return "\n".join(lines)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def make_forecast(
    nodes: Mapping[NodeType, NodeTable],
    edges: Mapping[EdgeType, EdgeTable],
    mapped: frozenset[NodeType],
    rules: EdgeRules,
    field_rules: FieldRules,
    budget: Budget,
) -> Forecast:
    """Forecast an ingestion."""
    counts = {name: _num_nodes(table) for name, table in nodes.items()}
    unknown, disk_bytes, scratch_bytes, seconds, num_edges, spills = [], 0, 0, 0.0, 0, False
    for name, node_table in nodes.items():
        if node_table.table is not None and node_table.table.num_rows is None:
            unknown.append(f"nodes {name}")
        bytes_per_row = _fields_bytes(node_table.table, field_rules) + (16 if name in mapped else 0)
        disk_bytes += (counts[name] or 0) * bytes_per_row
        seconds += (counts[name] or 0) * bytes_per_row / READ_BYTES_PER_S
    for edge_type, edge_table in edges.items():
        num_rows = edge_table.table.num_rows
        if num_rows is None:
            unknown.append(f"edges {'-'.join(edge_type)}")
            continue
        is_mapped = edge_type[0] in mapped or edge_type[2] in mapped
        num_records = num_rows * (2 if rules.undirected and edge_type[0] == edge_type[2] else 1)
        record_bytes = _record_bytes(edge_table.table, num_rows, counts[edge_type[0]], rules, field_rules)
        lists_bytes, degrees_bytes = num_records * record_bytes, 8 * (counts[edge_type[2]] or 0)
        spills_here = lists_bytes + degrees_bytes > budget.work_bytes
        disk_bytes += lists_bytes + degrees_bytes
        scratch_bytes += (num_records * (record_bytes + 4) if spills_here else 0) + (8 * num_rows if is_mapped else 0)
        table_bytes = num_rows * sum(column.row_bytes for column in edge_table.table.columns.values())
        seconds += 2 * table_bytes / READ_BYTES_PER_S + num_records * EDGE_PASS_S * (3 if spills_here else 2)
        seconds += num_rows * 2 * MAP_ID_S * is_mapped
        spills, num_edges = spills or spills_here, num_edges + num_records
    return Forecast(
        memory=budget.describe(),
        memory_bytes=budget.bound_bytes,
        num_edges=num_edges,
        disk_bytes=disk_bytes,
        scratch_bytes=scratch_bytes,
        seconds=seconds + (disk_bytes + 2 * scratch_bytes) / WRITE_BYTES_PER_S,
        spills=spills,
        unknown=tuple(unknown),
    )


def _num_nodes(nodes: NodeTable) -> int | None:
    return nodes.num_nodes if nodes.num_nodes is not None or nodes.table is None else nodes.table.num_rows


def _fields_bytes(table: Table | None, rules: FieldRules) -> int:
    if table is None:
        return 0
    columns = [column for name, column in table.columns.items() if name not in (SRC, DST, "id")]
    return sum(row_bytes(DTYPES[stored_dtype(column, rules, "the table")], column.row_shape) for column in columns)


def _record_bytes(table: Table, num_rows: int, num_src: int | None, rules: EdgeRules, field_rules: FieldRules) -> int:
    fields_bytes = _fields_bytes(table, field_rules)
    keeps_ids = rules.keep_edge_ids or (rules.keep_edge_ids is None and fields_bytes > 0)
    return (
        (8 if num_src is not None and num_src > MAX_INT32 else 4)
        + (8 if num_rows > MAX_INT32 else 4) * bool(keeps_ids)
        + fields_bytes
        + rules.drop_duplicates
    )
