"""Which neighbour lists are kept, within a share of the edges, a number of lists or a number of bytes; alone, or by one budget with rows.

In: what each list and each row is worth. Out: nodes whose lists are kept, per edge type, and rows kept, per node type. Invariant: what is
kept, with the tables that find it, fits the capacity. One ranking goes over the lists of all edge types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.errors import UsageError, argument
from penstock.plan.capacity import STATIC_DIRECTORY_BYTES_PER_NODE, parse_capacity
from penstock.plan.knapsack import fill_by_rank, plan_split
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
        edge type -> int64 nodes, best first; a list without edges is never kept.
    Cost: O(n log n), 24 bytes per list.
    """
    name = "neighbor_cache"
    kind, amount = parse_capacity(text, name, unit="lists")
    lengths = {e: np.diff(csc.indptr) for e, csc in adjacency.items()}
    if kind == "share":
        sizes, budget = lengths, int(amount * sum(csc.num_edges for csc in adjacency.values()))
    elif kind == "lists":
        sizes, budget = {e: np.ones_like(each) for e, each in lengths.items()}, int(amount)
    else:
        sizes, budget = list_sizes(adjacency, layout), int(amount) - table_bytes(adjacency)
        if amount and budget < 0:
            raise UsageError(
                f"{argument(name, text)} does not hold the table alone: {table_bytes(adjacency):,} bytes for lists of "
                f"{sum(each.size for each in lengths.values()):,} nodes; give more, or 0"
            )
    keys = list(adjacency)
    whole_values, whole_sizes = _joined([values[e] for e in keys], np.float64), _joined([sizes[e] for e in keys], np.int64)
    ranking = np.argsort(-whole_values, kind="stable")
    ranking = ranking[_joined([lengths[e] for e in keys], np.int64)[ranking] > 0]
    kept = ranking[fill_by_rank(whole_sizes[ranking], max(budget, 0))]
    return _by_key(kept, {e: lengths[e].size for e in keys})


def plan_shared(
    text: str,
    list_visits: Mapping[EdgeType, np.ndarray],
    row_visits: Mapping[Any, np.ndarray],
    row_bytes: Mapping[Any, int],
    adjacency: Mapping[EdgeType, CSC],
    layout: str,
    *,
    seconds_per_list_hit: Mapping[EdgeType, float],
    seconds_per_row_hit: Mapping[Any, float],
) -> tuple[dict[EdgeType, np.ndarray], dict[Any, np.ndarray]]:
    """Divide one capacity between neighbour lists and rows by what a byte of each saves (DUCATI).

    Args:
        text: bytes, which cover lists, rows and the tables of both; or a share of the bytes of all lists and rows.
        list_visits, row_visits: edge type and node type -> visits in a while.
        row_bytes: node type -> bytes of a row.
        adjacency, layout: as in `plan_lists`.
        seconds_per_list_hit, seconds_per_row_hit: what a hit saves, measured.
    Returns:
        (edge type -> int64 nodes whose lists are kept, node type -> int64 rows kept), best first.
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
    sizes, edge_types, node_types = list_sizes(adjacency, layout), list(adjacency), list(row_visits)
    lists, rows = plan_split(
        _joined([list_visits[e] for e in edge_types], np.float64),
        _joined([sizes[e] for e in edge_types], np.int64),
        _joined([row_visits[t] for t in node_types], np.float64),
        _joined([np.full(row_visits[t].size, row_bytes[t]) for t in node_types], np.int64),
        seconds_per_list_hit=_joined([np.full(sizes[e].size, seconds_per_list_hit[e]) for e in edge_types], np.float64),
        seconds_per_row_hit=_joined([np.full(row_visits[t].size, seconds_per_row_hit[t]) for t in node_types], np.float64),
        budget_bytes=max(budget, 0),
    )
    return _by_key(lists, {e: sizes[e].size for e in edge_types}), _by_key(rows, {t: row_visits[t].size for t in node_types})


def list_sizes(adjacency: Mapping[EdgeType, CSC], layout: str) -> dict[EdgeType, np.ndarray]:
    """Edge type -> int64[num_dst]: bytes that keeping each list takes, beyond the table; 0 for a list without edges."""
    begin = 8 if layout == "prefix" else 0
    lengths = {e: np.diff(csc.indptr) for e, csc in adjacency.items()}
    return {e: each * adjacency[e].indices.dtype.itemsize + begin * (each > 0) for e, each in lengths.items()}


def table_bytes(adjacency: Mapping[EdgeType, CSC]) -> int:
    """Bytes of the tables that find kept lists: one entry per node and edge type, of 8 bytes where 4 might not do."""
    widths = {e: 4 if max(csc.num_edges, csc.num_dst) < 1 << 31 else 8 for e, csc in adjacency.items()}
    return sum(csc.num_dst * widths[e] + 8 for e, csc in adjacency.items() if csc.num_edges)  # 8: the end of the last list of a prefix


def _joined(pieces: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *pieces]).astype(dtype, copy=False)


def _by_key(chosen: np.ndarray, counts: Mapping[Any, int]) -> dict[Any, np.ndarray]:
    """Numbers in the joined arrays -> ids per key, in the same order."""
    found, first = {}, 0
    for key, count in counts.items():
        found[key] = chosen[(chosen >= first) & (chosen < first + count)] - first
        first += count
    return found
