"""Graphs in one `.npz` archive, recognised by the keys in it.

In: the path of an archive without pickled objects. Out: a Source whose tables stream from the archive. Families:

    edge_index, num_nodes                     one graph: x or its CSR triplet, y or y_multi, *_mask [N] or [N, S], edge_weight, fields
    node_types, edge_types, edge_index__*     typed: x__<type>, y__<type>, and train_idx_<split> etc. for `target_type`
    train_triples (head, relation, tail)      knowledge graph: the train triples as edges, with the relation as the edge field `edge_type`
    train_edge_index, num_users, num_items    interactions: the train pairs as user -> item edges
    graph_ptr, node_label                     many small graphs as one: x one-hot of the label; graph, y_graph, fold for each node

A knowledge graph is one edge type with a relation number per edge, as in PyG's own data sets: hundreds of edge types would make
hundreds of nearly empty adjacencies. Held-out triples and pairs are not edges of the graph and are left in the archive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.records import EDGE, NODE, EdgeType
from penstock.sources.array_file import ArrayFile, open_npz
from penstock.sources.array_table import ArrayFileTable, ArrayRows, SparseRowsTable, array_rows, edge_columns
from penstock.sources.source import ArrayTable, EdgeTable, NodeTable, Source, Table
from penstock.sources.splits import PARTS, Split, index_part, mask_splits
from penstock.sources.tables import JoinedTable

Arrays = dict[str, ArrayFile]

MAX_NOTED_NAMES = 1000
"""Names of classes and relations are kept in the provenance up to this many."""

_NOT_FIELDS = ("edge_index", "edge_weight", "x", "y", "y_multi", "num_nodes", "directed", "class_names", "num_classes")


def open_npz_graph(path: Path) -> Source:
    """Open an archive of one of the families above."""
    arrays = open_npz(path)
    for key, family in (
        ("node_types", _typed),
        ("train_triples", _knowledge_graph),
        ("train_edge_index", _interactions),
        ("graph_ptr", _small_graphs),
        ("edge_index", _one_graph),
    ):
        if key in arrays:
            source = family(path, arrays)
            source.provenance = {"kind": "npz", "files": [path.name], **_notes(arrays), **source.provenance}
            return source
    raise InputError(
        f"{path}: no graph that is known here; its keys are {', '.join(sorted(arrays)[:12]) or 'none'}, "
        "expected edge_index, or node_types with edge_types, or train_triples, or train_edge_index, or graph_ptr"
    )


def _notes(arrays: Arrays) -> dict[str, Any]:
    """Small facts about the graph: scalars such as num_classes and directed, and the names of classes and relations."""
    notes: dict[str, Any] = {key: array.load().item() for key, array in arrays.items() if array.shape == ()}
    for key in ("class_names", "relation_names"):
        if key in arrays and arrays[key].shape[0] <= MAX_NOTED_NAMES:
            notes[key] = arrays[key].load().tolist()
    return notes


def _need(path: Path, arrays: Arrays, *keys: str) -> list[ArrayFile]:
    for key in keys:
        if key not in arrays:
            raise InputError(f"{path}: has no array {key!r}, which this layout needs; its keys are {', '.join(sorted(arrays)[:12])}")
    return [arrays[key] for key in keys]


def _feature_table(path: Path, arrays: Arrays, stem: str, key: str) -> Table | None:
    """Return the table of a feature matrix called `stem` in the archive, dense or as CSR triplet, as column `key`."""
    if stem in arrays:
        return ArrayFileTable({key: array_rows(arrays[stem])}, f"{path}:{stem}")
    if f"{stem}_indptr" not in arrays:
        return None
    indptr, indices, shape = _need(path, arrays, f"{stem}_indptr", f"{stem}_indices", f"{stem}_shape")
    num_rows, num_columns = (int(size) for size in shape.load())
    if indptr.shape != (num_rows + 1,):
        raise InputError(f"{path}:{stem}_indptr has {indptr.shape[0]} entries for {num_rows} rows; it needs one more than there are rows")
    return SparseRowsTable(key, indptr, indices, arrays.get(f"{stem}_data"), num_columns, f"{path}:{stem}")


def _joined(path: Path, parts: list[Table | None], num_nodes: int) -> Table | None:
    """Put node tables side by side, each with `num_nodes` rows."""
    present = [part for part in parts if part is not None]
    for part in present:
        if part.num_rows != num_nodes:
            raise InputError(f"{part.name} has {part.num_rows} rows for {num_nodes} nodes")
    if len(present) <= 1:
        return present[0] if present else None
    return JoinedTable(present, str(path))


def _scalar(path: Path, arrays: Arrays, key: str) -> int:
    return int(_need(path, arrays, key)[0].load())


def _node_fields(arrays: Arrays, num_nodes: int) -> dict[str, Any]:
    """Every other array with one row per node is a field under its own name."""
    used = (*_NOT_FIELDS, *(key for key in arrays if key.startswith("x_") or key.endswith("_mask")))
    fields = {
        key: array_rows(array)
        for key, array in arrays.items()
        if key not in used and array.dtype.kind in "biuf" and len(array.shape) in (1, 2) and array.shape[0] == num_nodes
    }
    for key in ("y", "y_multi"):
        if key in arrays:
            fields["y"] = _label_rows(arrays[key], num_nodes)
    return fields


def _num_classes(arrays: Arrays) -> int | None:
    if "num_classes" in arrays:
        return int(arrays["num_classes"].load())
    return arrays["class_names"].shape[0] if "class_names" in arrays else None


def _label_rows(labels: ArrayFile, num_nodes: int) -> ArrayRows:
    if len(labels.shape) not in (1, 2) or labels.shape[0] != num_nodes:
        raise InputError(
            f"{labels.name}: labels have shape {list(labels.shape)} for {num_nodes} nodes; expected one class per node, "
            "or one row per node with a column per class"
        )
    return array_rows(labels)


def _one_graph(path: Path, arrays: Arrays) -> Source:
    num_nodes = _scalar(path, arrays, "num_nodes")
    edges = edge_columns(arrays["edge_index"])
    if "edge_weight" in arrays:
        edges["weight"] = array_rows(arrays["edge_weight"])
    fields = _node_fields(arrays, num_nodes)
    parts = [_feature_table(path, arrays, "x", "x"), ArrayFileTable(fields, str(path)) if fields else None]
    masks = {part: arrays[f"{part}_mask"] for part in PARTS if f"{part}_mask" in arrays}
    splits = mask_splits(masks, num_nodes, str(path))
    return Source(
        nodes={
            NODE: NodeTable(node_type=NODE, num_nodes=num_nodes, table=_joined(path, parts, num_nodes), num_classes=_num_classes(arrays))
        },
        edges={EDGE: EdgeTable(edge_type=EDGE, table=ArrayFileTable(edges, f"{path}:edge_index"))},
        is_homogeneous=True,
        splits={NODE: splits} if splits else {},
    )


def _typed(path: Path, arrays: Arrays) -> Source:
    types, edge_types, counts = (array.load().tolist() for array in _need(path, arrays, "node_types", "edge_types", "num_nodes"))
    nodes, edges = {}, {}
    for node_type, num_nodes in zip(types, counts, strict=True):
        y = arrays.get(f"y__{node_type}")
        labels = None if y is None else ArrayFileTable({"y": _label_rows(y, num_nodes)}, y.name)
        table = _joined(path, [_feature_table(path, arrays, f"x__{node_type}", "x"), labels], num_nodes)
        nodes[node_type] = NodeTable(node_type=node_type, num_nodes=num_nodes, table=table)
    for name in edge_types:
        edge_type = _edge_type(path, name, types)
        (edge_index,) = _need(path, arrays, f"edge_index__{name}")
        edges[edge_type] = EdgeTable(edge_type=edge_type, table=ArrayFileTable(edge_columns(edge_index), edge_index.name))
    splits = {}
    if "target_type" in arrays:
        target = str(arrays["target_type"].load())
        found = _index_splits(arrays, counts[types.index(target)])
        splits = {target: found} if found else {}
    return Source(nodes=nodes, edges=edges, is_homogeneous=False, splits=splits)


def _edge_type(path: Path, name: str, node_types: list[str]) -> EdgeType:
    words = name.split("__")
    if len(words) != 3 or words[0] not in node_types or words[2] not in node_types:
        raise InputError(f"{path}: edge type {name!r} is not <source type>__<relation>__<destination type> over {', '.join(node_types)}")
    return words[0], words[1], words[2]


def _index_splits(arrays: Arrays, num_nodes: int) -> dict[str, Split]:
    """Read `train_idx_20`, `val_idx_20`, ...: the word after `idx_` names the split."""
    splits: dict[str, Split] = {}
    for part in PARTS:
        for key in sorted(arrays):
            if key.startswith(f"{part}_idx_"):
                name = key.removeprefix(f"{part}_idx_")
                splits.setdefault(name, {})[part] = index_part(arrays[key].load(), num_nodes, arrays[key].name)
    return splits


def _knowledge_graph(path: Path, arrays: Arrays) -> Source:
    num_nodes, triples = _scalar(path, arrays, "num_nodes"), arrays["train_triples"]
    if len(triples.shape) != 2 or triples.shape[1] != 3:
        raise InputError(f"{triples.name}: has shape {list(triples.shape)}; triples have shape [number, 3] as (head, relation, tail)")
    head, relation, tail = (array_rows(triples, 0, column) for column in range(3))
    table = ArrayFileTable({"src": head, "dst": tail, "edge_type": relation}, triples.name)
    nodes = NodeTable(node_type=NODE, num_nodes=num_nodes, table=_feature_table(path, arrays, "entity_types", "x"))
    return Source(nodes={NODE: nodes}, edges={EDGE: EdgeTable(edge_type=EDGE, table=table)}, is_homogeneous=True)


def _interactions(path: Path, arrays: Arrays) -> Source:
    edge_type = ("user", "interacts", "item")
    edge_index = arrays["train_edge_index"]
    return Source(
        nodes={kind: NodeTable(node_type=kind, num_nodes=_scalar(path, arrays, f"num_{kind}s")) for kind in ("user", "item")},
        edges={edge_type: EdgeTable(edge_type=edge_type, table=ArrayFileTable(edge_columns(edge_index), edge_index.name))},
        is_homogeneous=False,
    )


def _small_graphs(path: Path, arrays: Arrays) -> Source:
    """One disjoint union; what belongs to a graph is repeated for each of its nodes. Held in memory: such sets are small."""
    num_nodes, width = _scalar(path, arrays, "num_nodes"), _scalar(path, arrays, "num_node_labels")
    sizes = np.diff(arrays["graph_ptr"].load())
    fields = {"graph": np.repeat(np.arange(sizes.size), sizes)}
    fields |= {key: np.repeat(arrays[key].load(), sizes) for key in ("y_graph", "fold") if key in arrays}
    labels = arrays["node_label"].load()
    if labels.shape != (num_nodes,) or labels.min(initial=0) < 0 or labels.max(initial=0) >= width or sizes.sum() != num_nodes:
        raise InputError(f"{path}: graph_ptr, node_label and num_node_labels do not fit {num_nodes} nodes")
    one_hot = np.zeros((num_nodes, width), dtype=np.float32)
    one_hot[np.arange(num_nodes), labels] = 1
    nodes = NodeTable(node_type=NODE, num_nodes=num_nodes, table=ArrayTable({"x": one_hot, **fields}, str(path)))
    edges = ArrayFileTable(edge_columns(_need(path, arrays, "edge_index")[0]), f"{path}:edge_index")
    return Source(nodes={NODE: nodes}, edges={EDGE: EdgeTable(edge_type=EDGE, table=edges)}, is_homogeneous=True)
