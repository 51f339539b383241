"""Chooses the neighbour lists to keep, within a share of the edges, a number of lists or a number of bytes; alone, or within one budget
with rows.

In: the value of each list and each row. Out: per edge type, the nodes whose lists are kept; per node type, the kept rows. Invariant: the
kept lists and rows, with the tables that find them, fit the capacity. One ranking covers the lists of all edge types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.cache.hotness import blocks
from penstock.errors import UsageError, argument
from penstock.plan.capacity import STATIC_DIRECTORY_BYTES_PER_NODE, parse_capacity
from penstock.plan.knapsack import take_best
from penstock.records import CSC, EdgeType

SHARED = "shared"
"""Capacity of lists: one budget for lists and rows, divided by what a byte of each saves."""


def plan_lists(
    text: str, values: Mapping[EdgeType, np.ndarray], adjacency: Mapping[EdgeType, CSC], layout: str
) -> dict[EdgeType, np.ndarray]:
    """Choose the lists to keep.

    Args:
        text: "10%" of the edges, "5000 lists", or bytes, which cover lists and tables.
        values: edge type -> number[num_dst], value of each list per edge in it.
        adjacency: edge type -> lists; gives their lengths.
        layout: how kept lists are found: "direct" or "prefix".
    Returns:
        Edge type -> int32 or int64 ids of nodes, best first. A list without edges is never kept.
    Raises:
        UsageError: bytes that do not hold the tables, or as `parse_capacity`.
    Cost: that of `take_best`.
    """
    name = "neighbor_cache"
    kind, amount = parse_capacity(text, name, unit="lists")
    if kind == "share":
        unit, budget = "edges", int(amount * sum(csc.num_edges for csc in adjacency.values()))
    elif kind == "lists":
        unit, budget = "lists", int(amount)
    else:
        unit, budget = "bytes", int(amount) - table_bytes(adjacency)
        if amount and budget < 0:
            raise UsageError(
                f"{argument(name, text)} does not even hold the table: {table_bytes(adjacency):,} bytes for lists of "
                f"{sum(csc.num_dst for csc in adjacency.values()):,} nodes; give more, or 0"
            )
    keys = list(adjacency)

    def sizes_of(number: int, ids: np.ndarray) -> np.ndarray:
        return list_sizes(adjacency[keys[number]], ids, layout, unit)

    least = min((csc.indices.dtype.itemsize for csc in adjacency.values()), default=1) if unit == "bytes" else 1
    kept = take_best([values[e] for e in keys], sizes_of, max(budget, 0), worthless=-np.inf, least=least)
    return dict(zip(keys, kept, strict=True))


def plan_shared(
    text: str,
    list_visits: Mapping[EdgeType, np.ndarray],
    row_visits: Mapping[Any, np.ndarray],
    row_bytes: Mapping[Any, int],
    adjacency: Mapping[EdgeType, CSC],
    layout: str,
    *,
    seconds_per_list_hit: Mapping[EdgeType, float | np.ndarray],
    seconds_per_row_hit: Mapping[Any, float],
) -> tuple[dict[EdgeType, np.ndarray], dict[Any, np.ndarray]]:
    """Divide one capacity between neighbour lists and rows by what a byte of each saves (DUCATI).

    Args:
        text: bytes, which cover lists, rows and the tables of both; or a share of the bytes of all lists and rows.
        list_visits: edge type -> number[num_dst], visits of each list. row_visits: node type -> number[num_nodes], visits of each row.
        row_bytes: node type -> bytes of a row.
        adjacency, layout: as in `plan_lists`.
        seconds_per_list_hit, seconds_per_row_hit: measured seconds that a hit saves; for lists, one number per edge type, or [num_dst].
    Returns:
        (edge type -> ids of nodes whose lists are kept, node type -> ids of kept rows), best first.
    Raises:
        UsageError: bytes that do not hold the tables, or as `parse_capacity`.
    Cost: memory: 4 bytes per list and row, and that of `take_best`.
    """
    kind, amount = parse_capacity(text)
    tables = table_bytes(adjacency) + STATIC_DIRECTORY_BYTES_PER_NODE * sum(visits.size for visits in row_visits.values())
    if kind == "share":
        whole = sum(csc.indices.nbytes for csc in adjacency.values()) + sum(row_visits[t].size * row_bytes[t] for t in row_visits)
        budget = int(amount * whole)
    else:
        budget = int(amount) - tables
    if amount and budget < 0:
        raise UsageError(f"{argument('cache', text)} does not even hold the tables of rows and lists: {tables:,} bytes; give more, or 0")
    edge_types, node_types = list(adjacency), list(row_visits)
    densities = [_list_density(list_visits[e], adjacency[e], seconds_per_list_hit[e], layout) for e in edge_types]
    densities += [row_visits[t] * np.float32(seconds_per_row_hit[t] / max(row_bytes[t], 1)) for t in node_types]

    def sizes_of(number: int, ids: np.ndarray) -> np.ndarray:
        if number < len(edge_types):
            return list_sizes(adjacency[edge_types[number]], ids, layout)
        return np.full(ids.size, row_bytes[node_types[number - len(edge_types)]])

    kept = take_best(densities, sizes_of, max(budget, 0))
    return dict(zip(edge_types, kept, strict=False)), dict(zip(node_types, kept[len(edge_types) :], strict=True))


def _list_density(visits: np.ndarray, csc: CSC, seconds_per_hit: float | np.ndarray, layout: str) -> np.ndarray:
    """float32[num_dst]: seconds saved per byte of each list."""
    density = np.empty(csc.num_dst, np.float32)
    per_hit = np.broadcast_to(seconds_per_hit, csc.num_dst)
    for block in blocks(csc.num_dst):
        sizes = list_sizes(csc, np.arange(block.start, block.stop), layout)
        density[block] = visits[block] * per_hit[block] / np.maximum(sizes, 1)
    return density


def list_sizes(csc: CSC, nodes: np.ndarray, layout: str, unit: str = "bytes") -> np.ndarray:
    """int64[n]: size of each node's list in the cache, without the table, in `unit`: "bytes", "edges" or "lists". 0 if it has no edges."""
    lengths = csc.degrees(nodes)
    if unit == "bytes":
        return lengths * csc.indices.dtype.itemsize + (8 if layout == "prefix" else 0) * (lengths > 0)
    return lengths if unit == "edges" else (lengths > 0).astype(np.int64)


def table_bytes(adjacency: Mapping[EdgeType, CSC]) -> int:
    """Bytes of the tables that find kept lists: one entry per node and edge type, of 4 bytes, or 8 from 2**31 edges or nodes on."""
    widths = {e: 4 if max(csc.num_edges, csc.num_dst) < 1 << 31 else 8 for e, csc in adjacency.items()}
    return sum(csc.num_dst * widths[e] + 8 for e, csc in adjacency.items() if csc.num_edges)  # 8: the end of the last list of a prefix
