"""A part of a partition: what one of several processes holds of a graph.

In: a folder. Out: the books of all nodes, this part's rows and lists, and the row pointers, splits and held-out links of the whole graph.
Invariant: rows and lists of other parts are not here, and asking for them is refused.

A partition is a folder with a manifest and a folder per part; each part is complete in itself, so that a machine needs no other.

    part-0/
      manifest.json
      nodes/<type>/places.npy      the book: int32 or int64[num_nodes]
      nodes/<type>/trainers.npy    int16[num_nodes], if a part has several trainers
      nodes/<type>/out_degrees.npy uint32 or int64[num_nodes], for caches
      nodes/<type>/rows/x.npy ...  fields of this part's nodes, in the order of their ids
      nodes/<type>/split/<name>/train.npy ...   of the whole graph
      edges/<type>/indptr.npy      int64[num_dst + 1], of the whole graph
      edges/<type>/list_ptr.npy    int64[this part's nodes + 1]
      edges/<type>/indices.npy     the lists of this part's nodes, one after the other; ids of the whole graph
      edges/<type>/edge_id.npy     the user's numbers of these edges, if the store has them
      edges/<type>/rows/x.npy ...  fields of these edges
      edges/<type>/links/val/src.npy ...   links that were held out of the whole graph, and their fields
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from penstock.errors import MAKE_AGAIN, CorruptStoreError, MissingFieldError, NotAStoreError, StoreError, UsageError, reason_of
from penstock.partition.book import Book, EdgeShares
from penstock.records import CSC, EdgeType, Graph, NodeType
from penstock.store.arrays import ArrayFile
from penstock.store.format import BLOCK_BYTES, MANIFEST, ArraySpec
from penstock.store.links import HasLinks
from penstock.store.manifest import links_from_json
from penstock.store.sealed import PART, PARTITION, count, demand, parse, seal, spec_from_json, texts, to_json, unseal

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNodes:
    """Nodes of one type: their number, the book (with `trainers` if a part has several) and out-degrees of all nodes, fields of this part's
    nodes, splits of all nodes."""

    num_nodes: int
    starts: list[int]
    places: ArraySpec
    out_degrees: ArraySpec
    trainers: ArraySpec | None = None
    fields: dict[str, ArraySpec] = field(default_factory=dict)
    splits: dict[str, dict[str, ArraySpec]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEdges:
    """Edges of one type: their number, row pointers of all nodes, lists of this part's nodes, fields of the edges in these lists. `told`:
    fingerprint of the indices of the whole graph. `links`: as of a store's `EdgeEntry`, all of them."""

    num_edges: int
    told: str
    indptr: ArraySpec
    list_ptr: ArraySpec
    indices: ArraySpec
    edge_id: ArraySpec | None = None
    fields: dict[str, ArraySpec] = field(default_factory=dict)
    links: dict[str, dict[str, ArraySpec]] = field(default_factory=dict)

    def arrays(self) -> list[ArraySpec]:
        """All arrays of the edge type."""
        own = [self.indptr, self.list_ptr, self.indices, *([self.edge_id] if self.edge_id else []), *self.fields.values()]
        return own + [spec for columns in self.links.values() for spec in columns.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartManifest:
    """The description of a part.

    Attributes:
        num_trainers: of each part.
        digest: of the partitioned store, of the assignment, and of whether links lie here: equal in all parts of a partition.
        made: how the partition was made; plain data.
        cut_from: digest of the store; missing in parts of older versions.
        held_out: how links were held out of the store, as in its provenance.
    """

    number: int
    num_parts: int
    num_trainers: int = 1
    digest: str
    is_homogeneous: bool
    nodes: dict[NodeType, PartNodes]
    edges: dict[EdgeType, PartEdges]
    made: dict[str, Any] = field(default_factory=dict)
    cut_from: str | None = None
    held_out: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> list[ArraySpec]:
        """All arrays of the part."""
        found = []
        for node in self.nodes.values():
            found += [
                node.places,
                *([node.trainers] if node.trainers else []),
                node.out_degrees,
                *node.fields.values(),
                *(spec for parts in node.splits.values() for spec in parts.values()),
            ]
        for edge in self.edges.values():
            found += edge.arrays()
        return found

    def to_bytes(self) -> bytes:
        """Serialise."""
        edges = [{"type": name, **to_json(entry)} for name, entry in self.edges.items()]
        return seal({"format": PART, "format_version": VERSION, **to_json(self), "nodes": to_json(self.nodes), "edges": edges})


@dataclass(frozen=True, slots=True)
class PartitionManifest:
    """The description of a whole partition, beside its parts."""

    num_parts: int
    digest: str
    made: dict[str, Any]

    def to_bytes(self) -> bytes:
        """Serialise."""
        return seal({"format": PARTITION, "format_version": VERSION, **to_json(self)})


class Part(HasLinks):
    """A part that is open: its arrays as read-only memory maps.

    Args:
        path: the folder of a part; or of a partition, then with the `number` of a part.
    Attributes:
        path, manifest, number, num_parts: of the part.
    Raises:
        NotAStoreError, FormatVersionError, CorruptStoreError: as for a store.
    """

    def __init__(self, path: str | os.PathLike[str], number: int | None = None, *, check_arrays: bool = True) -> None:
        self.path = find_part(Path(os.path.abspath(path)), number)
        try:
            self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise StoreError(f"cannot open {self.path}: {reason_of(error)}") from None
        self._finalizer = weakref.finalize(self, os.close, self._folder)
        self.manifest = parse(_read(self.path), f"{self.path}: {MANIFEST}", PART, VERSION, _from_json)
        self.number, self.num_parts = self.manifest.number, self.manifest.num_parts
        for spec in self.manifest.arrays() if check_arrays else ():
            self.array_file(spec).check_shape()

    @cached_property
    def books(self) -> dict[NodeType, Book]:
        """Node type -> which part owns which node."""
        books = {}
        for t, each in self.manifest.nodes.items():
            trainers = None if each.trainers is None else self.map(each.trainers)
            books[t] = Book(self.map(each.places), np.array(each.starts, np.int64), trainers, self.manifest.num_trainers)
        return books

    def check_books(self) -> None:
        """Raise CorruptStoreError if an array that determines the owner and place of rows was altered, since wrong rows would be read.
        Reads these arrays as a whole; they stay in memory, as every read uses them."""
        nodes, lists = self.manifest.nodes.values(), [each.list_ptr for each in self.manifest.edges.values()]
        books = [spec for each in nodes for spec in (each.places, each.trainers) if spec is not None]
        for spec in (*books, *lists):
            found = self.map(spec).view(np.uint8)
            blocks = (found[first : first + BLOCK_BYTES] for first in range(0, found.size, BLOCK_BYTES))
            if [xxhash.xxh3_64_hexdigest(block.data) for block in blocks] != list(spec.checksums):
                raise CorruptStoreError(f"{self.path}: {spec.file} does not match its checksum: it was altered; {MAKE_AGAIN}")

    def array_file(self, spec: ArraySpec) -> ArrayFile:
        """Return a reader of one array."""
        return ArrayFile(spec, self._folder, self.path)

    def map(self, spec: ArraySpec) -> np.ndarray:
        """Return the map of one array."""
        return self.array_file(spec).map()

    @property
    def held_out(self) -> Mapping[str, Any]:
        """See `HasLinks`."""
        return self.manifest.held_out

    def rows(self, fields: Mapping[str, ArraySpec]) -> list[np.ndarray]:
        """Return the rows of this part, of some fields."""
        return [self.map(spec) for spec in fields.values()]

    def graph(self) -> Graph:
        """Return the topology of the whole graph, without its neighbours: see `CSC.told`."""
        adjacency = {}
        for e, each in self.manifest.edges.items():
            nothing = np.broadcast_to(np.array(-1, each.indices.storage_dtype), each.num_edges)
            adjacency[e] = CSC(self.map(each.indptr), nothing, told=each.told)
        nodes = self.manifest.nodes
        out_degrees = {t: self.map(each.out_degrees) for t, each in nodes.items()}
        return Graph({t: each.num_nodes for t, each in nodes.items()}, adjacency, self.manifest.is_homogeneous, out_degrees)

    def shares(self, edge_type: EdgeType) -> EdgeShares:
        """Return which part has which edges of a type."""
        each = self.manifest.edges[edge_type]
        return EdgeShares(self.map(each.indptr), self.map(each.list_ptr), self.books[edge_type[2]])

    def split(self, part: str, split: str | None, node_type: NodeType | None) -> np.ndarray:
        """Return int64[n]: ids of one part of a split of the whole graph, ascending; as `penstock.Store.split`."""
        with_splits = [t for t, each in self.manifest.nodes.items() if each.splits]
        if node_type is None and len(with_splits) == 1:
            node_type = with_splits[0]
        splits = {} if node_type is None else self.manifest.nodes[node_type].splits
        if split is None:
            split = "default" if "default" in splits or len(splits) != 1 else next(iter(splits))
        if split not in splits or part not in splits[split]:
            known = ", ".join(f"{name}: {'/'.join(parts)}" for name, parts in splits.items()) or "none"
            raise MissingFieldError(f"{self.path}: there is no part {part!r} of a split {split!r} of nodes; there are {known}")
        return self.map(splits[split][part])


def describe_partition(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return how a partition was made and its quality, as plain data; for a part also its number."""
    raw, where = _read(Path(path)), f"{path}: {MANIFEST}"
    try:
        found, which = parse(raw, where, PARTITION, VERSION, _whole_from_json), {}
    except NotAStoreError:
        found = parse(raw, where, PART, VERSION, _from_json)
        which = {"part": found.number}
    return {"path": os.path.abspath(path), **which, "num_parts": found.num_parts, "digest": found.digest, **found.made}


def is_partition(path: str | os.PathLike[str]) -> bool:
    """Whether a partition, or a part of one, is at a path, even a damaged one."""
    try:
        with open(Path(path) / MANIFEST, "rb") as file:
            return b'"format": "penstock-part' in file.read(80)
    except OSError:
        return False


def find_part(path: Path, number: int | None) -> Path:
    """Return the folder of a part: the path itself, or the one of that number in a partition."""
    raw = _read(path)
    try:
        unseal(raw, f"{path}: {MANIFEST}", PART, VERSION)
    except NotAStoreError:
        num_parts = parse(raw, f"{path}: {MANIFEST}", PARTITION, VERSION, _whole_from_json).num_parts
        if number is None or not 0 <= number < num_parts:
            raise UsageError(f"{path} has {num_parts} parts, from 0 on: say which; got {number}") from None
        return path / f"part-{number}"
    return path


def num_parts_at(path: str | os.PathLike[str]) -> int | None:
    """Return the number of parts at a path; None if it is the folder of a part."""
    raw, where = _read(Path(path)), f"{path}: {MANIFEST}"
    try:
        return parse(raw, where, PARTITION, VERSION, _whole_from_json).num_parts
    except NotAStoreError:
        unseal(raw, where, PART, VERSION)
        return None


def _read(path: Path) -> bytes:
    try:
        return (path / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotAStoreError(f"{path} has no {MANIFEST}: give the folder of a partition, or of one of its parts") from None
    except OSError as error:
        raise StoreError(f"cannot read {path / MANIFEST}: {reason_of(error)}") from None


def _whole_from_json(document: dict[str, Any]) -> PartitionManifest:
    return PartitionManifest(count(document["num_parts"]), str(document["digest"]), dict(document["made"]))


def _from_json(document: dict[str, Any]) -> PartManifest:
    number, num_parts = count(document["number"]), count(document["num_parts"])
    num_trainers = count(document.get("num_trainers", 1))
    demand(number < num_parts and num_trainers > 0, f"part {number} of {num_parts}, with {num_trainers} trainers")
    nodes, edges = {}, {}
    for name, entry in document["nodes"].items():
        num_nodes, starts = count(entry["num_nodes"]), [count(start) for start in entry["starts"]]
        demand(
            len(starts) == num_parts + 1 and starts[0] == 0 and starts[-1] == num_nodes and starts == sorted(starts), "starts do not fit"
        )
        places, mine = spec_from_json(entry["places"], num_nodes), starts[number + 1] - starts[number]
        demand(places.dtype in ("int32", "int64") and len(places.shape) == 1, f"{places.file} must be int32 or int64")
        out_degrees = spec_from_json(entry["out_degrees"], num_nodes)
        demand(out_degrees.dtype in ("uint32", "int64") and len(out_degrees.shape) == 1, f"{out_degrees.file} must be uint32 or int64")
        trainers = spec_from_json(entry["trainers"], num_nodes) if "trainers" in entry else None
        demand((trainers is None) == (num_trainers == 1), f"trainers of {name} do not fit {num_trainers}")
        demand(trainers is None or (trainers.dtype == "int16" and len(trainers.shape) == 1), "trainers must be int16")
        nodes[name] = PartNodes(
            num_nodes=num_nodes,
            starts=starts,
            places=places,
            out_degrees=out_degrees,
            trainers=trainers,
            fields={key: spec_from_json(spec, mine) for key, spec in entry["fields"].items()},
            splits={split: {part: spec_from_json(spec) for part, spec in parts.items()} for split, parts in entry["splits"].items()},
        )
    for entry in document["edges"]:
        source, relation, destination = texts(entry["type"])
        demand(source in nodes and destination in nodes, f"edges {source}, {relation}, {destination} join types that are not there")
        starts, indices = nodes[destination].starts, spec_from_json(entry["indices"])
        mine = indices.shape[0]
        one = PartEdges(
            num_edges=count(entry["num_edges"]),
            told=str(entry["told"]),
            indptr=spec_from_json(entry["indptr"], nodes[destination].num_nodes + 1),
            list_ptr=spec_from_json(entry["list_ptr"], starts[number + 1] - starts[number] + 1),
            indices=indices,
            edge_id=spec_from_json(entry["edge_id"], mine) if "edge_id" in entry else None,
            fields={key: spec_from_json(spec, mine) for key, spec in entry["fields"].items()},
            links=links_from_json(entry.get("links", {})),
        )
        demand((one.indptr.dtype, one.list_ptr.dtype) == ("int64", "int64"), f"{one.indptr.file} must be int64")
        demand(one.indices.dtype in ("int32", "int64") and len(one.indices.shape) == 1, f"{one.indices.file} must be int32 or int64")
        edges[source, relation, destination] = one
    return PartManifest(
        number=number,
        num_parts=num_parts,
        num_trainers=num_trainers,
        digest=str(document["digest"]),
        is_homogeneous=bool(document["is_homogeneous"]),
        nodes=nodes,
        edges=edges,
        made=dict(document["made"]),
        cut_from=document.get("cut_from"),
        held_out=dict(document.get("held_out", {})),
    )
