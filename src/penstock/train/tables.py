"""A table with a row for each node, under the user's ids: `.csv` or `.parquet`, either of which can be ingested.

In: columns, made for some nodes at a time. Out: a file. Invariant: memory follows those, not the table.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.store import Store
from penstock.train.parts import PartsStore

_ROWS = 1 << 16
_BYTES = 16 << 20

Columns = Mapping[str, np.ndarray]
"""Name -> [n], or [n, width] vectors, which `.parquet` alone has."""


def write_table(
    path: Path,
    ending: str,
    num_nodes: int,
    columns: Callable[[slice], Columns],
    store: Store | PartsStore,
    node_type: str,
    row_bytes: int = 0,
) -> None:
    """Write `id` and the columns; where the user's nodes have no ids but their numbers, these. Over parts, which do not know, they are
    called `node`.

    Args:
        ending: of the file as it will be called, which says what it is.
        columns: of the nodes [start, stop).
        row_bytes: of a node in all columns, where that is much.
    """
    write = _write_csv if ending == ".csv" else _write_parquet
    write(path, _in_pieces(num_nodes, columns, store, node_type, min(_ROWS, max(_BYTES // max(row_bytes, 1), 1))))


def _in_pieces(
    num_nodes: int, columns: Callable[[slice], Columns], store: Store | PartsStore, node_type: str, num_rows: int
) -> Iterator[Columns]:
    name = "node" if isinstance(store, PartsStore) else "id"
    whole = store if isinstance(store, Store) and store.has_original_ids(node_type) else None
    for first in range(0, num_nodes, num_rows):
        piece = slice(first, min(first + num_rows, num_nodes))
        nodes = np.arange(piece.start, piece.stop)
        yield {name: nodes if whole is None else whole.original_ids(nodes, node_type), **columns(piece)}


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
