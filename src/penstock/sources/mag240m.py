"""MAG240M of the OGB large-scale challenge: a folder of `.npy` files per node and edge type.

In: the folder that holds `processed/`. Out: a typed Source that streams. Layout, after ogb/lsc/mag240m.py of the OGB package:

    processed/<type>/node_feat.npy node_label.npy node_year.npy          any type, any of the three
    processed/<a>___<relation>___<b>/edge_index.npy                      [2, edges]
    meta.pt                                                              node type -> count
    split_dict.pt                                                        train, valid, test (or test-dev, ...): node numbers of `paper`

The two `.pt` files are torch archives of plain numbers and arrays; if they exist, torch is imported to load them, with `weights_only`. In
their place, `num_nodes.json` ({"paper": 121751666, ...}) and `split/<part>.npy` are accepted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.sources.array_file import open_npy
from penstock.sources.array_table import ArrayFileTable, array_rows, edge_columns
from penstock.sources.ogb import LabelTable
from penstock.sources.source import EdgeTable, NodeTable, Source, Table
from penstock.sources.splits import DEFAULT, Split, index_part, part_name
from penstock.sources.tables import join
from penstock.sources.torch_file import load_numbers

_TARGET = "paper"


def is_mag240m(path: Path) -> bool:
    """Tell whether a folder has the layout."""
    return any(path.glob("processed/*___*___*/edge_index.npy"))


def open_mag240m(path: Path) -> Source:
    """Open the data set."""
    processed = path / "processed"
    edges, counts = {}, _counts(path)
    if not isinstance(counts, dict) or not all(isinstance(count, int | np.integer) and count >= 0 for count in counts.values()):
        raise InputError(f"{path}: num_nodes.json or meta.pt must give each node type its number of nodes, got {counts!r:.60}")
    for folder in sorted(processed.glob("*___*___*")):
        words = folder.name.split("___")
        if len(words) != 3:
            raise InputError(f"{folder}: a folder of edges is called <source type>___<relation>___<destination type>")
        source_type, relation, target_type = words
        table = ArrayFileTable(edge_columns(open_npy(folder / "edge_index.npy")), str(folder / "edge_index.npy"))
        edges[source_type, relation, target_type] = EdgeTable(edge_type=(source_type, relation, target_type), table=table)
    nodes = {
        node_type: _nodes(processed / node_type, counts) for node_type in sorted({end for each in edges for end in (each[0], each[2])})
    }
    splits: Split = {}
    for name, indices in _read_split(path).items():
        part = part_name(name.partition("-")[0])
        if part is not None and _TARGET in nodes:
            piece = np.concatenate([splits[part], indices]) if part in splits else indices
            splits[part] = index_part(np.unique(piece), nodes[_TARGET].num_nodes, f"{path}: split {name}")
    return Source(
        nodes=nodes,
        edges=edges,
        is_homogeneous=False,
        splits={_TARGET: {DEFAULT: splits}} if splits else {},
        provenance={"kind": "mag240m", "files": [path.name]},
    )


def _nodes(folder: Path, counts: dict[str, Any]) -> NodeTable:
    tables: list[Table] = []
    for file, name in (("node_feat.npy", "x"), ("node_label.npy", "y"), ("node_year.npy", "node_year")):
        if (folder / file).exists():
            table = ArrayFileTable({name: array_rows(open_npy(folder / file))}, str(folder / file))
            tables.append(LabelTable(table) if name == "y" else table)
    table = join(tables, str(folder))
    num_nodes = counts.get(folder.name, None if table is None else table.num_rows)
    if table is not None and table.num_rows != num_nodes:
        raise InputError(f"{table.name} has {table.num_rows} rows for {num_nodes} nodes")
    return NodeTable(node_type=folder.name, num_nodes=num_nodes, table=table)


def _counts(path: Path) -> Any:
    if not (path / "num_nodes.json").exists():
        return _load_torch(path / "meta.pt")
    try:
        return json.loads((path / "num_nodes.json").read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path / 'num_nodes.json'}: not a JSON file that can be read ({error})") from error


def _read_split(path: Path) -> dict[str, np.ndarray]:
    if (path / "split").is_dir():
        return {file.stem: open_npy(file).load() for file in sorted((path / "split").glob("*.npy"))}
    splits = _load_torch(path / "split_dict.pt")
    try:
        return {str(name): np.asarray(indices) for name, indices in splits.items()}
    except (AttributeError, ValueError) as error:
        raise InputError(f"{path / 'split_dict.pt'}: must give each part its node numbers, got {splits!r:.60}") from error


def _load_torch(path: Path) -> Any:
    return load_numbers(path, "split/<part>.npy") if path.exists() else {}
