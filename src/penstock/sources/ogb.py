"""Node data sets of the Open Graph Benchmark, from their raw folders (nothing of OGB is imported).

In: the data set's folder or its `raw/`. Out: a Source. Layouts, after ogb/io/read_graph_raw.py of the OGB package:

    raw/edge.csv.gz node-feat.csv.gz node-label.csv.gz node_*.csv.gz edge-feat.csv.gz num-node-list.csv.gz      arxiv, products, proteins
    raw/relations/<a>___<r>___<b>/edge.csv.gz   node-feat/<type>/   node-label/<type>/   num-node-dict.csv.gz   mag
    raw/data.npz (edge_index, node_feat, node_year, ...)   node-label.npz                                       papers100M
    split/<how>/train.csv.gz valid.csv.gz test.csv.gz, for typed graphs in a folder per node type

Features become `x`, labels `y` (one class: int64, -1 if unknown; several tasks: uint8 per task); everything else keeps its name. Edges are
those of the files; OGB adds inverse edges to products and proteins when it loads them: use `undirected` for the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.errors import InputError, argument
from penstock.records import EDGE, NODE, EdgeType
from penstock.sources.array_file import open_npz
from penstock.sources.array_table import ArrayFileTable, array_rows, edge_columns
from penstock.sources.columns import Request
from penstock.sources.csv_layout import find_layout, is_blank, read_lines
from penstock.sources.csv_table import CsvTable
from penstock.sources.source import CHUNK_ROWS, DST, SRC, ArrayTable, ChangedTable, Chunk, Column, EdgeTable, NodeTable, Source, Table
from penstock.sources.splits import DEFAULT, PARTS, Split, index_part, part_name
from penstock.sources.tables import join

_EDGE_REQUESTS = [
    Request(name=SRC, columns="0", kind="id", dtype=np.dtype(np.int64)),
    Request(name=DST, columns="1", kind="id", dtype=np.dtype(np.int64)),
]


def raw_folder(path: Path) -> Path | None:
    """Return the folder with the raw files of an OGB node data set, or None if `path` is not one."""
    for folder in (path / "raw", path):
        if (folder / "edge.csv.gz").exists() or (folder / "relations").is_dir() or (folder / "data.npz").exists():
            return folder
    return None


def open_ogb(path: Path, split: str | None = None) -> Source:
    """Open a data set.

    Args:
        path: its folder, or the `raw` folder in it.
        split: which folder below `split/` to take; required if there are several.
    """
    raw = raw_folder(path)
    assert raw is not None
    if (raw / "data.npz").exists():
        source = _open_binary(raw)
    elif (raw / "relations").is_dir():
        source = _open_typed(raw)
    else:
        source = _open_homogeneous(raw)
    folder = _split_folder(raw.parent / "split", split)
    if folder is not None:
        source.splits = _splits(folder, source)
    source.provenance = {"kind": "ogb", "files": [raw.parent.name], "split": None if folder is None else folder.name}
    return source


class LabelTable(ChangedTable):
    """Labels as classes: float labels become int64, NaN (unknown) becomes -1."""

    def __init__(self, table: Table) -> None:
        column = table.columns["y"]
        self._is_converted = column.dtype.kind == "f" and column.row_shape == ()
        dtype = np.dtype(np.int64) if self._is_converted else column.dtype
        super().__init__(table, {"y": Column(name="y", dtype=dtype, row_shape=column.row_shape)})

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Read and convert."""
        for chunk in self._table.chunks(max_rows, names):
            if self._is_converted:
                chunk = Chunk(chunk.first_row, {"y": self._convert(chunk)})
            yield chunk

    def _convert(self, chunk: Chunk) -> np.ndarray:
        labels = chunk.columns["y"]
        classes = np.where(np.isnan(labels), -1, labels).astype(np.int64)
        wrong = np.flatnonzero(~np.isnan(labels) & (classes != labels))
        if wrong.size:
            raise InputError(f"{self.where(chunk.first_row + int(wrong[0]))}: label {labels[wrong[0]]} is no class number")
        return classes


def _csv_field(path: Path, name: str) -> Table | None:
    """Read all columns of a file without header as one field; None if there is no such file."""
    if not path.exists():
        return None
    num_columns = len(find_layout(path, [], None, False).column_names)
    dtype = None
    if name == "y":
        dtype = np.dtype(np.float64 if num_columns == 1 else np.uint8)
    elif num_columns > 1 or name == "x":
        dtype = np.dtype(np.float32)
    table = CsvTable(path, [Request(name=name, columns="0" if num_columns == 1 else "0:", dtype=dtype)], has_header=False)
    return LabelTable(table) if name == "y" else table


def _more_fields(folder: Path, prefix: str) -> list[Table]:
    """Read the other fields of nodes or edges: node_year.csv.gz, edge_reltype.csv.gz, ..."""
    found = [_csv_field(path, path.name.partition(".")[0]) for path in sorted(folder.glob(f"{prefix}_*.csv.gz"))]
    return [table for table in found if table is not None]


def _edges(folder: Path, edge_type: EdgeType) -> EdgeTable:
    path = folder / "edge.csv.gz"
    if not path.exists():
        raise InputError(f"{path}: no such file; the folder of an edge type holds its edges there")
    if is_blank(path):
        return EdgeTable(edge_type=edge_type, table=ArrayTable({end: np.zeros(0, dtype=np.int64) for end in (SRC, DST)}, str(path)))
    features = _csv_field(folder / "edge-feat.csv.gz", "x")
    tables: list[Table] = [
        CsvTable(path, _EDGE_REQUESTS, has_header=False),
        *([features] if features else []),
        *_more_fields(folder, "edge"),
    ]
    table = join(tables, str(path))
    assert table is not None
    return EdgeTable(edge_type=edge_type, table=table)


def _nodes(node_type: str, num_nodes: int, *folders: Path) -> NodeTable:
    found = [
        _csv_field(folder / file, name) for folder in folders for file, name in (("node-feat.csv.gz", "x"), ("node-label.csv.gz", "y"))
    ]
    tables = [table for table in found if table is not None] + _more_fields(folders[0], "node")
    return NodeTable(node_type=node_type, num_nodes=num_nodes, table=join(tables, str(folders[0])))


def _cells(path: Path) -> list[list[str]]:
    if not path.exists():
        raise InputError(f"{path}: no such file; OGB's raw folder holds the numbers of nodes there")
    return [line.strip().split(",") for line in read_lines(path) if line.strip()]


def _rows(path: Path, width: int | None) -> list[list[str]]:
    """Read rows of `width` cells; None: as many as the first row has."""
    rows = _cells(path)
    for number, row in enumerate(rows, start=1):
        wanted = len(rows[0]) if width is None else width
        if len(row) != wanted:
            raise InputError(f"{path}, row {number}: {len(row)} fields where {wanted} are expected ({','.join(row)[:60]!r})")
    if not rows:
        raise InputError(f"{path}: empty, it has no rows")
    return rows


def _count(cells: list[str], path: Path) -> int:
    if len(cells) != 1 or not cells[0].isdecimal() or len(cells[0]) > 18:
        raise InputError(f"{path}: holds {','.join(cells)[:60]!r}; expected the number of nodes of one graph")
    return int(cells[0])


def _open_homogeneous(raw: Path) -> Source:
    path = raw / "num-node-list.csv.gz"
    num_nodes = _count([cell for line in _cells(path) for cell in line], path)
    return Source(nodes={NODE: _nodes(NODE, num_nodes, raw)}, edges={EDGE: _edges(raw, EDGE)}, is_homogeneous=True)


def _open_typed(raw: Path) -> Source:
    path = raw / "num-node-dict.csv.gz"
    names, *rows = _rows(path, None)
    counts = [_count([row[i] for row in rows], path) for i in range(len(names))]
    nodes = {
        node_type: _nodes(node_type, num_nodes, raw / "node-feat" / node_type, raw / "node-label" / node_type)
        for node_type, num_nodes in sorted(zip(names, counts, strict=True))
    }
    edges = {}
    for words in sorted(_rows(raw / "triplet-type-list.csv.gz", 3)):
        edge_type = (words[0], words[1], words[2])
        edges[edge_type] = _edges(raw / "relations" / "___".join(edge_type), edge_type)
    return Source(nodes=nodes, edges=edges, is_homogeneous=False)


def _open_binary(raw: Path) -> Source:
    """Open data.npz: edge_index, num_nodes_list, and node_* and edge_* arrays."""
    path = raw / "data.npz"
    arrays = open_npz(path)
    if "edge_index" not in arrays or "num_nodes_list" not in arrays:
        raise InputError(f"{path}: needs edge_index and num_nodes_list; its keys are {', '.join(sorted(arrays)[:12])}")
    num_nodes = _count([str(count) for count in arrays["num_nodes_list"].load().ravel()], path)
    edges, fields = edge_columns(arrays["edge_index"]), {}
    for key, array in arrays.items():
        if key.startswith("edge_") and key != "edge_index":
            edges["x" if key == "edge_feat" else key] = array_rows(array)
        elif key.startswith("node_"):
            fields["x" if key == "node_feat" else key] = array_rows(array)
    tables: list[Table] = [ArrayFileTable(fields, str(path))] if fields else []
    if (raw / "node-label.npz").exists():
        labels = open_npz(raw / "node-label.npz")
        if "node_label" not in labels:
            raise InputError(f"{raw / 'node-label.npz'}: needs node_label; its keys are {', '.join(sorted(labels)[:12])}")
        tables.append(LabelTable(ArrayFileTable({"y": array_rows(labels["node_label"])}, labels["node_label"].name)))
    for table in tables:
        if table.num_rows != num_nodes:
            raise InputError(f"{table.name} has {table.num_rows} rows for {num_nodes} nodes")
    return Source(
        nodes={NODE: NodeTable(node_type=NODE, num_nodes=num_nodes, table=join(tables, str(path)))},
        edges={EDGE: EdgeTable(edge_type=EDGE, table=ArrayFileTable(edges, arrays["edge_index"].name))},
        is_homogeneous=True,
    )


def _split_folder(folder: Path, name: str | None) -> Path | None:
    """Choose among the ways of splitting below `split/`."""
    found = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if name is not None:
        if folder / name not in found:
            raise InputError(f"{folder}: no split {name!r} there; there are {', '.join(path.name for path in found) or 'none'}")
        return folder / name
    if len(found) > 1:
        raise InputError(f"{folder}: several splits ({', '.join(path.name for path in found)}); choose one by {argument('split', ...)}")
    return found[0] if found else None


def _splits(folder: Path, source: Source) -> dict[str, dict[str, Split]]:
    folders = {NODE: folder} if source.is_homogeneous else {kind: folder / kind for kind in source.nodes if (folder / kind).is_dir()}
    splits = {}
    for node_type, each in folders.items():
        found: Split = {}
        for path in sorted(each.glob("*.csv.gz")):
            part = part_name(path.name.partition(".")[0])
            if part in PARTS:
                tables = [] if is_blank(path) else [CsvTable(path, _EDGE_REQUESTS[:1], has_header=False)]
                pieces = [chunk.columns[SRC] for table in tables for chunk in table.chunks(CHUNK_ROWS)]
                found[part] = index_part(
                    np.concatenate([np.zeros(0, dtype=np.int64), *pieces]), source.nodes[node_type].num_nodes, str(path)
                )
        if found:
            splits[node_type] = {DEFAULT: found}
    return splits
