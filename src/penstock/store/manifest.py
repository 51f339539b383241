"""The manifest of a store: its contents, file by file, as one JSON object that ends in a checksum of itself.

In: entries per node and edge type. Out: bytes, and back. Invariant: whatever bytes are read, the result is a consistent manifest or a
`StoreError` that says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.records import EDGE, NODE, EdgeType, NodeType
from penstock.store.format import BLOCK_BYTES, ENDS, FORMAT, FORMAT_VERSION, MANIFEST, ArraySpec
from penstock.store.sealed import count, demand, parse, seal, spec_from_json, texts, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class IdEntry:
    """The user's ids of a mapped node type.

    Attributes:
        kind: "int64" or "string".
        seed: of the hash that the table is built on.
        arrays: `id` (int64[num_nodes]) or `id_offsets` (int64[num_nodes + 1]) and `id_bytes` (uint8): the ids in node order;
            `id_cells` and `id_rows`: the table that finds them, see `penstock.store.idmap`.
    """

    kind: str
    seed: int
    arrays: dict[str, ArraySpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedEntry:
    """A second copy of fields of one node type, with rows in another order (see `penstock.store.packing`).

    Readers that do not know it read the original fields, so the version of the format is the same.

    Attributes:
        rows: int32 or int64[num_nodes]: the row of each node in the copies; a permutation.
        fields: field name -> the copy, of the dtype and shape of the field itself.
        made: how the order was chosen, and how many pages a batch reads with it.
    """

    rows: ArraySpec
    fields: dict[str, ArraySpec]
    made: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> Iterator[ArraySpec]:
        """All arrays."""
        yield from (self.rows, *self.fields.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEntry:
    """The nodes of one type: their fields, splits (split name -> part -> ascending node ids), the user's ids, and a packed copy."""

    num_nodes: int
    fields: dict[str, ArraySpec] = field(default_factory=dict)
    splits: dict[str, dict[str, ArraySpec]] = field(default_factory=dict)
    ids: IdEntry | None = None
    packed: PackedEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeEntry:
    """The edges of one type as a CSC: `indptr`, `indices`, `edge_id` if kept, and fields in CSC order.

    Attributes:
        links: part -> column -> array, of edges that were held out of the graph (see `penstock.hold_out`): `src`, `dst`, `edge_id` if
            kept, and the fields. Readers that do not know them read the graph, so the version of the format is the same.
    """

    num_edges: int
    indptr: ArraySpec
    indices: ArraySpec
    edge_id: ArraySpec | None = None
    fields: dict[str, ArraySpec] = field(default_factory=dict)
    links: dict[str, dict[str, ArraySpec]] = field(default_factory=dict)

    def arrays(self) -> Iterator[ArraySpec]:
        """All arrays."""
        yield from (self.indptr, self.indices, *([self.edge_id] if self.edge_id else []), *self.fields.values())
        yield from (spec for columns in self.links.values() for spec in columns.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The description of a store."""

    is_homogeneous: bool
    nodes: dict[NodeType, NodeEntry]
    edges: dict[EdgeType, EdgeEntry]
    provenance: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> Iterator[ArraySpec]:
        """All arrays of the store except packed copies, which have no new content."""
        for node in self.nodes.values():
            yield from node.fields.values()
            yield from (spec for parts in node.splits.values() for spec in parts.values())
            yield from node.ids.arrays.values() if node.ids else ()
        for edge in self.edges.values():
            yield from edge.arrays()

    def all_arrays(self) -> Iterator[ArraySpec]:
        """All arrays that have a file, including those of packed copies."""
        yield from self.arrays()
        for node in self.nodes.values():
            yield from node.packed.arrays() if node.packed else ()

    def to_bytes(self) -> bytes:
        """Serialise."""
        document = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "checksum_block_bytes": BLOCK_BYTES,
            "is_homogeneous": self.is_homogeneous,
            "nodes": to_json(self.nodes),
            "edges": [{"type": name, **to_json(entry)} for name, entry in self.edges.items()],
            "provenance": self.provenance,
        }
        return seal(document)


def parse_manifest(raw: bytes, store: object) -> Manifest:
    """Parse and check the bytes of a manifest.

    Args:
        raw: content of the file.
        store: path of the store, for messages.
    """
    return parse(raw, f"{store}: {MANIFEST}", FORMAT, FORMAT_VERSION, _from_json)


def _from_json(document: dict[str, Any]) -> Manifest:
    demand(document["checksum_block_bytes"] == BLOCK_BYTES, f"checksum_block_bytes must be {BLOCK_BYTES}")
    demand(isinstance(document["edges"], list), "edges must be a list")
    is_homogeneous = document["is_homogeneous"]
    demand(isinstance(is_homogeneous, bool), "is_homogeneous must be true or false")
    nodes = {name: _node_from_json(name, entry) for name, entry in document["nodes"].items()}
    edges = {}
    for entry in document["edges"]:
        source, _, destination = edge_type = tuple(texts(entry["type"]))
        demand(source in nodes, f"edges start at the node type {source!r}, which is not there")
        demand(edge_type not in edges, f"edges {edge_type} are there twice")
        edges[edge_type] = _edge_from_json(entry, nodes[destination].num_nodes)
    demand(not is_homogeneous or ([*nodes], [*edges]) == ([NODE], [EDGE]), "is_homogeneous must be false for such types")
    manifest = Manifest(is_homogeneous=is_homogeneous, nodes=nodes, edges=edges, provenance=dict(document["provenance"]))
    files = [spec.file for spec in manifest.all_arrays()]
    demand(len(files) == len({*files}), "a file holds two arrays")
    return manifest


def _node_from_json(name: NodeType, document: dict[str, Any]) -> NodeEntry:
    num_nodes = count(document["num_nodes"])
    ids = _ids_from_json(name, document["ids"], num_nodes) if "ids" in document else None
    fields = {key: spec_from_json(spec, num_nodes) for key, spec in document["fields"].items()}
    return NodeEntry(
        num_nodes=num_nodes,
        fields=fields,
        splits={split: {part: _part_from_json(spec) for part, spec in parts.items()} for split, parts in document["splits"].items()},
        ids=ids,
        packed=_packed_from_json(document["packed"], fields, num_nodes) if "packed" in document else None,
    )


def _part_from_json(document: dict[str, Any]) -> ArraySpec:
    spec = spec_from_json(document)
    demand(spec.dtype == "int64" and len(spec.shape) == 1, f"{spec.file} must be int64, a list")
    return spec


def _packed_from_json(document: dict[str, Any], fields: dict[str, ArraySpec], num_nodes: int) -> PackedEntry:
    rows = spec_from_json(document["rows"], num_nodes)
    demand(rows.dtype in ("int32", "int64") and len(rows.shape) == 1, f"{rows.file} must be int32 or int64 [{num_nodes}]")
    copies = {key: spec_from_json(spec, num_nodes) for key, spec in document["fields"].items()}
    for key, spec in copies.items():
        demand(key in fields, f"{spec.file} is a copy of a field {key!r}, which is not there")
        demand((spec.dtype, spec.shape) == (fields[key].dtype, fields[key].shape), f"{spec.file} is not of the kind of {fields[key].file}")
    return PackedEntry(rows=rows, fields=copies, made=dict(document["made"]))


def _ids_from_json(name: NodeType, document: dict[str, Any], num_nodes: int) -> IdEntry:
    entry = IdEntry(
        kind=document["kind"],
        seed=count(document["seed"]),
        arrays={key: spec_from_json(spec) for key, spec in document["arrays"].items()},
    )
    demand(entry.kind in ("int64", "string"), f"ids of {name} have kind {entry.kind!r}")
    num_cells = entry.arrays["id_cells"].shape[0]
    shapes = {"id_rows": (num_nodes,), "id_cells": (num_cells,)}
    if entry.kind == "string":
        shapes |= {"id_offsets": (num_nodes + 1,), "id_bytes": entry.arrays["id_bytes"].shape[:1]}
    else:
        shapes |= {"id": (num_nodes,)}
    for key, shape in shapes.items():
        dtypes = ("uint8",) if key == "id_bytes" else ("int64", "int32") if key == "id_rows" else ("int64",)
        spec = entry.arrays[key]
        demand(spec.shape == shape and spec.dtype in dtypes, f"{spec.file} must be {dtypes[0]} {list(shape)}")
    demand(num_cells > 1 and num_cells.bit_count() == 1, f"{entry.arrays['id_cells'].file} has {num_cells} rows, not a power of two")
    return entry


def _edge_from_json(document: dict[str, Any], num_dst: int) -> EdgeEntry:
    num_edges = count(document["num_edges"])
    indptr = spec_from_json(document["indptr"], num_dst + 1)
    indices = spec_from_json(document["indices"], num_edges)
    demand(indptr.dtype == "int64" and indptr.shape == (num_dst + 1,), f"{indptr.file} must be int64 [{num_dst + 1}]")
    edge_id = spec_from_json(document["edge_id"], num_edges) if "edge_id" in document else None
    for spec in (indices, *([edge_id] if edge_id else [])):
        demand(spec.dtype in ("int32", "int64") and len(spec.shape) == 1, f"{spec.file} must be int32 or int64 [{num_edges}]")
    return EdgeEntry(
        num_edges=num_edges,
        indptr=indptr,
        indices=indices,
        edge_id=edge_id,
        fields={key: spec_from_json(spec, num_edges) for key, spec in document["fields"].items()},
        links=links_from_json(document.get("links", {})),
    )


def links_from_json(document: dict[str, Any]) -> dict[str, dict[str, ArraySpec]]:
    """Return the links of an edge type, by part and column."""
    return {part: _columns_from_json(columns) for part, columns in document.items()}


def _columns_from_json(document: dict[str, Any]) -> dict[str, ArraySpec]:
    columns = {name: spec_from_json(spec) for name, spec in document.items()}
    for spec in (columns[end] for end in ENDS):
        demand(spec.dtype in ("int32", "int64") and len(spec.shape) == 1, f"{spec.file} must be int32 or int64, a list")
    num_links = columns[ENDS[0]].shape[0]
    for spec in columns.values():
        demand(spec.shape[0] == num_links, f"{spec.file} has {spec.shape[0]} rows for {num_links} links")
    return columns
