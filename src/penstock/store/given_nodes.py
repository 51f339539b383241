"""Nodes that somebody gives: an array, a file, or the name of a part of a split.

In: node numbers, or a table with a column of the user's ids. Out: node numbers, all of which are nodes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InputError, MissingFieldError, NodeIdError, UsageError, argument
from penstock.records import NodeType
from penstock.sources.array_file import open_npy
from penstock.sources.columns import Request
from penstock.sources.files import file_format, open_files
from penstock.sources.source import CHUNK_ROWS, ID, Table
from penstock.store.ids import STRING, Strings, read_ids
from penstock.store.opened import Store
from penstock.store.results import begins_as_npy


def given_nodes(store: Store, node_type: NodeType, name: str, nodes: Any, split: str | None = None) -> np.ndarray:
    """Return nodes that were given: int64[n], in their order, each once.

    Args:
        node_type: theirs.
        name: of the argument that gave them, for messages.
        nodes: whole numbers [n]; or a file: the same in an `.npy`, or a `.csv` or `.parquet` with a column `id`, of your ids where the
            store has such; or the name of a part of a split, "test" for instance, whatever files are called so ("./test" is one).
        split: its name; None: see `Store.split`.
    Raises:
        UsageError, InputError: they are none. NodeIdError: they are not nodes of the store, or one is given twice.
        MissingFieldError: the store has no such split.
    """
    of = argument(name)
    if isinstance(nodes, str) and Path(nodes).name == nodes and not Path(nodes).suffix:
        part = np.asarray(store.split(nodes, split, node_type))
        if not part.size:
            raise UsageError(f"{of}: {nodes!r} is a part of {store.path} without nodes")
        return part
    found = _read(store, node_type, of, Path(nodes)) if isinstance(nodes, str | os.PathLike) else np.asarray(nodes)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not found.size:
        raise InputError(f"{of} must be the name of a part, or whole numbers [n], of nodes; got {found.dtype} {list(found.shape)}")
    bad = np.flatnonzero((found < 0) | (found >= store.num_nodes[node_type]))
    if bad.size:
        raise NodeIdError(
            f"{of}: {bad.size} of {found.size} ids lie outside [0, {store.num_nodes[node_type]}), the ids of node type '{node_type}'; "
            f"first is number {bad[0]} with {found[bad[0]]}"
        )
    found = found.astype(np.int64)
    order = np.argsort(found, kind="stable")
    again = order[1:][found[order[1:]] == found[order[:-1]]]
    if again.size:
        raise NodeIdError(f"{of}: {again.size} of {found.size} nodes are given again, first number {again.min()}: give each once")
    return found


def _read(store: Store, node_type: NodeType, of: str, path: Path) -> np.ndarray:
    """The nodes in a file."""
    takes = f"{of} takes the name of a part, or a file of nodes, .npy, .csv or .parquet"
    if not path.is_file():
        raise UsageError(f"{takes}; {path} is {'none' if path.exists() else 'not there'}")
    if path.stat().st_size and begins_as_npy(path):
        return open_npy(path).load()
    if file_format(path) not in ("csv", "parquet"):
        raise UsageError(f"{takes}; {path} is none")
    try:
        table = open_files(path, [id_column(store, ID, node_type)], Path(), has_header=True)
    except MissingFieldError as error:
        raise InputError(f"{of}: {path} needs a column id, named in a line above the first node") from error
    read = [nodes_of(store, node_type, table, chunk.columns[ID], chunk.first_row, ID) for chunk in table.chunks(CHUNK_ROWS)]
    if not read:
        raise InputError(f"{of}: {path} has no nodes")
    return np.concatenate(read)


def id_column(store: Store, name: str, node_type: NodeType) -> Request:
    """A column of a table with ids of a type, as the store has them."""
    ids = store.node_entry(node_type).ids
    is_text = ids is not None and ids.kind == STRING
    return Request(name=name, columns=name, kind="id", as_string=is_text, dtype=None if is_text else np.dtype(np.int64))


def nodes_of(store: Store, node_type: NodeType, table: Table, column: Any, first_row: int, name: str) -> np.ndarray:
    """int64[n]: node numbers of such a column, or what it has where the store has no ids but these; from row `first_row` of the table."""
    ids, known = read_ids(table, column, first_row, name), store.node_entry(node_type).ids
    if isinstance(ids, Strings) and (known is None or known.kind != STRING):  # in Parquet; of a CSV file the first such cell is told
        raise InputError(f"{table.name}: column '{name}' holds text, and the ids of node type '{node_type}' are whole numbers")
    if known is None:
        return np.asarray(ids)
    found = store.find(ids.to_arrow() if isinstance(ids, Strings) else ids, node_type)
    bad = np.flatnonzero(found < 0)
    if bad.size:
        where = table.where(first_row + int(bad[0]))
        raise NodeIdError(f"{where}: '{name}' is {str(ids[bad[0]])!r}, which no node of type '{node_type}' has as its id")
    return found
