"""Data sets of DGL's GraphBolt (`OnDiskDataset`): a folder that `metadata.yaml` describes. Nothing of DGL is imported.

In: the folder. Out: a Source. What the file says, after GraphBolt's specification:

    graph: nodes [type, num], edges [type "user:buys:item", format csv or numpy, path]
    feature_data: [domain node or edge, type, name, format numpy or torch, path]
    tasks: [name, num_classes, train_set, validation_set, test_set: [type, data: [name seeds or labels, format, path]]]

A graph without types is homogeneous. A feature `feat` becomes the field `x`; others keep their names. Seeds of a task that are nodes become
a split, and their labels the field `y`. Seeds that are links have no place in a store: they are left out, and named in a warning and in the
provenance under "left_out". A folder of which only `preprocessed/` is there is read as well (see `penstock.sources.graphbolt_csc`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InputError, UsageError, argument
from penstock.records import EDGE, NODE, EdgeType, NodeType
from penstock.sources.array_table import array_rows
from penstock.sources.columns import Request
from penstock.sources.csv_table import CsvTable
from penstock.sources.files import expand, file_format, open_array, open_arrays, open_edge_arrays
from penstock.sources.graphbolt_csc import open_fused
from penstock.sources.ogb import LabelTable
from penstock.sources.source import DST, ID, LABELS, SRC, ArrayTable, EdgeTable, NodeTable, Source, Table
from penstock.sources.splits import DEFAULT, Split, index_part
from penstock.sources.tables import join

logger = logging.getLogger("penstock")

_FILE = "metadata.yaml"
_PREPROCESSED = "preprocessed"
_SETS = {"train_set": "train", "validation_set": "val", "test_set": "test"}
_ENDINGS = {"csv": ".csv", "numpy": ".npy", "torch": ".pt"}
_ENDS = [Request(name=name, columns=column, kind="id", dtype=np.dtype(np.int64)) for name, column in ((SRC, "0"), (DST, "1"))]

_Fields = dict[NodeType | EdgeType, dict[str, str]]
"""Node or edge type -> field -> file."""


def is_graphbolt(path: Path) -> bool:
    """Tell whether a folder has the layout."""
    return (path / _FILE).exists() or (path / _PREPROCESSED / _FILE).exists()


def open_graphbolt(
    path: Path, split: str | None = None, node_fields: Mapping[str, str] | None = None, edge_fields: Mapping[str, str] | None = None
) -> Source:
    """Open a data set.

    Args:
        path: its folder; or its `preprocessed` folder, to read that although the raw files are there.
        split: the task whose seeds and labels to take; required if the seeds of several are nodes.
        node_fields, edge_fields: field -> feature; by default `x` is the feature `feat`, and others keep their names.
    """
    is_raw = path.name != _PREPROCESSED and (path / _FILE).exists()
    path = path.parent if path.name == _PREPROCESSED else path
    file = path / _FILE if is_raw else path / _PREPROCESSED / _FILE
    top = _Entry(str(file), _read(file))
    graph = top.entry("graph" if is_raw else "graph_topology")
    listed = [*graph.entries("feature_data"), *top.entries("feature_data")]
    left_out = [f"feature {each.text('name')!r} of the graph" for each in listed if each.values.get("domain") not in ("node", "edge")]
    fields = _features(listed, node_fields or {}, "node") | _features(listed, edge_fields or {}, "edge")
    if is_raw:
        counts = {_node_type(each): each.count("num") for each in graph.entries("nodes", is_needed=True)}
        ends = {_edge_type(each): _ends(each, path) for each in graph.entries("edges", is_needed=True)}
        has_edge_ids = True
    else:
        counts, ends, has_edge_ids = open_fused(expand(graph.text("path"), path)[0])
    for kind in [*(end for source_type, _, target_type in ends for end in (source_type, target_type)), *fields]:
        if kind not in counts and kind not in ends:
            shown, *known = (each if isinstance(each, str) else ":".join(each) for each in (kind, *counts, *ends))
            raise InputError(f"{file}: {shown!r} is no type of the graph; they are {', '.join(known)}")
    if not has_edge_ids:
        left_out += [f"feature {field!r} of edges (nothing says which edge a row is of)" for each in ends for field in fields.pop(each, {})]
    source = Source(
        nodes={kind: _nodes(kind, num_nodes, fields.get(kind, {}), path) for kind, num_nodes in counts.items()},
        edges={kind: _edges(kind, table, fields.get(kind, {}), path) for kind, table in ends.items()},
        is_homogeneous={*ends} == {EDGE} and {*counts} == {NODE},
        provenance={"kind": "graphbolt", "files": [path.name], "left_out": left_out},
    )
    if (task := _choose(_tasks(top, path, left_out), split, str(file))) is not None:
        _take(task, source, path)
        source.provenance["task"] = task.name
    if left_out:
        logger.warning("%s: left out: %s", file, "; ".join(left_out))
    for kind in counts:
        if fields.get(kind) and "x" not in fields[kind]:
            shown = (file, kind, ", ".join(fields[kind]), next(iter(fields[kind])))
            logger.warning("%s: %r has features %s, and none is x, which models read: name it, as by --node-field x=%s", *shown)
    return source


def _read(file: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{file}: not a YAML file that can be read ({' '.join(str(error).split())})") from error


@dataclass(frozen=True, slots=True)
class _Entry:
    """A mapping in the file, and where it is, for messages."""

    where: str
    values: Any

    def __post_init__(self) -> None:
        if not isinstance(self.values, dict):
            raise InputError(f"{self.where}: must be names with a value for each, got {self.values!r:.60}")

    def entry(self, key: str) -> _Entry:
        return _Entry(f"{self.where}: {key}", self.values.get(key))

    def entries(self, key: str, *, is_needed: bool = False) -> list[_Entry]:
        found = self.values.get(key)
        found = [] if found is None and not is_needed else found
        if not isinstance(found, list):
            raise InputError(f"{self.where}: {key} must be a list, got {found!r:.60}")
        return [_Entry(f"{self.where}: {key}[{i}]", each) for i, each in enumerate(found)]

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.where}: {key} must be text, got {value!r:.60}")
        return value

    def count(self, key: str) -> int:
        value = self.values.get(key)
        if type(value) is not int or value < 0:
            raise InputError(f"{self.where}: {key} must be a whole number, 0 or more, got {value!r:.60}")
        return value

    def file(self, *formats: str) -> str:
        """Return the name of its file, which must be in one of the formats, and end as such files do."""
        kind, path = self.text("format"), self.text("path")
        if kind not in formats:
            raise InputError(f"{self.where}: format {kind!r} is not known; write {' or '.join(formats)}")
        if not (file_format(Path(path)) == "csv" if kind == "csv" else Path(path).suffix.lower() == _ENDINGS[kind]):
            raise InputError(f"{self.where}: the format is {kind} and {path} does not end in {_ENDINGS[kind]}: rename one of them")
        return path


def _node_type(entry: _Entry) -> NodeType:
    return NODE if entry.values.get("type") is None else entry.text("type")


def _edge_type(entry: _Entry) -> EdgeType:
    if entry.values.get("type") is None:
        return EDGE
    words = entry.text("type").split(":")
    if len(words) != 3:
        raise InputError(f"{entry.where}: edge type {':'.join(words)!r} is not <source type>:<relation>:<destination type>")
    return words[0], words[1], words[2]


def _features(listed: list[_Entry], wanted: Mapping[str, str], domain: str) -> _Fields:
    """Return the features of nodes or edges under the names of their fields."""
    listed = [each for each in listed if each.values.get("domain") == domain]
    known, option = {each.text("name"): None for each in listed}, argument(f"{domain}_fields")
    for feature in wanted.values():
        if feature not in known:
            raise UsageError(f"{option} names {feature!r}, which is no feature of {domain}s; they are {', '.join(known) or 'none'}")
    names = {"feat": "x"} if "x" not in wanted else {}
    names |= {feature: name for name, feature in wanted.items()}
    found: _Fields = {}
    for each in listed:
        kind = _node_type(each) if domain == "node" else _edge_type(each)
        name = names.get(each.text("name"), each.text("name"))
        if name in (ID, SRC, DST) or name in found.get(kind, {}):
            raise InputError(f"{each.where}: a second field or an id would be called {name!r}: name it by {option}")
        found.setdefault(kind, {})[name] = each.file("numpy", "torch")
    return found


def _ends(entry: _Entry, path: Path) -> Table:
    name = entry.file("csv", "numpy")
    if file_format(Path(name)) == "csv":
        return CsvTable(expand(name, path)[0], _ENDS, delimiter=",", has_header=False)
    return open_edge_arrays(name, path)


def _edges(edge_type: EdgeType, ends: Table, fields: Mapping[str, str], path: Path) -> EdgeTable:
    table = join([ends, *open_arrays(fields, path)], ends.name)
    assert table is not None
    return EdgeTable(edge_type=edge_type, table=table)


def _nodes(node_type: NodeType, num_nodes: int, fields: Mapping[str, str], path: Path) -> NodeTable:
    tables = open_arrays(fields, path)
    for table in tables:
        if table.num_rows != num_nodes:
            raise InputError(f"{table.name} has {table.num_rows} rows for {num_nodes} nodes")
    return NodeTable(node_type=node_type, num_nodes=num_nodes, table=join(tables, str(path)))


@dataclass(slots=True)
class _Task:
    """A task whose seeds are nodes: (node type, part, file of the seeds, file of their labels or None)."""

    name: str
    num_classes: int | None
    sets: list[tuple[NodeType, str, str, str | None]] = field(default_factory=list)


def _tasks(top: _Entry, path: Path, left_out: list[str]) -> list[_Task]:
    tasks = []
    for i, entry in enumerate(top.entries("tasks")):
        task = _Task(str(entry.values.get("name") or i), None if entry.values.get("num_classes") is None else entry.count("num_classes"))
        has_links = False
        for key, part in _SETS.items():
            for each in entry.entries(key):
                data = {str(one.values.get("name")): one.file("numpy", "torch") for one in each.entries("data")}
                seeds = data.pop("seeds", None) or data.pop("seed_nodes", None)
                if seeds is None or ":" in str(each.values.get("type")) or len(open_array(expand(seeds, path)[0]).shape) != 1:
                    has_links = True
                    continue
                task.sets.append((_node_type(each), part, seeds, data.pop("labels", None)))
                left_out += [f"{name!r} of {key} in task {task.name!r}" for name in data]
        left_out += [f"links of task {task.name!r} (LinkNeighborLoader takes them as edge_label_index)"] if has_links else []
        tasks += [task] if task.sets else []
    return tasks


def _choose(tasks: list[_Task], name: str | None, file: str) -> _Task | None:
    names = ", ".join(task.name for task in tasks) or "none"
    if name is None and len(tasks) > 1:
        raise InputError(f"{file}: several tasks have nodes as seeds ({names}); choose one by {argument('split', ...)}")
    found = [task for task in tasks if name in (None, task.name)]
    if name is not None and not found:
        raise InputError(f"{file}: no task {name!r} has nodes as seeds; there are {names}")
    return found[0] if found else None


def _take(task: _Task, source: Source, path: Path) -> None:
    """Give the source the splits and labels of a task."""
    labels: dict[NodeType, list[tuple[np.ndarray, np.ndarray]]] = {}
    for node_type, part, seeds_file, labels_file in task.sets:
        if node_type not in source.nodes:
            raise InputError(f"{path}: task {task.name!r} has seeds of {node_type!r}, no type of nodes; they are {', '.join(source.nodes)}")
        seeds = _load(seeds_file, path)
        split: Split = source.splits.setdefault(node_type, {}).setdefault(DEFAULT, {})
        split[part] = index_part(seeds, source.nodes[node_type].num_nodes, str(path / seeds_file))
        if labels_file is not None:
            values = _load(labels_file, path)
            if values.shape[:1] != seeds.shape:
                raise InputError(f"{path / labels_file}: has shape {list(values.shape)}; expected one row for each of {len(seeds)} seeds")
            labels.setdefault(node_type, []).append((seeds.astype(np.int64), values))
    for node_type, pieces in labels.items():
        nodes, name = source.nodes[node_type], f"{path}: labels of task {task.name!r}"
        if nodes.table is not None and LABELS in nodes.table.columns:
            raise InputError(f"{name} and a feature would both be the field 'y' of {node_type!r}: name that by {argument('node_fields')}")
        assert nodes.num_nodes is not None
        table = _labels(pieces, nodes.num_nodes, name, are_classes=task.num_classes is not None)
        nodes.table = join([*([] if nodes.table is None else [nodes.table]), table], str(path))
        nodes.num_classes = task.num_classes


def _load(name: str, path: Path) -> np.ndarray:
    """Load numbers, a row of them for each seed."""
    return array_rows(open_array(expand(name, path)[0])).file.load()


def _labels(pieces: list[tuple[np.ndarray, np.ndarray]], num_nodes: int, name: str, *, are_classes: bool) -> Table:
    """Place labels at their nodes; other nodes have none: -1 if labels are one integer each, else NaN."""
    pieces = [(seeds, values[:, 0] if values.shape[1:] == (1,) else values) for seeds, values in pieces]
    shapes, dtype = {values.shape[1:] for _, values in pieces}, np.result_type(*(values for _, values in pieces))
    if len(shapes) > 1:
        raise InputError(f"{name}: rows have shapes {sorted(map(list, shapes))}; they must agree in all parts")
    is_whole = shapes == {()} and dtype.kind in "biu"
    y = np.full((num_nodes, *shapes.pop()), -1 if is_whole else np.nan, dtype=np.int64 if is_whole else np.result_type(dtype, np.float32))
    for seeds, values in pieces:
        y[seeds] = values
    table = ArrayTable({LABELS: y}, name)
    return LabelTable(table) if are_classes else table
