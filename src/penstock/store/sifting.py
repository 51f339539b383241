"""Dividing the edges of a store into those that stay in its graph and links that are held out of it, block by block.

In: the lists of an edge type, and what chooses edges: by chance, by a value, or because they are like given ones. Out: arrays of a new
store. Invariants: what is chosen of an edge depends on the edge alone, not on its block; edges keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.kernels.links import cpu as kernels
from penstock.records import EdgeType, index_dtype
from penstock.store.arrays import ArrayWriter
from penstock.store.format import ENDS, ArraySpec, file_name, folder_of_links
from penstock.store.given_links import GivenLinks
from penstock.store.manifest import EdgeEntry
from penstock.store.opened import Store
from penstock.store.progress import Progress
from penstock.store.writer import StoreWriter

PARTS = ("val", "test")
"""Of the links, in the order of time; the graph comes before them."""
IN_GRAPH, LEFT_OUT = 2, 3
EDGE_ID, INDICES = "edge_id", "indices"

BLOCK_BYTES = 32 << 20
"""Of edges that are looked at together, with all that is known of them."""

Chooser = Callable[["Block"], np.ndarray]
"""Edges -> uint8[n]: the part of each among PARTS; or IN_GRAPH, or LEFT_OUT of everything."""


@dataclass(slots=True)
class Block:
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
class ByChance:
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

    def __call__(self, block: Block) -> np.ndarray:
        """See `Chooser`."""
        ends = (block.targets, block.sources) if self.is_reversed else (block.sources, block.targets)
        parts = np.empty(block.sources.size, np.uint8)
        kernels.divide_pairs(self.key, *ends, self.both_ways, self.bounds, parts)
        return parts


class Without:
    """Leaves out edges like given links, and chooses of the others.

    Args:
        choose: of the others.
        links: int64[2, n].
        num_sources: of the node type where these edges begin.
        both_ways: (u, v) and (v, u) are the same pair. is_reversed: these edges run against the links.
    """

    def __init__(self, choose: Chooser, links: np.ndarray, num_sources: int, both_ways: bool, is_reversed: bool) -> None:
        self._choose, self._num_sources = choose, num_sources
        self._pairs = distinct_pairs(links[::-1] if is_reversed else links, num_sources, both_ways)

    def __call__(self, block: Block) -> np.ndarray:
        """See `Chooser`."""
        parts = self._choose(block)
        numbers = _pair_numbers(block.sources, block.targets, self._num_sources)
        places = np.minimum(np.searchsorted(self._pairs, numbers), self._pairs.size - 1)
        parts[self._pairs[places] == numbers] = LEFT_OUT
        return parts


def distinct_pairs(links: np.ndarray, num_sources: int, both_ways: bool) -> np.ndarray:
    """uint64[m], ascending: the numbers of the different pairs of int64[2, n]; `both_ways`: with those of their reverses."""
    sources, targets = np.concatenate([links, links[::-1]], axis=1) if both_ways else links
    return np.unique(_pair_numbers(sources, targets, num_sources))


def _pair_numbers(sources: np.ndarray, targets: np.ndarray, num_sources: int) -> np.ndarray:
    """uint64[n], a number for each pair; fewer than 2**64 pairs are told apart."""
    return targets.astype(np.uint64) * np.uint64(num_sources) + sources.astype(np.uint64)


def by_value(values: np.ndarray, firsts: Sequence[int | None]) -> np.ndarray:
    """The parts of edges by their values. `firsts`: the least value of each of PARTS; None where there is no such part."""
    parts, values = np.full(len(values), IN_GRAPH, np.uint8), values.reshape(-1)
    for number, first in enumerate(firsts):
        if first is not None:
            parts[values >= first] = number
    return parts


def find_firsts(store: Store, edge_type: EdgeType, by: str, shares: dict[str, float], progress: Progress) -> list[int | None]:
    """The least value of `by` in each of PARTS, found by four readings of it: 16 bits of each value at a time."""
    spec, num_edges = store.edge_fields(edge_type)[by], store.num_edges[edge_type]
    is_signed = spec.storage_dtype.kind == "i"
    after = {"val": shares["val"] + shares["test"], "test": shares["test"]}  # shares from the first edge of each on
    wanted = [part for part in PARTS if shares[part]]
    ranks = [min(num_edges - 1, max(0, num_edges - round(after[part] * num_edges))) for part in wanted]
    found = [0] * len(wanted)
    for shift in (48, 32, 16, 0) if num_edges else ():
        counts = np.zeros((len(wanted), 1 << 16), np.int64)
        for _, rows in store.array_file(spec).blocks(BLOCK_BYTES // 8):
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


def _blocks(store: Store, edge_type: EdgeType) -> Iterator[Block]:
    """The edges of a type, in their order."""
    entry, indptr = store.manifest.edges[edge_type], store.map(store.manifest.edges[edge_type].indptr)
    specs = _columns(entry)
    num_rows = max(1, BLOCK_BYTES // (24 + sum(spec.row_bytes for spec in specs.values())))
    first = 0
    while first < entry.num_edges:
        begin, end = np.searchsorted(indptr, [first, min(first + num_rows, entry.num_edges) - 1], side="right") - 1
        end = min(end, begin + num_rows)  # of lists too, most of which may be empty
        count = min(num_rows, int(indptr[end + 1]) - first)
        ends = np.clip(indptr[begin : end + 2], first, first + count)
        targets = np.repeat(np.arange(begin, end + 1), np.diff(ends))
        columns = {name: store.array_file(spec).read(first, count) for name, spec in specs.items()}
        yield Block(first, columns[INDICES].astype(np.int64), targets, columns)
        first += count


def _columns(entry: EdgeEntry) -> dict[str, ArraySpec]:
    """What a store has of each edge."""
    return {INDICES: entry.indices, **({EDGE_ID: entry.edge_id} if entry.edge_id else {}), **entry.fields}


def sift(store: Store, writer: StoreWriter, edge_type: EdgeType, choose: Chooser, parts: Sequence[str], progress: Progress) -> EdgeEntry:
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
        for at in range(last, behind, BLOCK_BYTES // 32):
            ends.append(up_to[indptr[at : min(at + BLOCK_BYTES // 32, behind)] - block.first])
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


def write_links(writer: StoreWriter, store: Store, edge_type: EdgeType, part: str, links: GivenLinks) -> dict[str, ArraySpec]:
    """Write links that were given, with fields of the kind that the store has."""
    folder, specs = folder_of_links(edge_type, part), store.edge_fields(edge_type)
    columns = {end: (writer.array(f"{folder}/{end}.npy", "int64"), ids) for end, ids in zip(ENDS, links.ends, strict=True)}
    for name, values in links.fields.items():
        columns[name] = _writer(writer, f"{folder}/{file_name(name)}.npy", specs[name]), values
    for column, values in columns.values():
        column.append(values)
    return {name: column.finish() for name, (column, _) in columns.items()}


def _link_writers(
    writer: StoreWriter, edge_type: EdgeType, part: str, specs: dict[str, ArraySpec], num_targets: int
) -> dict[str, ArrayWriter]:
    """Begin the arrays of a part of the links."""
    folder = folder_of_links(edge_type, part)
    columns = {ENDS[0]: writer.array(f"{folder}/{ENDS[0]}.npy", specs[INDICES].dtype)}
    columns[ENDS[1]] = writer.array(f"{folder}/{ENDS[1]}.npy", index_dtype(num_targets).__name__)
    others = {name: spec for name, spec in specs.items() if name != INDICES}
    return columns | {name: _writer(writer, f"{folder}/{file_name(name)}.npy", spec) for name, spec in others.items()}
