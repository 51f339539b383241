"""The manifest of a store: what it holds, file by file, as one JSON object that ends in a checksum of itself.

In: entries per node and edge type. Out: bytes, and back. Invariant: whatever bytes are read, the result is a consistent manifest or a
`StoreError` that says what is wrong with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import xxhash

from penstock.errors import MAKE_AGAIN, CorruptStoreError, FormatVersionError, NotAStoreError
from penstock.records import EDGE, NODE, EdgeType, NodeType
from penstock.store.format import BLOCK_BYTES, DTYPES, FORMAT, FORMAT_VERSION, MANIFEST, ArraySpec, row_bytes

_CHECKSUM_KEY = '\n "manifest_xxh3": "'
_END = '"\n}\n'
_FILE = re.compile(r"(nodes|edges)(/(?!\.)[\w.~%+,=@ -]+)+\.npy", re.ASCII)
"""What `file_name` makes of any names: within the store, and nothing but text."""
_MAX_BYTES = 1 << 62
"""Of an array, lengths of zero taken as one: NumPy counts in 63 bits."""


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
    """A second copy of fields of one node type, its rows in another order (see `penstock.store.packing`).

    Readers that know nothing of it read the fields as they always were: the format's version stays the same.

    Attributes:
        rows: int32 or int64[num_nodes]: the row of each node in the copies; a permutation.
        fields: field name -> the copy, of the dtype and shape of the field itself.
        made: how the order was chosen, and what it did to the pages of a batch.
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
    """The edges of one type as a CSC: `indptr`, `indices`, `edge_id` where kept, and fields in CSC order."""

    num_edges: int
    indptr: ArraySpec
    indices: ArraySpec
    edge_id: ArraySpec | None = None
    fields: dict[str, ArraySpec] = field(default_factory=dict)

    def arrays(self) -> Iterator[ArraySpec]:
        """All arrays."""
        yield from (self.indptr, self.indices, *([self.edge_id] if self.edge_id else []), *self.fields.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything that a store says about itself."""

    is_homogeneous: bool
    nodes: dict[NodeType, NodeEntry]
    edges: dict[EdgeType, EdgeEntry]
    provenance: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> Iterator[ArraySpec]:
        """All arrays of the store but the packed copies, which say nothing new."""
        for node in self.nodes.values():
            yield from node.fields.values()
            yield from (spec for parts in node.splits.values() for spec in parts.values())
            yield from node.ids.arrays.values() if node.ids else ()
        for edge in self.edges.values():
            yield from edge.arrays()

    def all_arrays(self) -> Iterator[ArraySpec]:
        """The same and those of all packed copies: whatever has a file."""
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
            "nodes": _to_json(self.nodes),
            "edges": [{"type": name, **_to_json(entry)} for name, entry in self.edges.items()],
            "provenance": self.provenance,
        }
        text = json.dumps(document, indent=1, ensure_ascii=True, default=str).removesuffix("\n}") + "," + _CHECKSUM_KEY
        return (text + xxhash.xxh3_64_hexdigest(text.encode()) + _END).encode()


def parse_manifest(raw: bytes, store: object) -> Manifest:
    """Parse and check the bytes of a manifest.

    Args:
        raw: content of the file.
        store: how to call the store in messages.
    """
    where = f"{store}: {MANIFEST}"
    try:
        document = json.loads(raw, parse_float=_number, parse_constant=_number, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise CorruptStoreError(f"{where} is not readable as JSON ({error}): the store is damaged; {MAKE_AGAIN}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise NotAStoreError(f"{where} is not that of a Penstock store (its \"format\" is not '{FORMAT}')")
    version = document.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise FormatVersionError(
            f"{where} has format version {version}, this Penstock reads up to {FORMAT_VERSION}: install a newer Penstock"
        )
    body, key, tail = raw.rpartition(_CHECKSUM_KEY.encode())
    if not key or tail != (xxhash.xxh3_64_hexdigest(body + key) + _END).encode():
        raise CorruptStoreError(f"{where} does not match its own checksum: it was damaged or edited; {MAKE_AGAIN}")
    try:
        return _from_json(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptStoreError(f"{where} is inconsistent: {type(error).__name__}: {error}") from None


def _to_json(value: Any) -> Any:
    """Entries by the names of their fields, those left out that are None."""
    if isinstance(value, ArraySpec):
        spec = {"file": value.file, "dtype": value.dtype, "shape": value.shape, "bytes": value.data_bytes, "xxh3": value.checksums}
        return spec | ({"properties": value.properties} if value.properties else {})
    if is_dataclass(value):
        return {each.name: _to_json(found) for each in fields(value) if (found := getattr(value, each.name)) is not None}
    return {key: _to_json(each) for key, each in value.items()} if isinstance(value, dict) else value


def _from_json(document: dict[str, Any]) -> Manifest:
    _demand(document["checksum_block_bytes"] == BLOCK_BYTES, f"checksum_block_bytes must be {BLOCK_BYTES}")
    _demand(isinstance(document["edges"], list), "edges must be a list")
    is_homogeneous = document["is_homogeneous"]
    _demand(isinstance(is_homogeneous, bool), "is_homogeneous must be true or false")
    nodes = {name: _node_from_json(name, entry) for name, entry in document["nodes"].items()}
    edges = {}
    for entry in document["edges"]:
        source, _, destination = edge_type = tuple(_texts(entry["type"]))
        _demand(source in nodes, f"edges start at the node type {source!r}, which is not there")
        _demand(edge_type not in edges, f"edges {edge_type} are there twice")
        edges[edge_type] = _edge_from_json(entry, nodes[destination].num_nodes)
    _demand(not is_homogeneous or ([*nodes], [*edges]) == ([NODE], [EDGE]), "is_homogeneous must be false for such types")
    manifest = Manifest(is_homogeneous=is_homogeneous, nodes=nodes, edges=edges, provenance=dict(document["provenance"]))
    files = [spec.file for spec in manifest.all_arrays()]
    _demand(len(files) == len({*files}), "a file holds two arrays")
    return manifest


def _node_from_json(name: NodeType, document: dict[str, Any]) -> NodeEntry:
    num_nodes = _count(document["num_nodes"])
    ids = _ids_from_json(name, document["ids"], num_nodes) if "ids" in document else None
    fields = {key: _spec_from_json(spec, num_nodes) for key, spec in document["fields"].items()}
    return NodeEntry(
        num_nodes=num_nodes,
        fields=fields,
        splits={split: {part: _part_from_json(spec) for part, spec in parts.items()} for split, parts in document["splits"].items()},
        ids=ids,
        packed=_packed_from_json(document["packed"], fields, num_nodes) if "packed" in document else None,
    )


def _part_from_json(document: dict[str, Any]) -> ArraySpec:
    spec = _spec_from_json(document)
    _demand(spec.dtype == "int64" and len(spec.shape) == 1, f"{spec.file} must be int64, a list")
    return spec


def _packed_from_json(document: dict[str, Any], fields: dict[str, ArraySpec], num_nodes: int) -> PackedEntry:
    rows = _spec_from_json(document["rows"], num_nodes)
    _demand(rows.dtype in ("int32", "int64") and len(rows.shape) == 1, f"{rows.file} must be int32 or int64 [{num_nodes}]")
    copies = {key: _spec_from_json(spec, num_nodes) for key, spec in document["fields"].items()}
    for key, spec in copies.items():
        _demand(key in fields, f"{spec.file} is a copy of a field {key!r}, which is not there")
        _demand((spec.dtype, spec.shape) == (fields[key].dtype, fields[key].shape), f"{spec.file} is not of the kind of {fields[key].file}")
    return PackedEntry(rows=rows, fields=copies, made=dict(document["made"]))


def _ids_from_json(name: NodeType, document: dict[str, Any], num_nodes: int) -> IdEntry:
    entry = IdEntry(
        kind=document["kind"],
        seed=_count(document["seed"]),
        arrays={key: _spec_from_json(spec) for key, spec in document["arrays"].items()},
    )
    _demand(entry.kind in ("int64", "string"), f"ids of {name} have kind {entry.kind!r}")
    num_cells = entry.arrays["id_cells"].shape[0]
    shapes = {"id_rows": (num_nodes,), "id_cells": (num_cells,)}
    if entry.kind == "string":
        shapes |= {"id_offsets": (num_nodes + 1,), "id_bytes": entry.arrays["id_bytes"].shape[:1]}
    else:
        shapes |= {"id": (num_nodes,)}
    for key, shape in shapes.items():
        dtypes = ("uint8",) if key == "id_bytes" else ("int64", "int32") if key == "id_rows" else ("int64",)
        spec = entry.arrays[key]
        _demand(spec.shape == shape and spec.dtype in dtypes, f"{spec.file} must be {dtypes[0]} {list(shape)}")
    _demand(num_cells > 1 and num_cells.bit_count() == 1, f"{entry.arrays['id_cells'].file} has {num_cells} rows, not a power of two")
    return entry


def _edge_from_json(document: dict[str, Any], num_dst: int) -> EdgeEntry:
    num_edges = _count(document["num_edges"])
    indptr = _spec_from_json(document["indptr"], num_dst + 1)
    indices = _spec_from_json(document["indices"], num_edges)
    _demand(indptr.dtype == "int64" and indptr.shape == (num_dst + 1,), f"{indptr.file} must be int64 [{num_dst + 1}]")
    edge_id = _spec_from_json(document["edge_id"], num_edges) if "edge_id" in document else None
    for spec in (indices, *([edge_id] if edge_id else [])):
        _demand(spec.dtype in ("int32", "int64") and len(spec.shape) == 1, f"{spec.file} must be int32 or int64 [{num_edges}]")
    return EdgeEntry(
        num_edges=num_edges,
        indptr=indptr,
        indices=indices,
        edge_id=edge_id,
        fields={key: _spec_from_json(spec, num_edges) for key, spec in document["fields"].items()},
    )


def _spec_from_json(document: dict[str, Any], num_rows: int | None = None) -> ArraySpec:
    spec = ArraySpec(
        file=document["file"],
        dtype=document["dtype"],
        shape=tuple(_count(length) for length in document["shape"]),
        checksums=tuple(_texts(document["xxh3"])),
        properties=dict(document.get("properties", {})),
    )
    _demand(_FILE.fullmatch(spec.file) is not None, f"{spec.file!r} is no file of an array of a store")
    _demand(spec.dtype in DTYPES and 1 <= len(spec.shape) <= 32, f"{spec.file} has dtype {spec.dtype} and shape {spec.shape}")
    _demand(row_bytes(spec.storage_dtype, tuple(n or 1 for n in spec.shape)) <= _MAX_BYTES, f"{spec.file} has shape {spec.shape}")
    _demand(num_rows in (None, *spec.shape[:1]), f"{spec.file} has shape {spec.shape} for {num_rows} rows")
    _demand(len(spec.checksums) == -(-spec.data_bytes // BLOCK_BYTES), f"{spec.file} has {len(spec.checksums)} checksums")
    if "num_classes" in spec.properties or "class_names" in spec.properties:
        num_classes = _count(spec.properties["num_classes"])
        names = _texts(spec.properties.get("class_names", []))
        _demand(len(names) in (0, num_classes), f"{spec.file} has {len(names)} names for {num_classes} classes")
    return spec


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; which of two values of one name counts would be the reader's choice."""
    document = dict(pairs)
    _demand(len(document) == len(pairs), "an object has a name twice")
    "".join(document).encode()  # raises for half a character
    return document


def _number(text: str) -> Any:
    """A number of JSON with a point or exponent; what is none there (NaN) or infinite stays text, for it could not be written again."""
    value = float(text)
    return value if math.isfinite(value) else text


def _texts(value: Any) -> list[str]:
    _demand(isinstance(value, list) and all(isinstance(each, str) for each in value), f"{value!r:.60} is no list of texts")
    "".join(value).encode()  # raises for half a character
    return value


def _count(value: Any) -> int:
    _demand(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62, f"{value!r} is not a count")
    return value


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
