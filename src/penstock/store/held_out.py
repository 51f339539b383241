"""Edges held out of a graph, to be predicted: `hold_out` makes a store without them, which has them as links beside it.

In: a store, and shares of its edges, or links to leave out of it. Out: another, with the same nodes. Invariants: the edges of the old store
are those of the new one and its links, each once, in their order, but for those like links that were given; a pair of nodes of which an
edge is held out by chance, or that is given, has none left in the graph, nor in the opposite direction. Memory does not grow with the
graph, but for the row pointers of its lists, which are mapped. Files that stay the same get a second name.

The links of a part are arrays of a row each: `src`, `dst`, and all that the store has of an edge (`edge_id`, fields); of links that were
given, the fields that came with them.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock import rng
from penstock.errors import InputError, MissingFieldError, StoreError, UsageError, argument
from penstock.records import EdgeType, Graph, check_neighbors, reverses_of
from penstock.store.budget import format_bytes
from penstock.store.format import ENDS, HELD_OUT
from penstock.store.given_links import GivenLinks, given_links
from penstock.store.opened import Store
from penstock.store.progress import Progress, Quiet, stage
from penstock.store.sifting import PARTS, ByChance, Chooser, Without, by_value, distinct_pairs, find_firsts, sift, write_links
from penstock.store.watch import check_bytes
from penstock.store.writer import StoreWriter

logger = logging.getLogger("penstock")

LOOKED_AT = 256
"""Edges of a type, to know whether another type has their reverses."""


def hold_out(
    store: str | os.PathLike[str] | Store,
    dest: str | os.PathLike[str],
    *,
    edge_type: Sequence[str] | None = None,
    val: float | np.ndarray | str | os.PathLike[str] = 0.05,
    test: float | np.ndarray | str | os.PathLike[str] = 0.1,
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
            edges, in both directions where the type joins a node type to itself. Or links, of an official split for instance, whole
            numbers [2, n] or [n, 2], sources first, or a file (see `penstock.store.given_links`): edges like them, if there are any, are
            left out of the graph.
        by: an edge field of whole numbers, times for instance: its largest values are "test", the next ones "val". Equal values stay
            together, so that more may be held out than asked for. None: edges are held out by chance.
        reverse: the edge type that holds the reverses of these edges, which are left out of the graph too, and are no links; "none" if
            there is none; "auto" takes the one with PyG's name for it (`ToUndirected`: "rev_likes" of "likes"), and refuses to go on where
            a type of another name may be one, or, as some of its edges say, is.
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
    given = {
        part: given_links(store, chosen, part, links, "a share, or ", store.edge_fields(chosen))
        for part, links in wanted.items()
        if not isinstance(links, float | int)
    }
    shares = _check_shares({part: 0.0 if part in given else share for part, share in wanted.items()}, are_given=bool(given))
    reverses = _reverses(store, chosen, reverse)
    types = [chosen, *reverses]
    _warn_of_shared(store, chosen, given)
    _check_store(store, types, by)
    if os.path.realpath(dest) == os.path.realpath(store.path):
        raise UsageError(f"{dest} is the store itself, which stays as it is: choose another path")
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
                edges[e] = sift(store, writer, e, choose, [part for part in PARTS if shares[part] and e == chosen], progress)
        links = edges[chosen].links | {part: write_links(writer, store, chosen, part, links) for part, links in given.items()}
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
    made["given_fields"] = {part: list(links.fields) for part, links in given.items()}
    return {"store": str(writer.destination), "edge_type": list(chosen), **how, **made}


def _edge_type(store: Store, given: Sequence[str] | None) -> EdgeType:
    """The type whose edges are held out."""
    types = " or ".join(",".join(e) for e in store.edge_types) or "none"
    if given is None and len(store.edge_types) != 1:
        raise UsageError(f"{store.path} has several edge types, choose one by {argument('edge_type')}: {types}")
    found: Any = store.edge_types[0] if given is None else tuple(given)
    if found not in store.num_edges:
        raise MissingFieldError(f"{store.path} has no edges {','.join(map(str, found))}; it has {types}")
    return found


def _warn_of_shared(store: Store, edge_type: EdgeType, given: dict[str, GivenLinks]) -> None:
    """Say that some links are in both parts."""
    if len(given) < len(PARTS):
        return
    ends = [np.sort(given[part].ends, axis=0) if edge_type[0] == edge_type[2] else given[part].ends for part in PARTS]
    val, test = (distinct_pairs(each, store.num_nodes[edge_type[0]], both_ways=False) for each in ends)
    num_shared = np.intersect1d(val, test, assume_unique=True).size
    if num_shared:
        logger.warning("%d of the %d pairs of nodes in test are in val too, by which models are chosen", num_shared, test.size)


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
    for other in (e for e in others if e not in found and _are_reverses(store, edge_type, e)):
        named = ",".join(other)
        raise UsageError(
            f"{store.path}: most edges {','.join(edge_type)} have their reverse in {named}, which would tell what is held out: say "
            f"{argument('reverse', named)}, or {argument('reverse', 'none')}"
        )
    return [e for e in found if e != edge_type]


def _are_reverses(store: Store, edge_type: EdgeType, other: EdgeType) -> bool:
    """Whether the reverses of most of a few edges are edges of another type."""
    csc, back = store.csc(edge_type), store.csc(other)
    looked_at = np.linspace(0, csc.num_edges - 1, min(LOOKED_AT, csc.num_edges), dtype=np.int64)
    sources, targets = csc.indices[looked_at], np.searchsorted(csc.indptr, looked_at, side="right") - 1
    check_neighbors(edge_type, store.num_nodes[edge_type[0]], looked_at, sources)
    pairs = zip(sources.tolist(), targets.tolist(), strict=True)
    return 2 * sum(target in back.indices[back.indptr[source] : back.indptr[source + 1]] for source, target in pairs) > looked_at.size


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
    given: dict[str, GivenLinks],
    by: str | None,
    seed: int,
    progress: Progress,
) -> dict[EdgeType, Chooser]:
    """What chooses the edges of the type that some are held out of, the first one, and of its reverses."""
    chosen, *_ = types
    both_ways = chosen[0] == chosen[2]
    if by is None:
        key, bounds = rng.derive_key(seed, 0, rng.HOLD_OUT), np.cumsum([shares[part] for part in PARTS])
        choosers: dict[EdgeType, Chooser] = {e: ByChance(key, bounds, both_ways, is_reversed=e != chosen) for e in types}
    else:
        with stage(progress, f"order of {by}, read four times", 4 * store.num_edges[chosen], "edges"):
            firsts = find_firsts(store, chosen, by, shares, progress)
        choosers = dict.fromkeys(types, lambda block: by_value(block.columns[by], firsts))
    if not given:
        return choosers
    links = np.concatenate([each.ends for each in given.values()], axis=1)
    return {e: Without(choose, links, store.num_nodes[e[0]], both_ways, e != chosen) for e, choose in choosers.items()}
