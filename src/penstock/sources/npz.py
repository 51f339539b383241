"""Graphs in one `.npz` archive, recognised by the keys in it.

In: the path of an archive without pickled objects. Out: a Source whose tables stream from the archive. Families:

    edge_index, num_nodes                     one graph: x or its CSR triplet, y or y_multi, fields of nodes and edges, splits
    node_types, edge_types, edge_index__*     typed: <field>__<node type>, <field>__<edge type>, splits of `target_type` and by type
    train_triples (head, relation, tail)      knowledge graph: the train triples as edges, with the relation as the edge field `edge_type`
    train_edge_index, num_users, num_items    interactions: the train pairs as user -> item edges
    graph_ptr, node_label                     many small graphs as one: x one-hot of the label; graph, y_graph, fold for each node

Fields of nodes and edges are told apart as in PyG: by their number of rows; if there are as many edges as nodes, those named edge_* belong
to the edges. `edge_weight` and `edge_attr` become `weight` and `x`. Splits are train_mask, val_mask, test_mask ([N], or [N, S] for S
splits) and train_idx, train_idx_<split>, ... Arrays that are not used are named in a warning, and in the provenance under "left_out".

A knowledge graph is one edge type with a relation number per edge, as in PyG's own data sets: hundreds of edge types would make
hundreds of nearly empty adjacencies. Held-out triples and pairs are not edges of the graph, and are not ingested.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.records import EDGE, NODE, EdgeType
from penstock.sources.array_file import ArrayFile, open_npz
from penstock.sources.array_table import ArrayFileTable, SparseRowsTable, array_rows, edge_columns
from penstock.sources.pyg import EDGE_FIELD_OF
from penstock.sources.source import ArrayTable, EdgeTable, NodeTable, Source, Table
from penstock.sources.splits import DEFAULT, PARTS, Split, index_part, mask_splits
from penstock.sources.tables import join

logger = logging.getLogger("penstock")

MAX_NOTED_NAMES = 1000
"""Most names of classes or relations that are kept in the provenance."""
MAX_NOTED_BYTES = 1 << 16
"""Largest scalar or name that is kept: a compressed one may expand to gigabytes."""

_FEATURES_AND_LABELS = ("x", "x_indptr", "x_indices", "x_data", "x_shape", "y", "y_multi")


class Archive:
    """The arrays of an archive; each is taken once, by its name.

    Attributes:
        path: of the archive.
        arrays: name -> array.
        left: names of arrays that were not taken yet.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.arrays = path, open_npz(path)
        self.left = set(self.arrays)

    def find(self, key: str) -> ArrayFile | None:
        """Take an array; None if the archive does not have it."""
        self.left.discard(key)
        return self.arrays.get(key)

    def need(self, key: str) -> ArrayFile:
        """Take an array that the archive must have."""
        array = self.find(key)
        if array is None:
            keys = ", ".join(sorted(self.arrays)[:12])
            raise InputError(f"{self.path}: has no array {key!r}, which this layout needs; its keys are {keys}")
        return array

    def count(self, key: str) -> int:
        """Take a scalar that is a count."""
        return _counts(self.need(key), 1)[0]

    def numbers(self) -> dict[str, ArrayFile]:
        """Return the numeric arrays that were not taken yet, in the order of the archive."""
        return {key: array for key, array in self.arrays.items() if key in self.left and array.dtype.kind in "biuf" and array.shape != ()}


def open_npz_graph(path: Path) -> Source:
    """Open an archive of one of the families above."""
    archive = Archive(path)
    for key, family in (
        ("node_types", _typed),
        ("train_triples", _knowledge_graph),
        ("train_edge_index", _interactions),
        ("graph_ptr", _small_graphs),
        ("edge_index", _one_graph),
    ):
        if key in archive.arrays:
            notes = _notes(archive)
            source = family(archive)
            left_out = sorted(archive.left)
            if left_out:
                logger.warning(
                    "%s: left out, for this layout has no place for such names and shapes: %s",
                    path,
                    ", ".join(repr(name)[1:-1] for name in left_out),
                )
            source.provenance = {"kind": "npz", "files": [path.name], **notes, "left_out": left_out}
            return source
    raise InputError(
        f"{path}: no graph that is known here; its keys are {', '.join(sorted(archive.arrays)[:12]) or 'none'}, "
        "expected edge_index, or node_types with edge_types, or train_triples, or train_edge_index, or graph_ptr"
    )


def _notes(archive: Archive) -> dict[str, Any]:
    """Small facts about the graph: scalars such as num_classes and directed, and the names of classes and relations."""
    notes: dict[str, Any] = {}
    for key, array in archive.arrays.items():
        is_name_list = key in ("class_names", "relation_names") and len(array.shape) == 1
        if array.shape == () or is_name_list:
            archive.find(key)
            if math.prod(array.shape) <= MAX_NOTED_NAMES and array.stored_dtype.itemsize <= MAX_NOTED_BYTES:
                notes[key] = array.load().tolist()
    return notes


def _counts(array: ArrayFile, count: int) -> list[int]:
    """Read an array of `count` counts."""
    if array.dtype.kind not in "iu" or math.prod(array.shape) != count:
        wanted = "one whole number" if count == 1 else f"{count} whole numbers"
        raise InputError(f"{array.name}: has shape {list(array.shape)} and dtype {array.dtype}; expected {wanted}")
    values = array.load().ravel().tolist()
    if min(values, default=0) < 0:
        raise InputError(f"{array.name}: holds {min(values)}; it says how many there are")
    return values


def _feature_table(archive: Archive, stem: str) -> Table | None:
    """Return the table of a feature matrix called `stem` in the archive, dense or as CSR triplet, as column `x`."""
    dense = archive.find(stem)
    if dense is not None:
        return ArrayFileTable({"x": array_rows(dense)}, dense.name)
    if f"{stem}_indptr" not in archive.arrays:
        return None
    indptr, indices = (archive.need(f"{stem}_{name}") for name in ("indptr", "indices"))
    num_rows, num_columns = _counts(archive.need(f"{stem}_shape"), 2)
    for array in (indptr, indices):
        if array.dtype.kind not in "iu" or len(array.shape) != 1:
            raise InputError(f"{array.name}: has shape {list(array.shape)} and dtype {array.dtype}; expected a list of whole numbers")
    if indptr.shape != (num_rows + 1,):
        raise InputError(f"{indptr.name} has {indptr.shape[0]} entries for {num_rows} rows; it needs one more than there are rows")
    return SparseRowsTable("x", indptr, indices, archive.find(f"{stem}_data"), num_columns, f"{archive.path}:{stem}")


def _nodes(archive: Archive, suffix: str, num_nodes: int, more: dict[str, ArrayFile]) -> Table | None:
    """Return the fields of one node type: features and labels, whose arrays have names that end in `suffix`, and `more`."""
    fields = {key: array_rows(array) for key, array in more.items()}
    for key in ("y", "y_multi"):
        labels = archive.find(f"{key}{suffix}")
        if labels is not None and "y" in fields:
            raise InputError(f"{archive.path}: y{suffix} and y_multi{suffix} would both be the labels: remove one")
        if labels is not None and (len(labels.shape) not in (1, 2) or labels.shape[0] != num_nodes):
            raise InputError(
                f"{labels.name}: labels have shape {list(labels.shape)} for {num_nodes} nodes; expected one class per node, "
                "or one row per node with a column per class"
            )
        if labels is not None:
            fields["y"] = array_rows(labels)
    for rows in fields.values():
        if rows.num_rows != num_nodes:
            raise InputError(f"{rows.file.name} has {rows.num_rows} rows for {num_nodes} nodes")
    features = _feature_table(archive, f"x{suffix}")
    if features is not None and features.num_rows != num_nodes:
        raise InputError(f"{features.name} has {features.num_rows} rows for {num_nodes} nodes")
    others = ArrayFileTable(fields, str(archive.path)) if fields else None
    return join([part for part in (features, others) if part is not None], str(archive.path))


def _edges(archive: Archive, edge_type: EdgeType, edge_index: ArrayFile, fields: dict[str, ArrayFile]) -> EdgeTable:
    rows, given = edge_columns(edge_index), {"src": "edge_index", "dst": "edge_index"}
    for key, array in fields.items():
        field = EDGE_FIELD_OF.get(key, key)
        if field in rows:
            raise InputError(f"{archive.path}: {given[field]} and {key} would both be {field!r} of the edges: remove or rename one")
        rows[field], given[field] = array_rows(array), key
    return EdgeTable(edge_type=edge_type, table=ArrayFileTable(rows, edge_index.name))


def _splits(archive: Archive, suffix: str, num_nodes: int) -> dict[str, Split]:
    """Read masks, and `train_idx`, `val_idx_20`, ...: the word after `idx_` names the split."""
    masks = {part: mask for part in PARTS if (mask := archive.find(f"{part}_mask{suffix}")) is not None}
    splits = mask_splits(masks, num_nodes, str(archive.path))
    from_masks = set(splits)
    for part in PARTS:
        for key in sorted(key for key in archive.left if key.startswith(f"{part}_idx") and key.endswith(suffix)):
            rest = key.removeprefix(f"{part}_idx").removesuffix(suffix)
            if "__" in rest or rest[:1] not in ("", "_"):
                continue
            name = rest[1:] or DEFAULT
            if name in from_masks:
                raise InputError(f"{archive.path}: split {name!r} is given by masks and by {key}: remove one")
            indices = archive.need(key)
            splits.setdefault(name, {})[part] = index_part(indices.load(), num_nodes, indices.name)
    return splits


def _num_classes(archive: Archive) -> int | None:
    if "num_classes" in archive.arrays:
        return archive.count("num_classes")
    names = archive.arrays.get("class_names")
    return names.shape[0] if names is not None and len(names.shape) == 1 else None


def _one_graph(archive: Archive) -> Source:
    num_nodes, edge_index = archive.count("num_nodes"), archive.need("edge_index")
    num_edges = edge_index.shape[-1] if edge_index.shape else 0
    splits = _splits(archive, "", num_nodes)
    of_edges = {key: array for key in EDGE_FIELD_OF if (array := archive.find(key)) is not None}
    of_nodes = {}
    for key, array in archive.numbers().items():
        is_of_edges = array.shape[0] == num_edges and (num_edges != num_nodes or key.startswith("edge_"))
        if key not in _FEATURES_AND_LABELS and (is_of_edges or array.shape[0] == num_nodes):
            (of_edges if is_of_edges else of_nodes)[key] = archive.need(key)
    table = _nodes(archive, "", num_nodes, of_nodes)
    return Source(
        nodes={NODE: NodeTable(node_type=NODE, num_nodes=num_nodes, table=table, num_classes=_num_classes(archive))},
        edges={EDGE: _edges(archive, EDGE, edge_index, of_edges)},
        is_homogeneous=True,
        splits={NODE: splits} if splits else {},
    )


def _typed(archive: Archive) -> Source:
    types, edge_types = (_names(archive.need(key)) for key in ("node_types", "edge_types"))
    counts = dict(zip(types, _counts(archive.need("num_nodes"), len(types)), strict=True))
    target = archive.find("target_type")
    target_type = None if target is None else str(target.load())
    if target is not None and target_type not in counts:
        raise InputError(f"{target.name}: {target_type!r} is no node type; they are {', '.join(types)}")
    nodes, edges, splits = {}, {}, {}
    for name in edge_types:
        edge_type, edge_index = _edge_type(archive.path, name, types), archive.need(f"edge_index__{name}")
        edges[edge_type] = _edges(archive, edge_type, edge_index, _fields_of(archive, name))
    for node_type, num_nodes in counts.items():
        found = _splits(archive, f"__{node_type}", num_nodes)
        if not found and node_type == target_type:
            found = _splits(archive, "", num_nodes)
        splits |= {node_type: found} if found else {}
        table = _nodes(archive, f"__{node_type}", num_nodes, _fields_of(archive, node_type))
        nodes[node_type] = NodeTable(node_type=node_type, num_nodes=num_nodes, table=table)
    return Source(nodes=nodes, edges=edges, is_homogeneous=False, splits=splits)


def _names(array: ArrayFile) -> list[str]:
    if array.dtype.kind != "U" or len(array.shape) != 1:
        raise InputError(f"{array.name}: has shape {list(array.shape)} and dtype {array.dtype}; expected a list of names")
    return array.load().tolist()


def _fields_of(archive: Archive, name: str) -> dict[str, ArrayFile]:
    """Take `<field>__<name>` for all fields of a node or edge type, except features and labels of nodes."""
    keys = [key for key in archive.numbers() if key.partition("__")[2] == name]
    fields = {key.partition("__")[0]: key for key in keys}
    return {field: archive.need(key) for field, key in fields.items() if "__" in name or field not in _FEATURES_AND_LABELS}


def _edge_type(path: Path, name: str, node_types: list[str]) -> EdgeType:
    words = name.split("__")
    if len(words) != 3 or words[0] not in node_types or words[2] not in node_types:
        raise InputError(f"{path}: edge type {name!r} is not <source type>__<relation>__<destination type> over {', '.join(node_types)}")
    return words[0], words[1], words[2]


def _knowledge_graph(archive: Archive) -> Source:
    num_nodes, triples = archive.count("num_nodes"), archive.need("train_triples")
    if len(triples.shape) != 2 or triples.shape[1] != 3:
        raise InputError(f"{triples.name}: has shape {list(triples.shape)}; triples have shape [number, 3] as (head, relation, tail)")
    head, relation, tail = (array_rows(triples, 0, column) for column in range(3))
    table = ArrayFileTable({"src": head, "dst": tail, "edge_type": relation}, triples.name)
    nodes = NodeTable(node_type=NODE, num_nodes=num_nodes, table=_feature_table(archive, "entity_types"))
    return Source(nodes={NODE: nodes}, edges={EDGE: EdgeTable(edge_type=EDGE, table=table)}, is_homogeneous=True)


def _interactions(archive: Archive) -> Source:
    edge_type = ("user", "interacts", "item")
    return Source(
        nodes={kind: NodeTable(node_type=kind, num_nodes=archive.count(f"num_{kind}s")) for kind in ("user", "item")},
        edges={edge_type: _edges(archive, edge_type, archive.need("train_edge_index"), {})},
        is_homogeneous=False,
    )


def _small_graphs(archive: Archive) -> Source:
    """Make one graph, the disjoint union; values per graph are repeated for each of its nodes. Kept in memory, since such data sets are
    small."""
    path, num_nodes, width = archive.path, archive.count("num_nodes"), archive.count("num_node_labels")
    sizes = np.diff(archive.need("graph_ptr").load())
    fields = {"graph": np.repeat(np.arange(sizes.size), sizes)}
    fields |= {key: np.repeat(array.load(), sizes) for key in ("y_graph", "fold") if (array := archive.find(key)) is not None}
    labels = archive.need("node_label").load()
    if labels.shape != (num_nodes,) or labels.min(initial=0) < 0 or labels.max(initial=0) >= width or sizes.sum() != num_nodes:
        raise InputError(f"{path}: graph_ptr, node_label and num_node_labels do not fit {num_nodes} nodes")
    one_hot = np.zeros((num_nodes, width), dtype=np.float32)
    one_hot[np.arange(num_nodes), labels] = 1
    nodes = NodeTable(node_type=NODE, num_nodes=num_nodes, table=ArrayTable({"x": one_hot, **fields}, str(path)))
    edges = _edges(archive, EDGE, archive.need("edge_index"), {})
    return Source(nodes={NODE: nodes}, edges={EDGE: edges}, is_homogeneous=True)
