"""A table with a row for each node or pair of nodes, under the user's ids: `.csv` or `.parquet`, either of which can be ingested.

In: columns, made for some rows at a time. Out: a file. Invariant: memory follows those, not the table.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.store import Store
from penstock.train.parts import PartsStore

_ROWS = 1 << 16
_BYTES = 16 << 20

Columns = Mapping[str, Any]
"""Name -> [n], a list of strings, or [n, width] vectors, which `.parquet` alone has."""


def write_table(
    path: Path,
    ending: str,
    nodes: range | np.ndarray,
    columns: Callable[[slice], Columns],
    store: Store | PartsStore,
    node_type: str,
    row_bytes: int = 0,
) -> None:
    """Write `id` and the columns; where the user's nodes have no ids but their numbers, these. Over parts, which do not know, they are
    called `node`.

    Args:
        ending: of the file as it will be called, which says what it is.
        nodes: their numbers, in the order of the rows.
        columns: of the nodes at places [start, stop).
        row_bytes: of a node in all columns, where that is much.
    """
    write_pieces(path, ending, _in_pieces(nodes, columns, store, node_type, min(_ROWS, max(_BYTES // max(row_bytes, 1), 1))))


def write_pieces(path: Path, ending: str, pieces: Iterator[Columns]) -> None:
    """Write rows, some at a time, all with the same columns; `ending` as of `write_table`."""
    (_write_csv if ending == ".csv" else _write_parquet)(path, pieces)


def ids_of(store: Store | PartsStore, node_type: str, nodes: np.ndarray) -> Any:
    """The user's ids of int64[n] nodes, [n] or a list; their numbers where there are no others, or parts do not know."""
    return store.original_ids(nodes, node_type) if isinstance(store, Store) and store.has_original_ids(node_type) else nodes


def _in_pieces(
    nodes: range | np.ndarray, columns: Callable[[slice], Columns], store: Store | PartsStore, node_type: str, num_rows: int
) -> Iterator[Columns]:
    name = "node" if isinstance(store, PartsStore) else "id"
    for first in range(0, len(nodes), num_rows):
        piece = slice(first, min(first + num_rows, len(nodes)))
        yield {name: ids_of(store, node_type, np.asarray(nodes[piece])), **columns(piece)}


def _write_csv(path: Path, pieces: Iterator[Columns]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, piece in enumerate(pieces):
            if number == 0:
                writer.writerow(piece)
            writer.writerows(zip(*(column if isinstance(column, list) else column.tolist() for column in piece.values()), strict=True))


def _write_parquet(path: Path, pieces: Iterator[Columns]) -> None:
    tables = (pa.table({name: _as_arrow(column) for name, column in piece.items()}) for piece in pieces)
    first = next(tables)
    with (
        open(path, "wb") as file,
        pq.ParquetWriter(file, first.schema, use_dictionary=False) as writer,
    ):  # Arrow's own files have other words for a full disk
        for table in itertools.chain([first], tables):
            writer.write_table(table)


def _as_arrow(column: np.ndarray) -> pa.Array:
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(column).reshape(-1)), column.shape[1])
    return pa.array(column)
