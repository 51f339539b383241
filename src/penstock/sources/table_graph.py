"""Graphs in CSV and Parquet tables of edges and nodes, and in matrices.

In: which files, and which columns of them mean what (`EdgeFiles`, `NodeFiles`). Out: a Source. A typed graph is described by a mapping, or
by a JSON file that holds it, whose relative names start at the file's folder:

    {"nodes": {"user": {"files": "users.csv", "id": "name", "fields": {"x": "f*", "y": "class"}, "split": "part"}, "item": {}},
     "edges": {"user__buys__item": {"files": "buys/part-*.parquet", "src": "who", "dst": "what", "fields": {"time": "at"}}}}

Integer ids are node numbers 0..n-1 if no node table has an id column; with an id column, and if they are strings, ids are mapped
(`Source.mapped`). The option `ids` overrides this.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InputError, UsageError, argument
from penstock.records import EDGE, EdgeType, NodeType
from penstock.sources.columns import ColumnSpec, IdKind, Request
from penstock.sources.csv_layout import is_blank
from penstock.sources.files import (
    Files,
    are_arrays,
    expand,
    file_format,
    matrix_header,
    open_array,
    open_arrays,
    open_edge_arrays,
    open_files,
)
from penstock.sources.matrix_market import Header
from penstock.sources.option_types import check_types
from penstock.sources.source import CHUNK_ROWS, DST, ID, LABELS, SRC, ArrayTable, EdgeTable, NodeTable, Source, Table
from penstock.sources.splits import DEFAULT, PARTS, Split, column_split, find_rows, index_part, part_name
from penstock.sources.tables import has_rows, join
from penstock.sources.word_labels import WordLabels

logger = logging.getLogger("penstock")

_SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """The files of one node type; all attributes are optional.

    Attributes:
        files: CSV or Parquet tables with one row per node; None for fields from arrays only, or none at all.
        num_nodes: number of nodes; needed only if neither a table nor the edges determine it.
        id: column of ids; by default `id` if the table has it, else row i is node i.
        ids: "number" (0..n-1), "int" (any 64-bit integers, mapped), "string" (mapped); None: depends on the columns.
        fields: field -> columns ("age", "f*", "f0:f127", "3", a list) or an array (`.npy`, `.pt`) with one row per node.
        dtypes: field -> dtype of a field from columns; by default that of the columns (CSV: float32 for several columns).
        split: column with train, val or test.
        splits: part -> file of ids (CSV, Parquet, `.npy`, `.pt`) or mask (`.npy`, `.pt`); or a folder with train.*, valid.*, test.*.
        header, delimiter: of CSV files; None: detect them.
    """

    files: Files | None = None
    num_nodes: int | None = None
    id: str | None = None
    ids: IdKind | None = None
    fields: Mapping[str, ColumnSpec] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    split: str | None = None
    splits: Mapping[str, str] | str | Path | None = None
    header: bool | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.ids not in (None, "number", "int", "string"):
            raise UsageError(f"{argument('ids')} must be 'number', 'int' or 'string', got {self.ids!r}")
        if self.ids == "number" and self.id is not None:
            number, column = argument("ids", "number"), argument("id", self.id)
            raise UsageError(f"{number} says that ids are row numbers, and {column} names a column of ids; leave one out")
        if self.num_nodes is not None and self.num_nodes < 0:
            raise UsageError(f"{argument('num_nodes')} must be 0 or more, got {self.num_nodes}")
        if self.split is not None and (self.files is None or self.splits is not None):
            raise UsageError(
                f"{argument('split')} names a column of the node table: it needs {argument('nodes')}, "
                f"and cannot go with {argument('splits')}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeFiles:
    """The files of one edge type.

    Attributes:
        files: CSV or Parquet tables with one row per edge; or an array (`.npy`, `.pt`) of shape [2, edges], or pairs [edges, 2]; or a
            matrix (`.mtx`), whose rows are sources.
        src, dst: columns of the ends; by default `src` and `dst`, or the first two columns of a CSV without header.
        fields, dtypes, header, delimiter: as for nodes. A field called weight is read as float64.
    """

    files: Files
    src: str | None = None
    dst: str | None = None
    fields: Mapping[str, ColumnSpec] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    header: bool | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        check_types(self)


def open_description(path: Path) -> Source:
    """Open the typed graph that a JSON file describes."""
    try:
        description = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON file that can be read ({error})") from error
    if not isinstance(description, dict):
        raise InputError(f'{path}: a description of a graph is an object with "edges" and "nodes"')
    return open_typed_tables(description, path.parent, str(path))


def open_typed_tables(description: Mapping[str, Any], base: Path = Path(), name: str = "description") -> Source:
    """Open a typed graph; keys of edges are `src__relation__dst` or triples."""
    try:
        return _open_described(description, base, name)
    except (UsageError, InputError) as error:
        raise type(error)(str(error)) from error  # the names in it are keys of the description, not options of a command


def _open_described(description: Mapping[str, Any], base: Path, name: str) -> Source:
    if unknown := set(description) - {"nodes", "edges"}:
        raise UsageError(f"{name}: unknown key {min(unknown)!r}; a description has edges and nodes")
    for key, value in description.items():
        if not isinstance(value, Mapping):
            raise UsageError(f"{name}: {key!r} must name types, each with its files, got {value!r:.60}")
    edges: dict[EdgeType, EdgeFiles] = {}
    for key, value in description.get("edges", {}).items():
        words = tuple(key.split("__")) if isinstance(key, str) else tuple(key)
        if len(words) != 3:
            raise UsageError(f"{name}: edge type {key!r} is not <source type>__<relation>__<destination type>")
        edges[words[0], words[1], words[2]] = _files_of(EdgeFiles, value, f"{name}: edges {key!r}")
    if not edges:
        raise UsageError(f"{name}: names no edges")
    nodes = {key: _files_of(NodeFiles, value, f"{name}: nodes {key!r}") for key, value in description.get("nodes", {}).items()}
    for source_type, _, target_type in edges:
        for node_type in (source_type, target_type):
            nodes.setdefault(node_type, NodeFiles())
    return open_tables(edges, nodes, base)


def _files_of(kind: type, value: Any, where: str) -> Any:
    if isinstance(value, kind):
        return value
    known = [each.name for each in fields(kind)]
    if isinstance(value, str | Path | list):
        value = {"files": value}
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: must be files, or an object of {', '.join(known)}; got {value!r:.60}")
    if unknown := set(value) - set(known):
        raise UsageError(f"{where}: unknown key {min(unknown)!r}; known are {', '.join(known)}")
    if kind is EdgeFiles and "files" not in value:
        raise UsageError(f'{where}: needs "files"')
    try:
        return kind(**value)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def open_tables(edges: Mapping[EdgeType, EdgeFiles], nodes: Mapping[NodeType, NodeFiles], base: Path = Path()) -> Source:
    """Open a graph from tables.

    Args:
        edges: edge type -> its files.
        nodes: node type -> its files; must contain every type that an edge type names.
        base: where relative file names start.
    """
    node_tables = {node_type: _node_table(node_type, files, base) for node_type, files in nodes.items()}
    edge_tables = {edge_type: _edge_table(edge_type, files, nodes, base) for edge_type, files in edges.items()}
    headers = {e: header for e, files in edges.items() if (header := matrix_header(files.files, base)) is not None}
    for edge_type, header in headers.items():
        _take_size(edge_type, header, edge_tables[edge_type].table.name, node_tables)
    _warn_of_units(node_tables, edge_tables)
    for node_type, node_table in node_tables.items():
        _agree_on_ids(node_type, node_table, edge_tables.values())
    mapped = frozenset(
        node_type for node_type, files in nodes.items() if _is_mapped(node_type, files, node_tables[node_type].table, edge_tables)
    )
    for node_type in mapped:
        table = node_tables[node_type].table
        if any(node_type in (each[0], each[2]) for each in headers):
            raise UsageError(
                f"a matrix numbers the nodes of {node_type!r} by its rows and columns, and they have ids too: leave out the column of ids, "
                f"by {argument('ids', 'number')}"
            )
        if table is None and nodes[node_type].num_nodes is not None:
            raise UsageError(
                f"{argument('num_nodes', nodes[node_type].num_nodes)}: ids of {node_type!r} are mapped, and the nodes are those that edges "
                "name: leave it out, or list all ids in a table of nodes"
            )
        if table is not None and ID not in table.columns:
            raise UsageError(
                f"{table.name} has fields of {node_type!r} and no column of ids, while the edges name nodes by ids that are mapped: which "
                f"row is which node? Name the column by {argument('id', ...)}, or say {argument('ids', 'number')} if ids are row numbers"
            )
    splits = {node_type: _split(files, node_tables[node_type], node_type in mapped, base) for node_type, files in nodes.items()}
    return Source(
        nodes=node_tables,
        edges=edge_tables,
        is_homogeneous={*edges} == {EDGE},
        is_undirected=any(header.is_symmetric for header in headers.values()),
        mapped=mapped,
        splits={node_type: {DEFAULT: split} for node_type, split in splits.items() if split},
        provenance={"kind": "tables", "files": [table.table.name for table in edge_tables.values()]},
    )


def _take_size(edge_type: EdgeType, header: Header, name: str, nodes: Mapping[NodeType, NodeTable]) -> None:
    """Let a matrix say how many nodes there are, where nothing else does."""
    shape = f"{name}: {header.shape[0]} x {header.shape[1]}"
    if edge_type[0] == edge_type[2] and header.shape[0] != header.shape[1]:
        raise InputError(f"{shape} entries are no edges between nodes of one type: describe two types, or write a square matrix")
    if header.is_symmetric and edge_type != EDGE:
        raise InputError(f"{shape} entries are symmetric, which is for graphs of one type: write both halves of the matrix, as general")
    for node_type, size in zip((edge_type[0], edge_type[2]), header.shape, strict=True):
        if nodes[node_type].num_nodes is None and nodes[node_type].table is None:
            nodes[node_type].num_nodes = size


def _requests(files: NodeFiles | EdgeFiles) -> tuple[list[Request], dict[str, Files]]:
    """Split the fields into those from columns and those from arrays."""
    requests, arrays = [], {}
    for name, columns in files.fields.items():
        if name in (SRC, DST) or (name == ID and not are_arrays(columns)):
            raise UsageError(f"a field cannot be called {name!r}: name the column by {argument(name)}")
        if are_arrays(columns):
            arrays[name] = columns
        else:
            requests.append(Request(name=name, columns=columns, dtype=_dtype(files, name)))
    if unknown := set(files.dtypes) - set(files.fields):
        raise UsageError(f"dtypes names {min(unknown)!r}, which is no field; fields are {', '.join(files.fields) or 'none'}")
    return requests, arrays


def _dtype(files: NodeFiles | EdgeFiles, name: str) -> np.dtype | None:
    if name not in files.dtypes:
        return None
    try:
        dtype = np.dtype(files.dtypes[name])
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in "biuf":
        raise UsageError(f"dtypes: {files.dtypes[name]!r} of {name!r} is no number type such as float32 or int64")
    return dtype


def _id_request(name: str, columns: str | None, ids: IdKind | None, *, is_optional: bool = False) -> Request:
    return Request(
        name=name,
        columns=name if columns is None else columns,
        kind="id",
        dtype=np.dtype(np.int64) if ids in ("number", "int") else None,
        as_string=ids == "string",
        is_default=columns is None and not is_optional,
        is_optional=columns is None and is_optional,
    )


def _node_table(node_type: NodeType, files: NodeFiles, base: Path) -> NodeTable:
    requests, arrays = _requests(files)
    tables = open_arrays(arrays, base)
    if files.files is not None:
        if files.ids != "number":
            requests.append(_id_request(ID, files.id, files.ids, is_optional=True))
        if requests:
            tables.insert(0, open_files(files.files, requests, base, files.delimiter, files.header))
    elif requests or files.id is not None:
        missing = repr(requests[0].name) if requests else "id"
        raise UsageError(f"nodes {node_type!r}: {missing} is to come from a column, and there is no node table ({argument('nodes')})")
    table = join([table for table in tables if table.columns], f"nodes {node_type!r}")
    if table is None and files.files is not None and files.split is None and files.ids != "number":
        raise UsageError(
            f"nodes {node_type!r}: nothing is read from {files.files}: it has no column 'id', and no field is asked of it. "
            f"Name the column of ids by {argument('id', ...)}, or leave the table out"
        )
    if table is not None and LABELS in table.columns and table.columns[LABELS].dtype == object:
        table = WordLabels(table)
    num_nodes = files.num_nodes if files.num_nodes is not None or table is None else table.num_rows
    num_nodes = None if num_nodes is None else int(num_nodes)  # NumPy's would be written as text
    if table is not None and None not in (num_nodes, table.num_rows) and num_nodes != table.num_rows:
        raise InputError(f"{table.name} has {table.num_rows} rows for {argument('num_nodes', num_nodes)}")
    return NodeTable(node_type=node_type, num_nodes=num_nodes, table=table)


def _edge_table(edge_type: EdgeType, files: EdgeFiles, nodes: Mapping[NodeType, NodeFiles], base: Path) -> EdgeTable:
    requests, arrays = _requests(files)
    ends = [_id_request(SRC, files.src, nodes[edge_type[0]].ids), _id_request(DST, files.dst, nodes[edge_type[2]].ids)]
    if are_arrays(files.files):
        for name, column in {SRC: files.src, DST: files.dst, **{each.name: each.columns for each in requests}}.items():
            if column is not None:
                raise UsageError(f"edges {'-'.join(edge_type)}: {name!r} is to come from a column, and {files.files} is an array")
        table = open_edge_arrays(files.files, base)
    else:
        table = open_files(files.files, [*ends, *requests], base, files.delimiter, files.header)
    joined = join([table, *open_arrays(arrays, base)], table.name)
    assert joined is not None
    return EdgeTable(edge_type=edge_type, table=joined)


def _warn_of_units(nodes: Mapping[NodeType, NodeTable], edges: Mapping[EdgeType, EdgeTable]) -> None:
    """Warn if times that sampling would compare are in different units."""
    tables = {f"nodes {name}": each.table for name, each in nodes.items()} | {f"edges {'-'.join(k)}": e.table for k, e in edges.items()}
    units = {name: table.columns["time"].unit for name, table in tables.items() if table is not None and "time" in table.columns}
    if len({unit for unit in units.values() if unit is not None}) > 1:
        shown = ", ".join(f"{unit} of {name}" for name, unit in units.items() if unit is not None)
        logger.warning("times are in several units and cannot be compared: %s. Write them in one", shown)


def _agree_on_ids(node_type: NodeType, nodes: NodeTable, edges: Iterable[EdgeTable]) -> None:
    """Give tables without rows the kind of ids of the other tables."""
    uses: list[tuple[NodeTable | EdgeTable, Table, str]] = []
    if nodes.table is not None and ID in nodes.table.columns:
        uses.append((nodes, nodes.table, ID))
    for each in edges:
        uses += [(each, each.table, end) for end, name in ((SRC, each.edge_type[0]), (DST, each.edge_type[2])) if name == node_type]
    if len({table.columns[column].dtype for _, table, column in uses}) <= 1:
        return
    kinds = {table.columns[column].dtype for _, table, column in uses if has_rows(table)}
    if len(kinds) == 1:
        for owner, table, column in uses:
            if not has_rows(table):
                owner.table = _empty_table(owner.table or table, column, next(iter(kinds)))


def _empty_table(table: Table, name: str, dtype: np.dtype) -> Table:
    """Return a table like one without rows, with another dtype of the column `name`."""
    columns = {**table.columns, name: replace(table.columns[name], dtype=dtype)}
    arrays = {
        key: pa.array([], pa.string()) if each.dtype == object else np.empty((0, *each.row_shape), dtype=each.dtype)
        for key, each in columns.items()
    }
    return ArrayTable(arrays, table.name)


def _is_mapped(node_type: NodeType, files: NodeFiles, table: Table | None, edges: Mapping[EdgeType, EdgeTable]) -> bool:
    """Decide whether the ids of a type are mapped, and check that all its tables hold the same kind."""
    seen: list[tuple[bool, str]] = []
    if table is not None and ID in table.columns:
        seen.append((table.columns[ID].dtype == object, f"{table.name} ({ID})"))
    for (source_type, _, target_type), each in edges.items():
        for end, end_type in ((SRC, source_type), (DST, target_type)):
            if end_type == node_type:
                seen.append((each.table.columns[end].dtype == object, f"{each.table.name} ({end})"))
    is_text = {text for text, _ in seen}
    if len(is_text) > 1:
        integers, strings = (next(name for text, name in seen if text is kind) for kind in (False, True))
        raise InputError(
            f"ids of {node_type!r} are integers in {integers} and strings in {strings}. Are sources and destinations exchanged? "
            f"If all are integers say {argument('ids', 'int')}, to be told the first cell that is not; else say {argument('ids', 'string')}"
        )
    if files.ids in ("number", "int") and True in is_text:
        raise InputError(f"ids of {node_type!r} are strings in {seen[0][1]}, not integers as {argument('ids', files.ids)} says")
    return True in is_text or files.ids in ("int", "string") or (table is not None and ID in table.columns)


def _split(files: NodeFiles, nodes: NodeTable, is_mapped: bool, base: Path) -> Split:
    if files.split is not None and files.files is not None:
        request = Request(name=_SPLIT, columns=files.split, kind="text")
        return column_split(open_files(files.files, [request], base, files.delimiter, files.header), _SPLIT)
    if files.splits is None:
        return {}
    paths = _split_files(files.splits, base)
    masks = {part: mask for part, path in paths.items() if (mask := _read_mask(path)) is not None}
    num_nodes = nodes.num_nodes
    if masks and num_nodes is None and nodes.table is not None:
        num_nodes = sum(chunk.num_rows for chunk in nodes.table.chunks(CHUNK_ROWS, tuple(nodes.table.columns)[:1]))
    split = {part: _rows_of(mask, num_nodes, paths[part]) for part, mask in masks.items()}
    named = {part: path for part, path in paths.items() if part not in masks}
    if not is_mapped:
        split |= {part: index_part(_read_ids(path, is_text=False).to_numpy(), num_nodes, str(path)) for part, path in named.items()}
    elif nodes.table is None or ID not in nodes.table.columns:
        raise UsageError("splits from files name nodes by their ids: with ids that are mapped they need a node table that holds the ids")
    elif named:
        text = nodes.table.columns[ID].dtype == object
        split |= find_rows(
            {part: _read_ids(path, text) for part, path in named.items()}, nodes.table, {k: str(v) for k, v in named.items()}
        )
    return {part: split[part] for part in paths}


def _rows_of(mask: np.ndarray, num_nodes: int | None, path: Path) -> np.ndarray:
    """Return the rows selected by a mask over the rows of the node table."""
    if mask.shape not in ((len(mask),), (len(mask), 1)) or (num_nodes is not None and len(mask) != num_nodes):
        expected = "one row per node" if num_nodes is None else f"bool[{num_nodes}], one row per node"
        raise InputError(f"{path}: has shape {list(mask.shape)} and dtype bool; expected {expected}")
    return np.flatnonzero(mask)


def _split_files(splits: Mapping[str, str] | str | Path, base: Path) -> dict[str, Path]:
    if isinstance(splits, Mapping):
        for part in splits:
            if part not in PARTS:
                raise UsageError(f"{argument('splits')} has a part {part!r}; parts are {', '.join(PARTS)}")
        files = {part: expand(file, base) for part, file in splits.items()}
    else:
        every = expand(splits, base)
        files = {part: [path for path in every if part_name(path.name.partition(".")[0]) == part] for part in PARTS}
        if not any(files.values()):
            raise InputError(f"{base / splits}: no train.*, valid.* or test.* there")
    for part, paths in files.items():
        if len(paths) > 1:
            raise InputError(f"{paths[0]} and {paths[1]} would both be the {part} part of the split: write one file")
    return {part: paths[0] for part, paths in files.items() if paths}


def _read_mask(path: Path) -> np.ndarray | None:
    """Read a mask; None if the file is not a mask."""
    file = open_array(path) if are_arrays(path) else None
    return file.load() if file is not None and file.dtype == np.bool_ and file.shape != () else None


def _read_ids(path: Path, is_text: bool) -> pa.Array:
    """Read a list of ids, the first column of a file."""
    none = pa.array([], pa.string() if is_text else pa.int64())
    if are_arrays(path):
        array = open_array(path).load()
        if array.ndim != 1 or (array.size and array.dtype.kind not in ("U" if is_text else "iu")):
            wanted = "strings, as the ids are" if is_text else "node numbers"
            raise InputError(f"{path}: has shape {list(array.shape)} and dtype {array.dtype}; expected a list of {wanted}, or a mask")
        return pa.array(array if is_text else array.astype(np.int64)) if array.size else none
    if file_format(path) == "csv" and is_blank(path):
        return none
    request = Request(name=ID, columns=ID, kind="id", as_string=is_text, is_default=True, dtype=None if is_text else np.dtype(np.int64))
    chunks = [chunk.columns[ID] for chunk in open_files(path, [request], Path()).chunks(CHUNK_ROWS)]
    return pa.concat_arrays([none, *(pa.array(chunk) if isinstance(chunk, np.ndarray) else chunk for chunk in chunks)])
