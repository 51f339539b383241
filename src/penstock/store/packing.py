"""The packed copy of node features: rows that are read together share pages; a mapping tells where each node's row is.

In: an open change of a store and the row of each node of one type. Out: for each field a copy with its rows in that order, and one mapping
from nodes to rows. Invariants: the fields themselves, ids, batches and digests do not change; a copy is always found with its own mapping,
since one manifest names both and a new copy has new files.
The order is chosen by `penstock.cache.packing`; what it brings: docs/design/layout.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.errors import InputError, UsageError
from penstock.records import NodeType, index_dtype
from penstock.store.change import StoreChange
from penstock.store.format import file_name as as_file_name
from penstock.store.format import folder_of_nodes
from penstock.store.manifest import Manifest, NodeEntry, PackedEntry
from penstock.store.opened import Store
from penstock.store.progress import Progress, Quiet, stage
from penstock.store.reorder import reorder

_BLOCK = 1 << 18
"""Nodes per temporary array."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed copy, for readers of pages.

    Attributes:
        arrays: per field, storage dtype[num_nodes, ...]: maps of the copies, read-only.
        rows: int32 or int64[num_nodes], in memory: the row of each node.
        made: how the order was chosen.
    """

    arrays: list[np.ndarray]
    rows: np.ndarray
    made: dict[str, Any]


def packed_of(store: Store, node_type: NodeType | None, fields: Sequence[str]) -> Packed | None:
    """Return the packed copies of all these fields of a node type (None: the only type), or None unless each has one.

    Raises:
        CorruptStoreError: the manifest names copies that are missing or incomplete.
    """
    entry = store.node_entry(node_type).packed
    if entry is None or not fields or any(name not in entry.fields for name in fields):
        return None
    specs = [entry.fields[name] for name in fields]
    for spec in (entry.rows, *specs):
        store.array_file(spec).check_shape()
    rows = store.array_file(entry.rows).read(0, entry.rows.shape[0])
    return Packed([store.map(spec) for spec in specs], rows, entry.made)


def pack(
    change: StoreChange,
    node_type: NodeType,
    rows: np.ndarray,
    fields: Sequence[str],
    *,
    made: dict[str, Any],
    work_bytes: int,
    progress: Progress | None = None,
) -> None:
    """Write copies of fields with rows in a given order, in place of existing copies of this type, and commit.

    Args:
        change: an entered `StoreChange`.
        node_type, fields: what is copied.
        rows: the row of each node, from `rows_of`.
        made: how the order was chosen; plain data, kept in the manifest.
        work_bytes: most memory to use, beside the mapping.
        progress: receives bytes.
    """
    progress, entry, folder = progress or Quiet(), change.store.node_entry(node_type), folder_of_nodes(node_type)
    if rows.shape != (entry.num_nodes,):
        raise InputError(f"'{node_type}' has {entry.num_nodes} nodes, the order is of {rows.size}: was the store replaced meanwhile?")
    copies = {}
    for name in fields:
        spec = entry.fields[name]
        writer = change.array(f"{folder}/{as_file_name(name)}.packed", spec.dtype, spec.shape[1:])
        with stage(progress, f"pack {node_type} {name}", 2 * spec.data_bytes, "bytes"):
            reorder(change.store.array_file(spec), rows, writer, change.scratch, work_bytes, progress)
        copies[name] = writer.finish()
    mapping = change.array(f"{folder}/packed_rows", rows.dtype.name)
    mapping.append(rows)
    change.commit(_with(change.store.manifest, node_type, PackedEntry(rows=mapping.finish(), fields=copies, made=made)))


def drop(change: StoreChange, node_types: Sequence[NodeType]) -> None:
    """Remove the packed copies of some types, and commit."""
    manifest = change.store.manifest
    for node_type in node_types:
        manifest = _with(manifest, node_type, None)
    change.commit(manifest)


def rows_of(nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """Invert the node of each row to the row of each node: int32[num_nodes] if that fits, else int64.

    Raises:
        InputError: a node is missing, occurs twice, or does not exist.
    """
    nodes = np.asarray(nodes)
    if nodes.shape != (num_nodes,) or nodes.dtype.kind not in "iu":
        raise InputError(f"an order holds every node once, [{num_nodes}]; got {nodes.dtype} {list(nodes.shape)}")
    rows = np.full(num_nodes, -1, index_dtype(num_nodes))
    if num_nodes and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
        raise InputError(f"an order of {num_nodes} nodes has nodes from {nodes.min()} to {nodes.max()}")
    for first in range(0, num_nodes, _BLOCK):
        block = nodes[first : first + _BLOCK]
        rows[block] = np.arange(first, first + block.size, dtype=rows.dtype)
    if num_nodes and int(rows.min()) < 0:
        raise InputError(f"an order holds every node once; node {int(np.argmin(rows))} is missing")
    return rows


def choose_fields(entry: NodeEntry, node_type: NodeType, names: Sequence[str] | None) -> list[str]:
    """Return the fields to copy: those named, or, for None, all with more than one number per row. Refuses unknown names."""
    if names is None:
        names = [name for name, spec in entry.fields.items() if len(spec.shape) > 1 and spec.row_bytes]
    for name in names:
        if name not in entry.fields:
            raise UsageError(f"'{node_type}' has no field '{name}'; it has {', '.join(entry.fields) or 'none'}")
    if entry.num_nodes == 0 or not names:
        what = "nodes" if entry.num_nodes == 0 else "fields of more than one number a row"
        raise UsageError(f"there is nothing to pack: '{node_type}' has no {what}")
    return list(dict.fromkeys(names))


def _with(manifest: Manifest, node_type: NodeType, packed: PackedEntry | None) -> Manifest:
    nodes = {name: replace(entry, packed=packed) if name == node_type else entry for name, entry in manifest.nodes.items()}
    return replace(manifest, nodes=nodes)
