"""Edges held out of a graph, to be predicted: `hold_out` makes a store without them, which has them as links beside it.

In: a store, and shares of its edges, or links to leave out of it. Out: another, with the same nodes. Invariants: the edges of the old store
are those of the new one and its links, each once, in their order; a pair of nodes of which an edge is held out by chance, or that is given,
has none left in the graph, nor in the opposite direction. Memory does not grow with the graph, but for the row pointers of its lists, which
are mapped. Files that stay the same get a second name.

The links of a part are arrays of a row each: `src`, `dst`, and, unless they were given, all that the store has of an edge (`edge_id`,
fields).
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
from penstock.errors import InputError, MissingFieldError, NodeIdError, StoreError, UsageError, argument
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
HELD_OUT = "held_out"
"""In the provenance of a store: edge type -> how links were held out of it."""

_BLOCK_BYTES = 32 << 20
"""Of edges that are looked at together, with all that is known of them."""

Chooser = Callable[["_Block"], np.ndarray]
"""Edges -> uint8[n]: the part of each among PARTS; or IN_GRAPH, or LEFT_OUT of everything."""
IN_GRAPH, LEFT_OUT = 2, 3


def hold_out(
    store: str | os.PathLike[str] | Store,
    dest: str | os.PathLike[str],
    *,
    edge_type: Sequence[str] | None = None,
    val: float | np.ndarray = 0.05,
    test: float | np.ndarray = 0.1,
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
            edges, in both directions where the type joins a node type to itself. Or links, whole numbers [2, n] or [n, 2], sources first,
            of an official split for instance: edges like them, if there are any, are left out of the graph.
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
    wanted: dict[str, Any] = {"val": val, "test": test}
    given = {part: _as_links(store, chosen, part, links) for part, links in wanted.items() if not isinstance(links, float | int)}
    shares = _check_shares({part: 0.0 if part in given else share for part, share in wanted.items()}, are_given=bool(given))
    reverses = _reverses(store, chosen, reverse)
    types = [chosen, *reverses]
    _check_store(store, types, by)
    if os.path.realpath(dest) == os.path.realpath(store.path):
        raise UsageError(f"{dest} is the store itself, which stays as it is: choose another path")
    refuse_in_store(Path(dest).parent, "dest")
    with StoreWriter(dest, overwrite=overwrite) as writer:
        changed = {spec.file for e in types for spec in store.manifest.edges[e].arrays()}
        for spec in store.manifest.arrays():
            if spec.file not in changed:
                writer.adopt(store, spec)
        _check_room(store, writer, types)
        choosers = _choosers(store, types, shares, given, by, seed, progress)
        edges = dict(store.manifest.edges)
        for e, choose in choosers.items():
            with stage(progress, f"edges {e[0]}-{e[1]}->{e[2]}", store.num_edges[e], "edges"):
                edges[e] = _sift(store, writer, e, choose, [part for part in PARTS if shares[part] and e == chosen], progress)
        links = edges[chosen].links | {part: _write_links(writer, chosen, part, ends) for part, ends in given.items()}
        edges[chosen] = replace(edges[chosen], links={part: links[part] for part in PARTS if part in links})
        counts = {part: columns[ENDS[0]].shape[0] for part, columns in edges[chosen].links.items()}
        _check_counts(store, chosen, counts, edges[chosen].num_edges, by, are_given=bool(given))
        check_bytes(store)
        how = {**shares, "given": list(given), "by": by, "seed": seed, "reverse": [list(e) for e in reverses]}
        before, of = store.manifest.provenance, how | {"store": store.path.name, "digest": store.digest}
        provenance = before | {HELD_OUT: before.get(HELD_OUT, {}) | {"/".join(chosen): of}}
        nodes = {t: replace(entry, packed=None) for t, entry in store.manifest.nodes.items()}
        writer.commit(replace(store.manifest, nodes=nodes, edges=edges, provenance=provenance))
    left_out = {"-".join(e): store.num_edges[e] - edges[e].num_edges for e in reverses}
    num_known = edges[chosen].num_edges + sum(count for part, count in counts.items() if part not in given)
    made = {"num_edges": edges[chosen].num_edges, "num_links": counts, "num_reverses": left_out}
    made["num_like_given"] = store.num_edges[chosen] - num_known
    return {"store": str(writer.destination), "edge_type": list(chosen), **how, **made}


def reverses_left_out(store: Store, edge_type: EdgeType) -> list[EdgeType]:
    """The edge types of which the reverses of links were left out, too, but for the type itself."""
    known = store.manifest.provenance.get(HELD_OUT, {}).get("/".join(edge_type), {})
    return [(source, name, target) for source, name, target in known.get("reverse", [])]


def _edge_type(store: Store, given: Sequence[str] | None) -> EdgeType:
    """The type whose edges are held out."""
    types = " or ".join(",".join(e) for e in store.edge_types) or "none"
    if given is None and len(store.edge_types) != 1:
        raise UsageError(f"{store.path} has several edge types, choose one by {argument('edge_type')}: {types}")
    found: Any = store.edge_types[0] if given is None else tuple(given)
    if found not in store.num_edges:
        raise MissingFieldError(f"{store.path} has no edges {','.join(map(str, found))}; it has {types}")
    return found


def _as_links(store: Store, edge_type: EdgeType, part: str, links: Any) -> np.ndarray:
    """int64[2, n]: links that were given."""
    ends, of = np.asarray(links), argument(part)
    if ends.ndim != 2 or 2 not in ends.shape or ends.dtype.kind not in "iu" or not ends.size:
        raise InputError(f"{of} must be a share, or whole numbers [2, n] or [n, 2], sources first; got {ends.dtype} {list(ends.shape)}")
    ends = (ends if ends.shape[0] == 2 else ends.T).astype(np.int64)
    for end, ids, node_type in zip(("source", "target"), ends, (edge_type[0], edge_type[2]), strict=True):
        bad = np.flatnonzero((ids < 0) | (ids >= store.num_nodes[node_type]))
        if bad.size:
            raise NodeIdError(
                f"{of}: {bad.size} of {ids.size} {end} ids lie outside [0, {store.num_nodes[node_type]}), the ids of node type "
                f"'{node_type}'; first is link {bad[0]} with {ids[bad[0]]}"
            )
    return ends


def _check_shares(shares: dict[str, float], *, are_given: bool) -> dict[str, float]:
    """Return them, or raise. `are_given`: there are links besides, which were given."""
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise UsageError(f"{argument(name, share)} is no share of the edges: it must lie in [0, 1)")
    total = sum(shares.values())
    if total >= 1 or not (total or are_given):
        both = " and ".join(argument(name, share) for name, share in shares.items())
        raise UsageError(f"{both} must leave something in the graph, and hold something out")
    return shares


def _reverses(store: Store, edge_type: EdgeType, reverse: str | Sequence[str]) -> list[EdgeType]:
    """The types that hold reverses of these edges, but for the type itself."""
    if reverse == "none":
        return []
    if reverse != "auto":
        named: Any = tuple(reverse.split(",") if isinstance(reverse, str) else reverse)
        if named not in store.num_edges or (named[0], named[2]) != (edge_type[2], edge_type[0]):
            what = f"is no type of edges from '{edge_type[2]}' to '{edge_type[0]}' in {store.path}"
            raise UsageError(f"{argument('reverse')}: {','.join(map(str, named))} {what}")
        return [named] if named != edge_type else []
    found, others = reverses_of(edge_type, store.num_edges)
    if others and not found:
        raise UsageError(
            f"{store.path}: any of {' or '.join(','.join(e) for e in others)} may hold the reverses of {','.join(edge_type)}, and tell "
            f"what is held out: say which by {argument('reverse')}, or {argument('reverse', 'none')}"
        )
    return [e for e in found if e != edge_type]


def _check_store(store: Store, types: Sequence[EdgeType], by: str | None) -> None:
    """Raise where edges of these types cannot be held out of a store."""
    for t, entry in store.manifest.nodes.items():
        if any("aggregated" in spec.properties for spec in entry.fields.values()):
            raise UsageError(f"features of '{t}' in {store.path} are aggregated over all edges, and would tell of some: hold out first")
    Graph({}, {e: store.csc(e) for e in types}, is_homogeneous=False).check_lists()
    for e in types:
        edges, fields = f"{store.path}: edges {'/'.join(e)}", store.edge_fields(e)
        if store.link_parts(e):
            raise UsageError(f"{store.path} has links held out of {'/'.join(e)} already: take the store that it was made from")
        if by is None:
            continue
        spec = fields.get(by)
        if spec is None:
            raise MissingFieldError(f"{edges} have no field {by!r}; they have {', '.join(map(repr, fields)) or 'none'}")
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


def _check_counts(store: Store, edge_type: EdgeType, counts: dict[str, int], num_left: int, by: str | None, *, are_given: bool) -> None:
    """Raise where a part that was asked for, or the graph, has no edges. `are_given`: of `_check_shares`."""
    empty = [part for part, count in counts.items() if not count] + ["the graph"] * (not num_left)
    if empty:
        why = "pairs are drawn by chance" if by is None else f"edges of equal {by!r} stay together"
        why = "edges like given links are left out" if are_given else why
        raise InputError(
            f"{store.path}: {empty[0]} would have none of the {store.num_edges[edge_type]} edges {'/'.join(edge_type)}, since {why}: "
            f"choose other shares, {argument('val')} and {argument('test')}"
        )


def _choosers(
    store: Store,
    types: Sequence[EdgeType],
    shares: dict[str, float],
    given: dict[str, np.ndarray],
    by: str | None,
    seed: int,
    progress: Progress,
) -> dict[EdgeType, Chooser]:
    """What chooses the edges of the type that some are held out of, the first one, and of its reverses."""
    chosen, *_ = types
    both_ways = chosen[0] == chosen[2]
    if by is None:
        key, bounds = rng.derive_key(seed, 0, rng.HOLD_OUT), np.cumsum([shares[part] for part in PARTS])
        choosers: dict[EdgeType, Chooser] = {e: _ByChance(key, bounds, both_ways, is_reversed=e != chosen) for e in types}
    else:
        with stage(progress, f"order of {by}", 4 * store.num_edges[chosen], "edges"):
            firsts = _firsts(store, chosen, by, shares, progress)
        choosers = dict.fromkeys(types, lambda block: _by_value(block.columns[by], firsts))
    if not given:
        return choosers
    links = np.concatenate(list(given.values()), axis=1)
    return {e: _Without(choose, links, store.num_nodes[e[0]], both_ways, e != chosen) for e, choose in choosers.items()}


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


class _Without:
    """Leaves out edges like given links, and chooses of the others.

    Args:
        choose: of the others.
        links: int64[2, n].
        num_sources: of the node type where these edges begin.
        both_ways: (u, v) and (v, u) are the same pair. is_reversed: these edges run against the links.
    """

    def __init__(self, choose: Chooser, links: np.ndarray, num_sources: int, both_ways: bool, is_reversed: bool) -> None:
        sources, targets = links[::-1] if is_reversed else links
        if both_ways:
            sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        self._choose, self._num_sources = choose, np.uint64(num_sources)
        self._pairs = np.unique(self._numbers(sources, targets))

    def _numbers(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """uint64[n], a number for each pair; fewer than 2**64 pairs are told apart."""
        return targets.astype(np.uint64) * self._num_sources + sources.astype(np.uint64)

    def __call__(self, block: _Block) -> np.ndarray:
        parts = self._choose(block)
        numbers = self._numbers(block.sources, block.targets)
        places = np.minimum(np.searchsorted(self._pairs, numbers), self._pairs.size - 1)
        parts[self._pairs[places] == numbers] = LEFT_OUT
        return parts


def _by_value(values: np.ndarray, firsts: Sequence[int | None]) -> np.ndarray:
    """The parts of edges by their values. `firsts`: the least value of each of PARTS; None where there is no such part."""
    parts, values = np.full(len(values), IN_GRAPH, np.uint8), values.reshape(-1)
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
    first = 0
    while first < entry.num_edges:
        begin, end = np.searchsorted(indptr, [first, min(first + num_rows, entry.num_edges) - 1], side="right") - 1
        end = min(end, begin + num_rows)  # of lists too, most of which may be empty
        count = min(num_rows, int(indptr[end + 1]) - first)
        ends = np.clip(indptr[begin : end + 2], first, first + count)
        targets = np.repeat(np.arange(begin, end + 1), np.diff(ends))
        columns = {name: store.array_file(spec).read(first, count) for name, spec in specs.items()}
        yield _Block(first, columns[INDICES].astype(np.int64), targets, columns)
        first += count


def _columns(entry: EdgeEntry) -> dict[str, ArraySpec]:
    """What a store has of each edge."""
    return {INDICES: entry.indices, **({EDGE_ID: entry.edge_id} if entry.edge_id else {}), **entry.fields}


def _sift(store: Store, writer: StoreWriter, edge_type: EdgeType, choose: Chooser, parts: Sequence[str], progress: Progress) -> EdgeEntry:
    """Write the edges of a type that stay in the graph, and those of `parts` as links."""
    entry, indptr = store.manifest.edges[edge_type], store.map(store.manifest.edges[edge_type].indptr)
    specs = _columns(entry)
    kept = {name: _writer(writer, spec.file, spec) for name, spec in specs.items()}
    ends, num_kept = _writer(writer, entry.indptr.file, entry.indptr), 0
    links = {part: _link_writers(writer, edge_type, part, specs, store.num_nodes[edge_type[2]]) for part in parts}
    last = 0  # lists that begin at an earlier edge
    for block in _blocks(store, edge_type):
        chosen = choose(block)
        stays = chosen == IN_GRAPH
        up_to = np.append(num_kept, num_kept + np.cumsum(stays))  # edges that stay before each edge of the block
        behind = last + int(np.searchsorted(indptr[last:], block.first + stays.size, side="left"))
        for at in range(last, behind, _BLOCK_BYTES // 32):
            ends.append(up_to[indptr[at : min(at + _BLOCK_BYTES // 32, behind)] - block.first])
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


def _write_links(writer: StoreWriter, edge_type: EdgeType, part: str, links: np.ndarray) -> dict[str, ArraySpec]:
    """Write the ends of int64[2, n] links that were given."""
    columns = {}
    for end, ids in zip(ENDS, links, strict=True):
        column = writer.array(f"{folder_of_links(edge_type, part)}/{end}.npy", "int64")
        column.append(ids)
        columns[end] = column.finish()
    return columns


def _link_writers(
    writer: StoreWriter, edge_type: EdgeType, part: str, specs: dict[str, ArraySpec], num_targets: int
) -> dict[str, ArrayWriter]:
    """Begin the arrays of a part of the links."""
    folder = folder_of_links(edge_type, part)
    columns = {ENDS[0]: writer.array(f"{folder}/{ENDS[0]}.npy", specs[INDICES].dtype)}
    columns[ENDS[1]] = writer.array(f"{folder}/{ENDS[1]}.npy", index_dtype(num_targets).__name__)
    others = {name: spec for name, spec in specs.items() if name != INDICES}
    return columns | {name: _writer(writer, f"{folder}/{file_name(name)}.npy", spec) for name, spec in others.items()}
