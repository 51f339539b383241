"""Edges held out of a graph, to be predicted: `hold_out` makes a store without them, which has them as links beside it.

In: a store. Out: another, with the same nodes. Invariants: the edges of the old store are those of the new one and its links, each once, in
their order; a pair of nodes of which an edge is held out by chance has none left in the graph, in either direction. Memory does not grow
with the graph, but for the row pointers of its lists, which are mapped. Files that stay the same get a second name.

The links of a part are arrays of a row each: `src`, `dst`, and all that the store has of an edge (`edge_id`, fields).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock import rng
from penstock.errors import InputError, MissingFieldError, StoreError, UsageError, argument
from penstock.kernels.links import cpu as kernels
from penstock.records import EdgeType, Graph, index_dtype, reverses_of
from penstock.store.arrays import ArrayWriter
from penstock.store.budget import format_bytes
from penstock.store.format import ENDS, ArraySpec, file_name, folder_of_links
from penstock.store.manifest import EdgeEntry
from penstock.store.opened import Store
from penstock.store.progress import Progress, Quiet, stage
from penstock.store.results import refuse_in_store
from penstock.store.watch import check_bytes
from penstock.store.writer import StoreWriter

PARTS = ("val", "test")
"""Of the links, in the order of time; the graph comes before them."""
EDGE_ID, INDICES = "edge_id", "indices"

_BLOCK_BYTES = 32 << 20
"""Of edges that are looked at together, with all that is known of them."""

Chooser = Callable[["_Block"], np.ndarray]
"""Edges -> uint8[n]: the part of each among PARTS, or len(PARTS) for the graph."""


def hold_out(
    store: str | os.PathLike[str] | Store,
    dest: str | os.PathLike[str],
    *,
    edge_type: Sequence[str] | None = None,
    val: float = 0.05,
    test: float = 0.1,
    by: str | None = None,
    reverse: str | Sequence[str] = "auto",
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Make a store without some edges of a type, which it keeps beside the graph as links to predict.

    Args:
        store: stays as it is.
        dest, overwrite: the new store, as of `penstock.ingest`. Its other files are those of the old one by a second name, or copies where
            the file system has no such names.
        edge_type: (source, name, target) of the edges; None: the only type.
        val, test: shares of the edges, 0 for none. By chance they are met roughly: each pair of nodes is drawn for itself, with all its
            edges, in both directions where the type joins a node type to itself.
        by: an edge field of whole numbers, times for instance: its largest values are "test", the next ones "val". Equal values stay
            together, so that more may be held out than asked for. None: edges are held out by chance.
        reverse: the edge type that holds the reverses of these edges, which are left out of the graph too, and are no links; "none" if
            there is none; "auto" takes the one with PyG's name for it (`ToUndirected`: "rev_likes" of "likes").
        seed: of the chance; the same pairs are held out of any graph.
        progress: hears of it.
    Returns:
        What was made, as plain values.
    Raises:
        UsageError, InputError: shares that cannot work, or a store without such edges. StoreError: it cannot be read, or `dest` written.
    """
    store, progress = store if isinstance(store, Store) else Store.open(store), progress or Quiet()
    chosen = _edge_type(store, edge_type)
    shares = _shares(val, test)
    reverses = _reverses(store, chosen, reverse)
    if os.path.realpath(dest) == os.path.realpath(store.path):
        raise UsageError(f"{dest} is the store itself, which stays as it is: choose another path")
    refuse_in_store(Path(dest).parent, "dest")
    graph = Graph({}, {e: store.csc(e) for e in (chosen, *reverses)}, is_homogeneous=False)
    graph.check_lists()
    for e in graph.adjacency:
        _field(store, e, by)
    key = rng.derive_key(seed, 0, rng.HOLD_OUT)
    with StoreWriter(dest, overwrite=overwrite) as writer:
        changed = {spec.file for e in graph.adjacency for spec in store.manifest.edges[e].arrays()}
        for spec in store.manifest.arrays():
            if spec.file not in changed:
                writer.adopt(store, spec)
        _check_room(store, writer, list(graph.adjacency))
        if by is None:
            of_chance = _ByChance(key, np.cumsum([shares[part] for part in PARTS]), both_ways=chosen[0] == chosen[2])
            choosers: dict[EdgeType, Chooser] = {e: replace(of_chance, is_reversed=e != chosen) for e in graph.adjacency}
        else:
            with stage(progress, f"order of {by}", 4 * store.num_edges[chosen], "edges"):
                firsts = _firsts(store, chosen, by, shares, progress)
            choosers = dict.fromkeys(graph.adjacency, lambda block: _by_value(block.columns[by], firsts))
        edges = dict(store.manifest.edges)
        for e, choose in choosers.items():
            name = f"{e[0]}-{e[1]}->{e[2]}"
            with stage(progress, f"edges {name}", store.num_edges[e], "edges"):
                edges[e] = _sift(store, writer, e, choose, [part for part in PARTS if shares[part]] if e == chosen else [], progress)
        counts = {part: columns[ENDS[0]].shape[0] for part, columns in edges[chosen].links.items()}
        _check_counts(store, chosen, counts, edges[chosen].num_edges, by)
        check_bytes(store)
        how = {"edge_type": list(chosen), "val": val, "test": test, "by": by, "reverse": [list(e) for e in reverses], "seed": seed}
        provenance = store.manifest.provenance | {"held_out": how | {"store": store.path.name, "digest": store.digest}}
        nodes = {t: replace(entry, packed=None) for t, entry in store.manifest.nodes.items()}
        writer.commit(replace(store.manifest, nodes=nodes, edges=edges, provenance=provenance))
    left_out = {"-".join(e): store.num_edges[e] - edges[e].num_edges for e in reverses}
    return {"store": str(writer.destination), **how, "num_edges": edges[chosen].num_edges, "num_links": counts, "num_reverses": left_out}


def _edge_type(store: Store, given: Sequence[str] | None) -> EdgeType:
    """The type whose edges are held out."""
    types = ", ".join("/".join(e) for e in store.edge_types) or "none"
    if given is None and len(store.edge_types) != 1:
        raise UsageError(f"{store.path} has several edge types, choose one by {argument('edge_type')}: {types}")
    found: Any = store.edge_types[0] if given is None else tuple(given)
    if found not in store.num_edges:
        raise MissingFieldError(f"{store.path} has no edges {'/'.join(map(str, found))}; it has {types}")
    if store.manifest.edges[found].links:
        raise UsageError(f"{store.path} has links held out of {'/'.join(found)} already: take the store that it was made from")
    return found


def _shares(val: float, test: float) -> dict[str, float]:
    shares = {"val": val, "test": test}
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise UsageError(f"{argument(name, share)} is no share of the edges: it must lie in [0, 1)")
    if not 0 < val + test < 1:
        raise UsageError(f"{argument('val', val)} and {argument('test', test)} must leave something in the graph, and hold something out")
    return shares


def _reverses(store: Store, edge_type: EdgeType, reverse: str | Sequence[str]) -> list[EdgeType]:
    """The types that hold reverses of these edges, but for the type itself."""
    if reverse == "none":
        return []
    if reverse != "auto":
        named: Any = tuple(reverse.split(",") if isinstance(reverse, str) else reverse)
        if named not in store.num_edges or (named[0], named[2]) != (edge_type[2], edge_type[0]):
            what = f"is no type of edges from '{edge_type[2]}' to '{edge_type[0]}' in {store.path}"
            raise UsageError(f"{argument('reverse')}: {'/'.join(map(str, named))} {what}")
        return [named] if named != edge_type else []
    found, others = reverses_of(edge_type, store.num_edges)
    if others and not found:
        raise UsageError(
            f"{store.path}: any of {', '.join('/'.join(e) for e in others)} may hold the reverses of {'/'.join(edge_type)}, and tell what "
            f"is held out: say which by {argument('reverse')}, or {argument('reverse', 'none')}"
        )
    return [e for e in found if e != edge_type]


def _field(store: Store, edge_type: EdgeType, by: str | None) -> None:
    """Raise where edges have no field that they could be ordered by."""
    if by is None:
        return
    spec, edges = store.edge_fields(edge_type).get(by), f"{store.path}: edges {'/'.join(edge_type)}"
    if spec is None:
        raise MissingFieldError(f"{edges} have no field {by!r}; they have {', '.join(map(repr, store.edge_fields(edge_type))) or 'none'}")
    if spec.dtype == "bfloat16" or spec.storage_dtype.kind not in "iu" or spec.shape[1:] not in ((), (1,)):
        raise InputError(f"{edges}: {argument('by', by)} takes a field of a whole number per edge, got {spec.dtype} {list(spec.shape)}")


def _check_room(store: Store, writer: StoreWriter, edge_types: Sequence[EdgeType]) -> None:
    needed = sum(spec.data_bytes for e in edge_types for spec in store.manifest.edges[e].arrays())
    free = shutil.disk_usage(writer.folder).free
    if needed > free:
        raise StoreError(
            f"cannot write {writer.destination}: {format_bytes(needed)} for its edges, and the disk has {format_bytes(free)} free: free "
            "some space or choose another disk"
        )


def _check_counts(store: Store, edge_type: EdgeType, counts: dict[str, int], num_left: int, by: str | None) -> None:
    """Raise where a part that was asked for, or the graph, has no edges."""
    empty = [part for part, count in counts.items() if not count] + ["the graph"] * (not num_left)
    if empty:
        why = "pairs are drawn by chance" if by is None else f"edges of equal {by!r} stay together"
        raise InputError(
            f"{store.path}: {empty[0]} would have none of the {store.num_edges[edge_type]} edges {'/'.join(edge_type)}, since {why}: "
            f"choose other shares, {argument('val')} and {argument('test')}"
        )


@dataclass(slots=True)
class _Block:
    """Consecutive edges of a type.

    Attributes:
        first: position of the first one.
        sources, targets: int64[n].
        columns: `indices`, `edge_id` if kept, and the fields, as they are stored.
    """

    first: int
    sources: np.ndarray
    targets: np.ndarray
    columns: dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class _ByChance:
    """Chooses pairs of nodes by chance.

    Attributes:
        key: of the chance.
        bounds: running sums of the shares of PARTS.
        both_ways: (u, v) and (v, u) are the same pair.
        is_reversed: these edges run against those that are held out.
    """

    key: np.ndarray
    bounds: np.ndarray
    both_ways: bool
    is_reversed: bool = False

    def __call__(self, block: _Block) -> np.ndarray:
        ends = (block.targets, block.sources) if self.is_reversed else (block.sources, block.targets)
        parts = np.empty(block.sources.size, np.uint8)
        kernels.divide_pairs(self.key, *ends, self.both_ways, self.bounds, parts)
        return parts


def _by_value(values: np.ndarray, firsts: Sequence[int | None]) -> np.ndarray:
    """The parts of edges by their values. `firsts`: the least value of each of PARTS; None where there is no such part."""
    parts, values = np.full(len(values), len(PARTS), np.uint8), values.reshape(-1)
    for number, first in enumerate(firsts):
        if first is not None:
            parts[values >= first] = number
    return parts


def _firsts(store: Store, edge_type: EdgeType, by: str, shares: dict[str, float], progress: Progress) -> list[int | None]:
    """The least value of `by` in each of PARTS, found by four readings of it: 16 bits of each value at a time."""
    spec, num_edges = store.edge_fields(edge_type)[by], store.num_edges[edge_type]
    is_signed = spec.storage_dtype.kind == "i"
    after = {"val": shares["val"] + shares["test"], "test": shares["test"]}  # shares from the first edge of each on
    wanted = [part for part in PARTS if shares[part]]
    ranks = [min(num_edges - 1, max(0, num_edges - round(after[part] * num_edges))) for part in wanted]
    found = [0] * len(wanted)
    for shift in (48, 32, 16, 0) if num_edges else ():
        counts = np.zeros((len(wanted), 1 << 16), np.int64)
        for _, rows in store.array_file(spec).blocks(_BLOCK_BYTES // 8):
            keys = (
                rows.reshape(-1).astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63) if is_signed else rows.reshape(-1).astype(np.uint64)
            )
            for number, prefix in enumerate(found):
                high = keys >> np.uint64(shift)
                mine = high if shift == 48 else high[high >> np.uint64(16) == np.uint64(prefix)]
                counts[number] += np.bincount((mine & np.uint64(0xFFFF)).astype(np.int64), minlength=1 << 16)
            progress.advance(len(rows))
        for number, sums in enumerate(np.cumsum(counts, axis=1)):
            digit = int(np.searchsorted(sums, ranks[number], side="right"))
            ranks[number] -= int(sums[digit - 1]) if digit else 0
            found[number] = found[number] << 16 | digit
    least = dict(zip(wanted, (value - (1 << 63) if is_signed else value for value in found), strict=True))
    return [least.get(part) for part in PARTS]


def _blocks(store: Store, edge_type: EdgeType) -> Iterator[_Block]:
    """The edges of a type, in their order."""
    entry, indptr = store.manifest.edges[edge_type], store.map(store.manifest.edges[edge_type].indptr)
    specs = _columns(entry)
    num_rows = max(1, _BLOCK_BYTES // (24 + sum(spec.row_bytes for spec in specs.values())))
    for first in range(0, entry.num_edges, num_rows):
        count = min(num_rows, entry.num_edges - first)
        begin, end = np.searchsorted(indptr, [first, first + count - 1], side="right") - 1
        ends = np.clip(indptr[begin : end + 2], first, first + count)
        targets = np.repeat(np.arange(begin, end + 1), np.diff(ends))
        columns = {name: store.array_file(spec).read(first, count) for name, spec in specs.items()}
        yield _Block(first, columns[INDICES].astype(np.int64), targets, columns)


def _columns(entry: EdgeEntry) -> dict[str, ArraySpec]:
    """What a store has of each edge."""
    return {INDICES: entry.indices, **({EDGE_ID: entry.edge_id} if entry.edge_id else {}), **entry.fields}


def _sift(store: Store, writer: StoreWriter, edge_type: EdgeType, choose: Chooser, parts: Sequence[str], progress: Progress) -> EdgeEntry:
    """Write the edges of a type that stay in the graph, and `parts` of the others as links."""
    entry, indptr = store.manifest.edges[edge_type], store.map(store.manifest.edges[edge_type].indptr)
    specs = _columns(entry)
    kept = {name: _writer(writer, spec.file, spec) for name, spec in specs.items()}
    ends, num_kept = _writer(writer, entry.indptr.file, entry.indptr), 0
    links = {part: _link_writers(writer, edge_type, part, specs, store.num_nodes[edge_type[2]]) for part in parts}
    last = 0  # lists that begin at an earlier edge
    for block in _blocks(store, edge_type):
        chosen = choose(block)
        stays = chosen == len(PARTS)
        up_to = np.append(num_kept, num_kept + np.cumsum(stays))  # edges that stay before each edge of the block
        behind = last + int(np.searchsorted(indptr[last:], block.first + stays.size, side="left"))
        ends.append(up_to[indptr[last:behind] - block.first])
        num_kept, last = int(up_to[-1]), behind
        for name, rows in block.columns.items():
            kept[name].append(rows[stays])
        for part, columns in links.items():
            mine = chosen == PARTS.index(part)
            rows = {ENDS[0]: block.columns[INDICES], ENDS[1]: block.targets, **block.columns}
            for name, column in columns.items():
                column.append(rows[name][mine].astype(column.storage_dtype, copy=False))
        progress.advance(stays.size)
    ends.pad_rows(len(indptr), num_kept)
    made = {name: column.finish() for name, column in kept.items()}
    return EdgeEntry(
        num_edges=num_kept,
        indptr=ends.finish(),
        indices=made.pop(INDICES),
        edge_id=made.pop(EDGE_ID, None),
        fields=made,
        links={part: {name: column.finish() for name, column in columns.items()} for part, columns in links.items()},
    )


def _writer(writer: StoreWriter, file: str, spec: ArraySpec) -> ArrayWriter:
    """Begin an array of the kind of another one."""
    column = writer.array(file, spec.dtype, spec.shape[1:])
    column.properties = dict(spec.properties)
    return column


def _link_writers(
    writer: StoreWriter, edge_type: EdgeType, part: str, specs: dict[str, ArraySpec], num_targets: int
) -> dict[str, ArrayWriter]:
    """Begin the arrays of a part of the links."""
    folder = folder_of_links(edge_type, part)
    columns = {ENDS[0]: writer.array(f"{folder}/{ENDS[0]}.npy", specs[INDICES].dtype)}
    columns[ENDS[1]] = writer.array(f"{folder}/{ENDS[1]}.npy", index_dtype(num_targets).__name__)
    others = {name: spec for name, spec in specs.items() if name != INDICES}
    return columns | {name: _writer(writer, f"{folder}/{file_name(name)}.npy", spec) for name, spec in others.items()}
