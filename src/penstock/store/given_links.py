"""Links, or pairs of nodes to look at, that somebody gives: an array, or a file.

In: node numbers, or a table of the user's ids, and of what else is known of each link. Out: node numbers, all of which are nodes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from penstock.errors import InputError, MissingFieldError, NodeIdError, UsageError, argument
from penstock.records import EdgeType
from penstock.sources.array_file import open_npy
from penstock.sources.columns import ColumnsTable, Request
from penstock.sources.files import file_format, open_files
from penstock.sources.source import CHUNK_ROWS, DST, SRC, Table
from penstock.sources.time_units import finest, unit_named
from penstock.store.format import BFLOAT16, ArraySpec
from penstock.store.given_nodes import id_column, nodes_of
from penstock.store.ingestion.fields import to_bfloat16
from penstock.store.opened import Store
from penstock.store.results import begins_as_npy


@dataclass(frozen=True, slots=True)
class GivenLinks:
    """Links that were given.

    Attributes:
        ends: int64[2, n]: sources and targets.
        fields: name -> [n, ...], fields of the edges that a table has columns of.
    """

    ends: np.ndarray
    fields: Mapping[str, np.ndarray] = field(default_factory=dict)


def given_links(
    store: Store, edge_type: EdgeType, name: str, links: Any, instead: str = "", fields: Mapping[str, ArraySpec] = MappingProxyType({})
) -> GivenLinks:
    """Return links that were given.

    Args:
        edge_type: theirs.
        name: of the argument that gave them, for messages.
        links: whole numbers [2, n] or [n, 2], sources first; or a file: the same in an `.npy`; or a `.csv` or `.parquet` with columns `src`
            and `dst`, of your ids where the store has such, and with others of the names of `fields`; `.parquet` also lists.
        instead: what else may be given, for messages.
        fields: of the edges, that links have too where a table has them.
    Raises:
        UsageError, InputError: they are none. NodeIdError: their ends are not nodes of the store.
    """
    of = argument(name)
    is_file = isinstance(links, str | os.PathLike)
    found = _read(store, edge_type, of, Path(links), instead, fields) if is_file else GivenLinks(np.asarray(links))
    ends = found.ends
    if ends.ndim != 2 or 2 not in ends.shape or ends.dtype.kind not in "iu" or not ends.size:
        raise InputError(f"{of} must be {instead}whole numbers [2, n] or [n, 2], sources first; got {ends.dtype} {list(ends.shape)}")
    ends = (ends if ends.shape[0] == 2 else ends.T).astype(np.int64)
    for end, ids, node_type in zip(("source", "target"), ends, (edge_type[0], edge_type[2]), strict=True):
        bad = np.flatnonzero((ids < 0) | (ids >= store.num_nodes[node_type]))
        if bad.size:
            raise NodeIdError(
                f"{of}: {bad.size} of {ids.size} {end} ids lie outside [0, {store.num_nodes[node_type]}), the ids of node type "
                f"'{node_type}'; first is link {bad[0]} with {ids[bad[0]]}"
            )
    return GivenLinks(ends, found.fields)


def _read(store: Store, edge_type: EdgeType, of: str, path: Path, instead: str, fields: Mapping[str, ArraySpec]) -> GivenLinks:
    """The links in a file."""
    takes = f"{of} takes {instead}a file of pairs, .npy, .csv or .parquet"
    if not path.is_file():
        raise UsageError(f"{takes}; {path} is {'none' if path.exists() else 'not there'}")
    if path.stat().st_size and begins_as_npy(path):
        pairs = open_npy(path).load()
        return GivenLinks(pairs.T if pairs.shape[1:] == (2,) else pairs)  # two pairs could be meant either way
    if file_format(path) not in ("csv", "parquet"):
        raise UsageError(f"{takes}; {path} is none")
    types = {SRC: edge_type[0], DST: edge_type[2]}
    ends = [id_column(store, end, node_type) for end, node_type in types.items()]
    try:
        table = open_files(path, [*ends, *(_values(name, spec) for name, spec in fields.items())], Path(), has_header=True)
    except MissingFieldError as error:
        raise InputError(f"{of}: {path} needs columns src and dst, the ids of both ends, named in a line above the first pair") from error
    read: dict[str, list[np.ndarray]] = {name: [] for name in table.columns}
    for name in fields.keys() & read.keys():
        _check_kind(table, name, fields[name])
    for chunk in table.chunks(CHUNK_ROWS):
        for name, column in chunk.columns.items():
            is_end = name in types
            read[name].append(nodes_of(store, types[name], table, column, chunk.first_row, name) if is_end else column)
    if not read[SRC]:
        raise InputError(f"{of}: {path} has no pairs")
    columns = {name: np.concatenate(pieces) for name, pieces in read.items()}
    both = np.stack([columns.pop(end) for end in types])
    return GivenLinks(both, {name: _as_stored(column, fields[name]) for name, column in columns.items()})


def _values(name: str, spec: ArraySpec) -> Request:
    """A column of a field; times as they are written, which tells their unit."""
    dtype = None if "unit" in spec.properties and spec.dtype == "int64" else spec.storage_dtype
    return Request(name=name, columns=name, dtype=np.dtype(np.float32) if spec.dtype == BFLOAT16 else dtype, is_optional=True)


def _check_kind(table: Table, name: str, spec: ArraySpec) -> None:
    """Raise where rows of a table are longer or shorter than those of the store, or times in another unit, unless they can be converted."""
    column, there = table.columns[name], spec.properties.get("unit")
    if math.prod(column.row_shape) != math.prod(spec.shape[1:]):
        theirs, ours = (math.prod(shape) for shape in (column.row_shape, spec.shape[1:]))
        raise InputError(f"{table.name}: column {name!r} has {theirs} numbers in a row, and that of the store {ours}")
    wanted = None if there is None else unit_named(there)
    if column.unit == wanted:
        return
    if finest([column.unit, wanted]) != wanted or wanted is None:
        here = column.unit or "plain numbers"
        raise InputError(f"{table.name}: column {name!r} is in {here}, and that of the store in {there or 'plain numbers'}")
    assert isinstance(table, ColumnsTable), "of one file"
    table.count_in(name, (wanted,) * len(column.units))


def _as_stored(column: np.ndarray, spec: ArraySpec) -> np.ndarray:
    """[n, ...]: a field of a table as the store has it."""
    return (to_bfloat16(column) if spec.dtype == BFLOAT16 else column).reshape(-1, *spec.shape[1:])
