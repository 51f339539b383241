"""A store that is open: its arrays as read-only memory maps.

In: a path. Out: types, counts, fields, topology, splits, the user's ids. Invariants: opening reads the manifest and the headers, never
the data; an array is mapped when it is first asked for; if the store is replaced on disk while it is open, it keeps its contents or raises.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import xxhash

from penstock.errors import (
    MAKE_AGAIN,
    CorruptStoreError,
    MissingFieldError,
    NotAStoreError,
    PenstockError,
    StoreError,
    UsageError,
    argument,
    damaged,
    listed,
    pick,
    reason_of,
)
from penstock.records import CSC, EdgeType, Graph, NodeType
from penstock.store.arrays import ArrayFile
from penstock.store.files import open_file
from penstock.store.format import HELD_OUT, MANIFEST, ArraySpec
from penstock.store.links import HasLinks
from penstock.store.manifest import EdgeEntry, Manifest, NodeEntry, parse_manifest

if TYPE_CHECKING:
    from penstock.store.idmap import IdMap

T = TypeVar("T")


class Store(HasLinks):
    """A graph on disk. Make one with `penstock.ingest`, open it with `penstock.open`.

    Attributes:
        path: absolute path of the folder.
        manifest: the description of the store.
        num_nodes: node type -> count, in the order of the types.
        num_edges: edge type -> count, in the order of the types.
    Cost: opening takes milliseconds for any size. Thread-safe. It is pickled as its path, and accepted wherever the path of a store is.
    """

    def __init__(self, path: str | os.PathLike[str], *, check_arrays: bool = True) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise UsageError(f"a store is opened by the path of its folder; got {type(path).__name__}")
        self.path: Path = Path(os.path.abspath(path))
        try:
            self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            raise NotAStoreError(f"{path} does not exist: give the folder of a store (made by `penstock ingest`)") from None
        except NotADirectoryError:
            raise NotAStoreError(f"{path} is a file: a store is a folder (made by `penstock ingest`)") from None
        except OSError as error:
            raise StoreError(f"cannot open {path}: {reason_of(error)}") from None
        self._finalizer = weakref.finalize(self, os.close, self._folder)
        self.manifest: Manifest = parse_manifest(self._read_manifest(), self.path)
        self.num_nodes: Mapping[NodeType, int] = MappingProxyType({name: entry.num_nodes for name, entry in self.manifest.nodes.items()})
        self.num_edges: Mapping[EdgeType, int] = MappingProxyType({name: entry.num_edges for name, entry in self.manifest.edges.items()})
        self._maps: dict[str, np.ndarray] = {}
        self._id_maps: dict[NodeType, IdMap] = {}
        for spec in self.manifest.arrays() if check_arrays else ():
            self.array_file(spec).check_shape()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open the store at a path.

        Args:
            path: its folder.
        Raises:
            NotAStoreError: nothing is at the path, or something other than a store.
            FormatVersionError: a newer Penstock wrote it.
            CorruptStoreError: manifest, sizes and headers do not agree.
        """
        return cls(path)

    def _read_manifest(self) -> bytes:
        try:
            with open(MANIFEST, "rb", opener=lambda name, flags: open_file(name, flags, dir_fd=self._folder)) as file:
                return file.read()
        except FileNotFoundError:
            raise NotAStoreError(f"{self.path} is not a store: it has no {MANIFEST}") from None
        except IsADirectoryError:
            raise CorruptStoreError(f"{self.path}: {MANIFEST} is a folder: the store is damaged; {MAKE_AGAIN}") from None
        except OSError as error:
            raise StoreError(f"cannot read {self.path / MANIFEST}: {reason_of(error)}") from None

    @property
    def node_types(self) -> list[NodeType]:
        """Node types in their order."""
        return list(self.manifest.nodes)

    @property
    def edge_types(self) -> list[EdgeType]:
        """Edge types in their order, which is part of the random counter."""
        return list(self.manifest.edges)

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one node type and one edge type, and batches are `Data`."""
        return self.manifest.is_homogeneous

    @property
    def num_bytes(self) -> int:
        """Bytes of data in all arrays."""
        return sum(spec.data_bytes for spec in self.manifest.arrays())

    @property
    def digest(self) -> str:
        """16 hex digits computed from the names, shapes and checksums of all arrays, and from counts and names that are in no array. Equal
        contents have equal digests, however they were made."""
        lines = [f"{spec.file} {spec.dtype} {spec.shape} {' '.join(spec.checksums)}" for spec in self.manifest.arrays()]
        lines += [f"{t}: {entry.num_nodes}" for t, entry in self.manifest.nodes.items() if not entry.fields and entry.ids is None]
        for name in ("class_names", "aggregated"):
            lines += [f"{spec.file}: {said}" for spec in self.manifest.arrays() if (said := spec.properties.get(name))]
        return xxhash.xxh3_64_hexdigest("\n".join(lines).encode())

    def array_file(self, spec: ArraySpec) -> ArrayFile:
        """Return a reader of one array, for callers that do not want a map."""
        return ArrayFile(spec, self._folder, self.path)

    def map(self, spec: ArraySpec) -> np.ndarray:
        """Return the map of one array: storage dtype[shape], read-only. Mapped once."""
        array = self._maps.get(spec.file)
        if array is None:
            array = self._maps[spec.file] = self.array_file(spec).map()
        return array

    @property
    def mapped(self) -> Mapping[str, np.ndarray]:
        """The maps made so far, by file."""
        return MappingProxyType(self._maps)

    @property
    def is_in_place(self) -> bool:
        """Whether the open folder is still the one at the path."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._folder))
        except OSError:
            return False

    def node_entry(self, node_type: NodeType | None) -> NodeEntry:
        """Return the manifest's entry of a node type (None: the only type)."""
        return self._entry("node", self.manifest.nodes, node_type)

    def _edge(self, edge_type: EdgeType | None) -> EdgeEntry:
        return self._entry("edge", self.manifest.edges, edge_type)

    def _entry(self, kind: str, entries: Mapping[Any, T], given: Any) -> T:
        """Return the entry of a node or edge type; None: of the only one."""
        if given is None and len(entries) == 1:
            return next(iter(entries.values()))
        if given is None and entries:
            raise MissingFieldError(f"{self.path} has several {kind} types, say which: {listed(entries)}")
        found = entries.get(tuple(given) if isinstance(given, list) else given)
        if found is None:
            raise MissingFieldError(f"{self.path} has no {kind} type {given!r}; it has {listed(entries)}")
        return found

    def node_fields(self, node_type: NodeType | None = None) -> Mapping[str, ArraySpec]:
        """Return name -> dtype, shape and properties of each field of a node type. None: the only type."""
        return MappingProxyType(self.node_entry(node_type).fields)

    def edge_fields(self, edge_type: EdgeType | None = None) -> Mapping[str, ArraySpec]:
        """Return name -> dtype, shape and properties of each field of an edge type; rows are in CSC order. None: the only type."""
        return MappingProxyType(self._edge(edge_type).fields)

    def node_field(self, name: str, node_type: NodeType | None = None) -> np.ndarray:
        """Return the map of a node field: [num_nodes, ...]; bfloat16 as uint16 bits (see `node_fields` for the dtype). None: the only
        type."""
        return self.map(pick(self.node_fields(node_type), name, f"{self.path}: node type {node_type or self.node_types[0]!r}"))

    def edge_field(self, name: str, edge_type: EdgeType | None = None) -> np.ndarray:
        """Return the map of an edge field in CSC order: [num_edges, ...]; bfloat16 as uint16 bits. None: the only type."""
        return self.map(pick(self.edge_fields(edge_type), name, f"{self.path}: edge type {edge_type or self.edge_types[0]!r}"))

    def csc(self, edge_type: EdgeType | None = None) -> CSC:
        """Return the in-neighbour lists of one edge type, memory-mapped: int64 indptr, int32 or int64 indices. None: the only type.

        Raises:
            MissingFieldError: no such edge type, or there are several and none was named.
        """
        entry = self._edge(edge_type)
        return CSC(self.map(entry.indptr), self.map(entry.indices), self.map(entry.edge_id) if entry.edge_id else None)

    def edge_index(self, edge_type: EdgeType | None = None) -> np.ndarray:
        """Return int64[2, num_edges]: source and target of each edge, in the order of the edge fields (PyG's `edge_index`). Takes 16 bytes
        per edge. None: the only type."""
        csc = self.csc(edge_type)
        return np.stack([csc.indices.astype(np.int64), np.repeat(np.arange(csc.num_dst), np.diff(csc.indptr))])

    @property
    def held_out(self) -> Mapping[str, Any]:
        """See `HasLinks`."""
        return self.manifest.provenance.get(HELD_OUT, {})

    def graph(self) -> Graph:
        """Return the topology, memory-mapped: the lists of all edge types, in their order."""
        return Graph(dict(self.num_nodes), {edge_type: self.csc(edge_type) for edge_type in self.edge_types}, self.is_homogeneous)

    def split_names(self, node_type: NodeType | None = None) -> list[str]:
        """Return the names of the splits of a node type (None: the only type that has any)."""
        return list(self.node_entry(self._type_with_splits(node_type)).splits)

    def split(self, part: str, split: str | None = None, node_type: NodeType | None = None) -> np.ndarray:
        """Return the ids of one part of a split.

        Args:
            part: "train", "val", "test" or another that the store has.
            split: its name; None takes the only one, or the one called "default".
            node_type: None takes the only type that has splits.
        Returns:
            int64[n], ascending, read-only.
        """
        node_type = self._type_with_splits(node_type)
        splits, where = self.node_entry(node_type).splits, f"{self.path}: node type {node_type!r}"
        if not splits:
            raise no_split(self.path, node_type)
        if split is None and len(splits) > 1 and "default" not in splits:
            raise UsageError(f"{where} has several splits, choose one by {argument('split')}: {listed(splits)}")
        if split is None:
            split = "default" if "default" in splits else next(iter(splits), "default")
        return self.map(pick(pick(splits, split, where, "split"), part, f"{where}, split {split!r}", "part"))

    def _type_with_splits(self, node_type: NodeType | None) -> NodeType:
        if node_type is not None:
            return node_type
        candidates = [name for name, entry in self.manifest.nodes.items() if entry.splits] or self.node_types
        if len(candidates) != 1:
            raise UsageError(f"{self.path}: several node types could have splits, name one of {listed(candidates)}")
        return candidates[0]

    def has_original_ids(self, node_type: NodeType | None = None) -> bool:
        """Whether the store has the user's ids of this type."""
        return self.node_entry(node_type).ids is not None

    def _id_map(self, node_type: NodeType | None) -> IdMap:
        entry = self.node_entry(node_type)
        key = node_type or self.node_types[0]
        if entry.ids is None:
            raise MissingFieldError(f"{self.path}: node type {key!r} has no ids but 0 to {entry.num_nodes - 1}; use those")
        if key not in self._id_maps:
            from penstock.store.idmap import IdMap  # imports pyarrow, which takes as long as everything else of a store

            self._id_maps[key] = IdMap(entry.ids, {name: self.map(spec) for name, spec in entry.ids.arrays.items()})
        return self._id_maps[key]

    @contextmanager
    def _damaged_ids(self, node_type: NodeType | None) -> Iterator[None]:
        """Turn errors caused by damaged id arrays into CorruptStoreError."""
        try:
            yield
        except PenstockError:
            raise
        except (IndexError, UnicodeDecodeError) as error:
            raise damaged(f"ids of '{node_type or self.node_types[0]}' in {self.path}", str(error)) from error

    def original_ids(self, ids: Any, node_type: NodeType | None = None) -> Any:
        """Return the user's ids of nodes: int64[n], or a list of n strings.

        Args:
            ids: int[n], in [0, num_nodes).
            node_type: a type whose ids were mapped; None: the only type.
        Raises:
            MissingFieldError: ids of this type were not mapped (see `has_original_ids`).
        """
        with self._damaged_ids(node_type):
            return self._id_map(node_type).originals(ids)

    def find(self, original_ids: Any, node_type: NodeType | None = None) -> np.ndarray:
        """Return int64[n]: the nodes with these user ids; -1 for an id that no node has.

        Args:
            original_ids: n integers or strings.
            node_type: a type whose ids were mapped; None: the only type.
        Raises:
            MissingFieldError: ids of this type were not mapped (see `has_original_ids`).
        """
        with self._damaged_ids(node_type):
            return self._id_map(node_type).find(original_ids)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        nodes = ", ".join(f"{name}: {count:,}" for name, count in self.num_nodes.items())
        edges = ", ".join(f"{'-'.join(name[:2])}->{name[2]}: {count:,}" for name, count in self.num_edges.items())
        return f"Store({str(self.path)!r}, nodes={{{nodes}}}, edges={{{edges}}})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self.path),)


def no_split(path: str | os.PathLike[str], node_type: NodeType) -> MissingFieldError:
    """Return the error for requesting train nodes of a type without splits."""
    return MissingFieldError(
        f"{path}: node type '{node_type}' has no split into train, val and test: ingest it with one, a column of the node table "
        "(`--split COLUMN`) or arrays train_mask, val_mask and test_mask"
    )
