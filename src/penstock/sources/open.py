"""Opening anything that holds a graph as a Source.

In: a PyG object, a path, or a description. Out: a `Source`; so far only headers, splits and the first block of CSV files were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from penstock.errors import InputError, MissingFileError, UsageError, argument, did_you_mean, refuse_unseen
from penstock.records import EDGE, NODE
from penstock.sources.columns import ColumnSpec, IdKind
from penstock.sources.files import Files, are_arrays, expand, file_format
from penstock.sources.graphbolt import is_graphbolt, open_graphbolt
from penstock.sources.mag240m import is_mag240m, open_mag240m
from penstock.sources.npz import open_npz_graph
from penstock.sources.ogb import open_ogb, raw_folder
from penstock.sources.pyg import is_pyg, open_pyg
from penstock.sources.source import Source
from penstock.sources.table_graph import EdgeFiles, NodeFiles, open_description, open_tables, open_typed_tables


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of a kind of source, and names of other options that the call accepts, for suggesting a name in the message about an unknown
    one."""

    given: Mapping[str, Any]
    others: Iterable[str]


def open_source(source: Any, /, **options: Any) -> Source:
    """Open a graph.

    Args:
        source: one of
            PyG's Data or HeteroData;
            a `.npz` archive (see `penstock.sources.npz`);
            edges in CSV or Parquet tables or in arrays: a file, a pattern, a folder of parts, or a list; or a matrix in a Matrix Market
                file (options: see `open_edge_list`);
            a `.json` description of a typed graph in tables, or the same as a mapping (see `penstock.sources.table_graph`);
            the folder of an OGB node data set (option `split`), of MAG240M, or of GraphBolt (options: see `penstock.sources.graphbolt`);
            a Source, which is returned as it is.
        **options: of the kind of source.
    """
    return open_with(source, options)


def open_with(source: Any, options: Mapping[str, Any], others: Iterable[str] = ()) -> Source:
    """Open a graph as `open_source`, for a call with further options; `others`: their names, which a message about an unknown option may
    suggest."""
    try:
        return _open(source, _Options(options, others))
    except PermissionError as error:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _open(source: Any, options: _Options) -> Source:
    if isinstance(source, Source):
        return _call(lambda: source, options, "a Source")
    if is_pyg(source):
        return _call(lambda: open_pyg(source), options, "a PyG object")
    if isinstance(source, Mapping):
        return _call(lambda: open_typed_tables(source), options, "a description")
    if isinstance(source, list | tuple) and source:
        return _call(open_edge_list, options, "an edge list", source)
    if not isinstance(source, str | Path):
        raise UsageError(f"cannot read a graph from {type(source).__name__}; give a path, a PyG Data or HeteroData, or a description")
    return _open_path(Path(source), options)


def _open_path(path: Path, options: _Options) -> Source:
    if path.is_dir():
        if (path / "manifest.json").exists():
            raise UsageError(f"{path}: is a store already; open it with penstock.open")
        if is_graphbolt(path):
            return _call(open_graphbolt, options, "a GraphBolt folder", path)
        if is_mag240m(path):
            return _call(lambda: open_mag240m(path), options, "MAG240M")
        if raw_folder(path) is not None:
            return _call(open_ogb, options, "an OGB folder", path)
        if not any(file_format(part) for part in path.iterdir()):
            raise InputError(
                f"{path}: no graph that is known here: no raw/ of OGB with edges, no processed/ of MAG240M, "
                "no metadata.yaml of GraphBolt, no CSV or Parquet part files"
            )
        return _call(open_edge_list, options, "an edge list", path)
    if not path.exists() and not any(sign in str(path) for sign in "*?["):
        refuse_unseen(path)
        raise MissingFileError(f"{path}: no such file or folder")
    if path.suffix.lower() == ".npz":
        return _call(lambda: open_npz_graph(path), options, "an .npz archive")
    if path.suffix.lower() == ".json":
        return _call(lambda: open_description(path), options, "a description")
    if any(file_format(part) not in ("csv", "mtx", "parquet") and not are_arrays(part) for part in expand(path, Path())):
        known = ".npz, .csv, .tsv, .txt, .mtx, .parquet, .json, .npy or .pt of shape [2, number of edges], and folders"
        raise InputError(f"{path}: not a kind of file that a graph can be read from; known are {known}")
    return _call(open_edge_list, options, "an edge list", path)


def _call(function: Callable[..., Source], options: _Options, kind: str, *arguments: Any) -> Source:
    """Call a function with the options; refuse those that this kind of source does not have."""
    known = list(signature(function).parameters)[len(arguments) :]
    for name in options.given:
        if name not in known:
            listed = f"; its options are {', '.join(map(argument, known))}" if known else "; it has none"
            raise UsageError(f"{kind} has no option '{argument(name)}'{did_you_mean(name, [*known, *options.others]) or listed}")
    return function(*arguments, **options.given)


def open_edge_list(
    files: Files,
    *,
    src: str | None = None,
    dst: str | None = None,
    edge_fields: Mapping[str, ColumnSpec] | None = None,
    edge_dtypes: Mapping[str, str] | None = None,
    nodes: Files | None = None,
    num_nodes: int | None = None,
    id: str | None = None,
    ids: IdKind | None = None,
    node_fields: Mapping[str, ColumnSpec] | None = None,
    node_dtypes: Mapping[str, str] | None = None,
    split: str | None = None,
    splits: Mapping[str, str] | str | Path | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
) -> Source:
    """Open a graph of one node type and one edge type from tables.

    Args:
        files: edge tables, or a matrix (see `penstock.sources.matrix_market`). src, dst, edge_fields, edge_dtypes: see `EdgeFiles`.
        nodes: node tables. num_nodes, id, ids, node_fields, node_dtypes, split, splits: see `NodeFiles`.
        header, delimiter: of all CSV files; None: detect them.
    """
    edge_files = EdgeFiles(
        files=files, src=src, dst=dst, fields=edge_fields or {}, dtypes=edge_dtypes or {}, header=header, delimiter=delimiter
    )
    node_files = NodeFiles(
        files=nodes,
        num_nodes=num_nodes,
        id=id,
        ids=ids,
        fields=node_fields or {},
        dtypes=node_dtypes or {},
        split=split,
        splits=splits,
        header=header,
        delimiter=delimiter,
    )
    return open_tables({EDGE: edge_files}, {NODE: node_files})
