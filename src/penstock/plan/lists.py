"""Which neighbour lists are kept, within a share of the edges, a number of lists or a number of bytes; alone, or by one budget with rows.

In: what each list and each row is worth. Out: nodes whose lists are kept, per edge type, and rows kept, per node type. Invariant: what is
kept, with the tables that find it, fits the capacity. One ranking goes over the lists of all edge types.
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
"""A capacity of lists that says: one budget for lists and rows, divided by what each saves."""


def plan_lists(
    text: str, values: Mapping[EdgeType, np.ndarray], adjacency: Mapping[EdgeType, CSC], layout: str
) -> dict[EdgeType, np.ndarray]:
    """Choose the lists that are kept.

    Args:
        text: "10%" of the edges, "5000 lists", or bytes, which cover lists and tables.
        values: edge type -> [num_dst], what each list is worth per edge in it.
        adjacency: their lengths.
        layout: how kept lists are found: "direct" or "prefix".
    Returns:
        edge type -> nodes, best first; a list without edges is never kept.
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
                f"{argument(name, text)} does not hold the table alone: {table_bytes(adjacency):,} bytes for lists of "
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
        list_visits, row_visits: edge type and node type -> visits in a while.
        row_bytes: node type -> bytes of a row.
        adjacency, layout: as in `plan_lists`.
        seconds_per_list_hit, seconds_per_row_hit: what a hit saves, measured; of all lists of an edge type, or [num_dst], one by one.
    Returns:
        (edge type -> nodes whose lists are kept, node type -> rows kept), best first.
    Cost: 4 bytes per list and row, and that of `take_best`.
    """
    kind, amount = parse_capacity(text)
    tables = table_bytes(adjacency) + STATIC_DIRECTORY_BYTES_PER_NODE * sum(visits.size for visits in row_visits.values())
    if kind == "share":
        whole = sum(csc.indices.nbytes for csc in adjacency.values()) + sum(row_visits[t].size * row_bytes[t] for t in row_visits)
        budget = int(amount * whole)
    else:
        budget = int(amount) - tables
    if amount and budget < 0:
        raise UsageError(f"{argument('cache', text)} does not hold the tables of rows and lists alone: {tables:,} bytes; give more, or 0")
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
    """int64[n]: what keeping the lists of some nodes takes, beyond the table; 0 for a list without edges. `unit`: bytes, edges or lists."""
    lengths = csc.degrees(nodes)
    if unit == "bytes":
        return lengths * csc.indices.dtype.itemsize + (8 if layout == "prefix" else 0) * (lengths > 0)
    return lengths if unit == "edges" else (lengths > 0).astype(np.int64)


def table_bytes(adjacency: Mapping[EdgeType, CSC]) -> int:
    """Bytes of the tables that find kept lists: one entry per node and edge type, of 8 bytes where 4 might not do."""
    widths = {e: 4 if max(csc.num_edges, csc.num_dst) < 1 << 31 else 8 for e, csc in adjacency.items()}
    return sum(csc.num_dst * widths[e] + 8 for e, csc in adjacency.items() if csc.num_edges)  # 8: the end of the last list of a prefix
