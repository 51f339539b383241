"""Writing a partition: each part's rows and lists go to its own folder, with what every part needs of the whole graph.

In: a store, and an owner for each of its nodes. Out: a partition, or nothing: as with a store, a killed writer leaves no incomplete
partition, and the next writer removes its files. Everything is read once, from front to back, and every file is written likewise. Memory:
20 bytes per node of the largest type beside the owners, 8 per node of other types, and blocks of some ten MiB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from penstock.errors import UsageError
from penstock.kernels.placement.cpu import count_keys
from penstock.partition.book import Book, make_book
from penstock.partition.part import PartEdges, PartitionManifest, PartManifest, PartNodes
from penstock.records import EdgeType, NodeType, check_neighbors
from penstock.store import Store
from penstock.store.files import explained
from penstock.store.fingerprint import fingerprint
from penstock.store.format import MANIFEST, ArraySpec, folder_of_edges, folder_of_links, folder_of_nodes
from penstock.store.format import file_name as as_file_name
from penstock.store.progress import Progress, Quiet, stage
from penstock.store.writer import StoreWriter, write_manifest

BLOCK_BYTES = 8 << 20
"""Bytes of an array that are read at a time."""

Block = tuple[int, np.ndarray, np.ndarray]
"""(number of the first row, rows, owner of each)."""


def write_parts(
    store: Store,
    owners: Mapping[NodeType, np.ndarray],
    num_parts: int,
    destination: str | os.PathLike[str],
    *,
    trainers: Mapping[NodeType, np.ndarray] | None = None,
    num_trainers: int = 1,
    made: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a partition of a store.

    Args:
        store: open.
        owners: node type -> int[num_nodes], the part of each node, in [0, num_parts).
        num_parts: number of folders: `part-0`, `part-1`, ...
        destination: a folder that does not exist, or is empty.
        trainers, num_trainers: if parts have several trainers: node type -> int16[num_nodes], the trainer of each node within its part, in
            [0, num_trainers).
        made: how the owners were chosen; plain data, kept in the manifests.
        progress: receives bytes written.
    Raises:
        UsageError: a node has no part; the destination is not empty.
        StoreError: it cannot be written.
    """
    store.graph().check_lists()
    progress, made = progress or Quiet(), made or {}
    refuse_existing(destination)
    _check_all(store, owners, num_parts, "owners", "part")
    if trainers is not None:
        _check_all(store, trainers, num_trainers, "trainers", "trainer")
    books = {t: make_book(owners[t], num_parts, None if trainers is None else trainers[t], num_trainers) for t in store.node_types}
    digest = xxhash.xxh3_64(store.digest.encode())
    for book in books.values():
        digest.update(book.digest.encode())
    if store.types_with_links():
        digest.update(b"links")  # parts of versions that left them out do not go with those that have them
    progress.note(f"writing {num_parts} parts")  # each has many files, which are flushed one by one
    with StoreWriter(destination) as writer:
        degrees = {t: np.zeros(book.num_rows, _degree_dtype(store, t)) for t, book in books.items()}
        edges = {e: _write_edges(store, e, books[e[2]], degrees[e[0]], writer, progress) for e in store.edge_types}
        nodes = {t: _write_nodes(store, t, books[t], degrees[t], writer, progress) for t in store.node_types}
        for part in range(num_parts):
            manifest = PartManifest(
                number=part,
                num_parts=num_parts,
                num_trainers=num_trainers,
                digest=digest.hexdigest(),
                is_homogeneous=store.is_homogeneous,
                nodes={t: each[part] for t, each in nodes.items()},
                edges={e: each[part] for e, each in edges.items()},
                made=made,
                cut_from=store.digest,
                held_out=dict(store.held_out),
            )
            write_manifest(writer.folder / f"part-{part}" / MANIFEST, manifest)
        writer.commit(PartitionManifest(num_parts, digest.hexdigest(), made))


def _check_all(store: Store, given: Mapping[NodeType, np.ndarray], count: int, name: str, what: str) -> None:
    for node_type, num_nodes in store.num_nodes.items():
        found = given.get(node_type, np.empty(0, np.int16))
        if found.shape != (num_nodes,) or (num_nodes and not 0 <= int(found.min()) <= int(found.max()) < count):
            raise UsageError(f"{name}: each of the {num_nodes} nodes of type '{node_type}' needs a {what} in [0, {count})")


def refuse_existing(destination: str | os.PathLike[str]) -> None:
    """Raise UsageError if the destination is not empty, or cannot be made; called before owners are chosen, which may take hours."""
    folder = Path(os.path.realpath(destination))
    with explained(folder, "write"):
        if not folder.parent.is_dir():
            raise UsageError(f"cannot write {folder}: the folder {folder.parent} does not exist")
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise UsageError(f"{destination} exists: choose another path for the partition")


def _degree_dtype(store: Store, node_type: NodeType) -> type:
    """The dtype of out-degrees, as in `penstock.cache.hotness.degree_hotness`."""
    num_edges = sum(count for edge_type, count in store.num_edges.items() if edge_type[0] == node_type)
    return np.uint32 if num_edges < 1 << 32 else np.int64


def _write_nodes(
    store: Store, node_type: NodeType, book: Book, degrees: np.ndarray, writer: StoreWriter, progress: Progress
) -> list[PartNodes]:
    """Write the rows of a node type to their parts, and the book and the splits to all parts."""
    entry, num_parts, folder = store.node_entry(node_type), book.num_parts, folder_of_nodes(node_type)
    places = _to_all([book.places], f"{folder}/places.npy", book.places.dtype.name, num_parts, writer)
    trainers = None
    if book.trainers is not None:
        trainers = _to_all([book.trainers], f"{folder}/trainers.npy", "int16", num_parts, writer)
    out_degrees = _to_all([degrees], f"{folder}/out_degrees.npy", degrees.dtype.name, num_parts, writer)
    fields: dict[str, list[ArraySpec]] = {}
    for name, spec in entry.fields.items():
        blocks = _read(store, spec, partial(_owners, book), f"rows of {node_type} {name}", progress)
        fields[name] = _deal(blocks, f"{folder}/rows/{as_file_name(name)}.npy", spec, num_parts, writer)
    splits: dict[str, dict[str, list[ArraySpec]]] = {}
    for split, parts in entry.splits.items():
        for part, spec in parts.items():
            file = f"{folder}/split/{as_file_name(split)}/{as_file_name(part)}.npy"
            splits.setdefault(split, {})[part] = _copy(store, spec, file, num_parts, writer)
    return [
        PartNodes(
            num_nodes=entry.num_nodes,
            starts=book.starts.tolist(),
            places=places[p],
            trainers=trainers[p] if trainers else None,
            out_degrees=out_degrees[p],
            fields={name: specs[p] for name, specs in fields.items()},
            splits={split: {part: specs[p] for part, specs in parts.items()} for split, parts in splits.items()},
        )
        for p in range(num_parts)
    ]


def _write_edges(
    store: Store, edge_type: EdgeType, book: Book, degrees: np.ndarray, writer: StoreWriter, progress: Progress
) -> list[PartEdges]:
    """Write the lists of an edge type to the owners of their destinations, and the row pointers to all parts."""
    entry = store.manifest.edges[edge_type]
    num_parts = book.num_parts
    folder = folder_of_edges(edge_type)
    csc = store.csc(edge_type)
    told, indptr = fingerprint(csc.indices), _copy(store, entry.indptr, f"{folder}/indptr.npy", num_parts, writer)
    dealt = {}
    for name, spec in {"indices": entry.indices, **({"edge_id": entry.edge_id} if entry.edge_id else {}), **entry.fields}.items():
        folder_of = f"{folder}/rows" if name in entry.fields else folder
        blocks = _read(store, spec, partial(_owners_of_edges, book, csc.indptr), f"{name} of {'/'.join(edge_type)}", progress)
        if spec is entry.indices:
            blocks = _counted(blocks, edge_type, degrees)
        dealt[name] = _deal(blocks, f"{folder_of}/{as_file_name(name)}.npy", spec, num_parts, writer)
    links: dict[str, dict[str, list[ArraySpec]]] = {}
    for part, columns in entry.links.items():
        files = {name: f"{folder_of_links(edge_type, part)}/{as_file_name(name)}.npy" for name in columns}
        links[part] = {name: _copy(store, spec, files[name], num_parts, writer) for name, spec in columns.items()}
    found = []
    for p in range(num_parts):
        list_ptr = writer.array(f"part-{p}/{folder}/list_ptr.npy", "int64")
        list_ptr.append(np.zeros(1, np.int64))
        for ends in _ends_of_lists(book, csc.indptr, p):
            list_ptr.append(ends)
        found.append(
            PartEdges(
                num_edges=entry.num_edges,
                told=told,
                indptr=indptr[p],
                list_ptr=_within(list_ptr.finish(), p),
                indices=dealt["indices"][p],
                edge_id=dealt["edge_id"][p] if entry.edge_id else None,
                fields={name: dealt[name][p] for name in entry.fields},
                links={part: {name: specs[p] for name, specs in columns.items()} for part, columns in links.items()},
            )
        )
    return found


def _read(store: Store, spec: ArraySpec, owners: Callable[[int, int], np.ndarray], what: str, progress: Progress) -> Iterator[Block]:
    """Yield the blocks of an array, with the owner of each row."""
    with stage(progress, what, spec.data_bytes, "bytes"):
        for first, rows in store.array_file(spec).blocks(min(BLOCK_BYTES, BLOCK_BYTES // 8 * (spec.row_bytes or 1))):  # owners are int64
            yield first, rows, owners(first, first + len(rows))
            progress.advance(rows.nbytes)


def _counted(blocks: Iterable[Block], edge_type: EdgeType, degrees: np.ndarray) -> Iterator[Block]:
    """Pass on blocks of neighbours, after checking them and counting them in `degrees`."""
    for first, neighbors, owners in blocks:
        check_neighbors(edge_type, degrees.size, range(first, first + neighbors.size), neighbors)
        count_keys(neighbors, 0, degrees)
        yield first, neighbors, owners


def _deal(blocks: Iterable[Block], file: str, spec: ArraySpec, num_parts: int, writer: StoreWriter) -> list[ArraySpec]:
    """Write each row to the part that owns it."""
    outs = [writer.array(f"part-{p}/{file}", spec.dtype, spec.shape[1:]) for p in range(num_parts)]
    for out in outs:
        out.properties |= spec.properties
    for _, rows, owners in blocks:
        for part, out in enumerate(outs):
            out.append(rows[owners == part])
    return [_within(out.finish(), p) for p, out in enumerate(outs)]


def _copy(store: Store, spec: ArraySpec, file: str, num_parts: int, writer: StoreWriter) -> list[ArraySpec]:
    """Write an array of the store to every part."""
    blocks = (block for _, block in store.array_file(spec).blocks(BLOCK_BYTES))
    return [replace(one, properties=spec.properties) for one in _to_all(blocks, file, spec.dtype, num_parts, writer, spec.shape[1:])]


def _to_all(
    blocks: Iterable[np.ndarray], file: str, dtype: str, num_parts: int, writer: StoreWriter, row_shape: tuple[int, ...] = ()
) -> list[ArraySpec]:
    """Write the same array to every part."""
    outs = [writer.array(f"part-{p}/{file}", dtype, row_shape) for p in range(num_parts)]
    for block in blocks:
        for out in outs:
            out.append(block)
    return [_within(out.finish(), p) for p, out in enumerate(outs)]


def _within(spec: ArraySpec, part: int) -> ArraySpec:
    """Return the entry of an array with its name within the part."""
    return replace(spec, file=spec.file.removeprefix(f"part-{part}/"))


def _owners(book: Book, first: int, end: int) -> np.ndarray:
    """Return int64[end - first]: the owners of these nodes."""
    return book.owners(np.arange(first, end))


def _owners_of_edges(book: Book, indptr: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return int64[end - first]: the owners of the destinations of the edges at these positions."""
    begin, stop = np.searchsorted(indptr, [first, end - 1], side="right") - 1
    bounds = np.clip(indptr[begin : stop + 2], first, end)
    return np.repeat(_owners(book, begin, stop + 1), np.diff(bounds))


def _ends_of_lists(book: Book, indptr: np.ndarray, part: int) -> Iterator[np.ndarray]:
    """Yield, in blocks, where the list of each node of a part ends among the part's edges."""
    end, step = 0, BLOCK_BYTES // 8
    for first in range(0, book.num_rows, step):
        last = min(first + step, book.num_rows)
        degrees = np.diff(indptr[first : last + 1])[_owners(book, first, last) == part]
        ends = end + np.cumsum(degrees)
        yield ends
        end = int(ends[-1]) if ends.size else end
