"""The edges of one type as the builder needs them: checked, filtered, with reverses if undirected, with the columns of the store.

In: a table with columns src, dst and fields. Out: pieces of records in input order. Invariants: the first pass checks every id; the second
pass delivers exactly the records that the first one counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.errors import InputError, NodeIdError, argument
from penstock.records import index_dtype
from penstock.rng import MAX_NODES
from penstock.sources.source import DST, SRC, ChangedTable, Chunk, EdgeTable, Table
from penstock.store.ingestion.fields import FieldConverter
from penstock.store.ingestion.histogram import DegreeHistogram
from penstock.store.ingestion.options import IngestOptions
from penstock.store.ingestion.place import INDICES, RecordColumn, Records
from penstock.store.ingestion.prefetch import prefetch
from penstock.store.progress import Progress, stage

EDGE_ID = "edge_id"
RESERVED = (INDICES, EDGE_ID, "indptr", "keys")
"""Names that no field may have."""


FEW_NODES, NODES_PER_EDGE = 1 << 24, 100
"""Most nodes, in all or per edge (the larger counts), that edges alone may name: more means ids that should have been mapped."""

_ENDS_BYTES = 24
"""Per edge in a chunk: both ends as int64, and the arrays made of them."""


@dataclass(frozen=True, slots=True)
class EdgeCounts:
    """Results of the first pass: edges per destination, rows of the table, numbers of nodes as given or implied, and the number of rows
    left out because an end is not a node."""

    histogram: DegreeHistogram
    num_rows: int
    num_src: int
    num_dst: int
    num_dangling: int


class EdgeReader:
    """Read the edges of one type.

    Args:
        edges: the table.
        num_src, num_dst: numbers of nodes; None if they follow from the edges.
        options: of the ingestion.
        chunk_bytes: size of one piece.
    Attributes:
        name: of the table, for messages.
        num_dst: as given.
        fields: converter of each field.
    """

    def __init__(self, edges: EdgeTable, num_src: int | None, num_dst: int | None, options: IngestOptions, chunk_bytes: int) -> None:
        self.table: Table = edges.table
        self.name = f"edges {edges.edge_type[0]}-{edges.edge_type[1]}->{edges.edge_type[2]}"
        self.is_one_type = edges.edge_type[0] == edges.edge_type[2]
        self.options, self.num_dst = options, num_dst
        self._is_doubled = options.undirected and self.is_one_type
        self._drops_loops = options.self_loops == "drop" and self.is_one_type
        self._drops_dangling = options.dangling == "drop"
        self._known = (num_src, num_dst)
        self._largest_src = self._largest_dst = -1
        names = [name for name in self.table.columns if name not in (SRC, DST)]
        for end in (SRC, DST):
            self._check_end(end)
        for name in names:
            if name in RESERVED:
                raise InputError(f"{self.name}: a field cannot be called '{name}', the store uses that name: rename the column")
        self.fields = {name: FieldConverter(self.table, self.table.columns[name], options, self.name) for name in names}
        fields_bytes = sum(self.table.columns[name].row_bytes for name in names)
        self._max_rows = max(1, chunk_bytes // ((_ENDS_BYTES + fields_bytes) * self.records_per_row))
        self._max_ends = max(1, chunk_bytes // (_ENDS_BYTES * self.records_per_row))

    def _check_end(self, end: str) -> None:
        column = self.table.columns.get(end)
        if column is None:
            raise InputError(f"{self.name}: there is no column '{end}'; it has {', '.join(self.table.columns)}")
        if column.dtype == object:
            raise InputError(f"{self.name}: '{end}' holds strings: ask for the ids of its node type to be mapped")
        if column.dtype.kind not in "iu" or column.row_shape:
            raise InputError(f"{self.name}: '{end}' must be a column of integers, got {column.dtype} {list(column.row_shape)}")

    def count(self, max_cells: int, progress: Progress) -> EdgeCounts:
        """First pass: check every id and count the edges of each destination."""
        histogram = DegreeHistogram(self.num_dst, max_cells)
        num_rows = num_dangling = 0
        with stage(progress, f"count {self.name}", self.table.num_rows):
            for chunk in prefetch(self.table.chunks(self._max_ends, (SRC, DST))):
                src, dst = (self._checked_end(chunk, end, known) for end, known in zip((SRC, DST), self._known, strict=True))
                if (keep := self._without_dangling(src, dst)) is not None:
                    src, dst, num_dangling = src[keep], dst[keep], num_dangling + int(np.count_nonzero(~keep))
                self._largest_src = max(self._largest_src, int(src.max(initial=-1)))
                self._largest_dst = max(self._largest_dst, int(dst.max(initial=-1)))
                if self._is_doubled or self._drops_loops:
                    is_loop = src == dst
                    if self._is_doubled:
                        histogram.add(src[~is_loop], self._largest_src)
                    if self._drops_loops:
                        dst = dst[~is_loop]
                histogram.add(dst, self._largest_dst)
                num_rows += chunk.num_rows
                progress.advance(chunk.num_rows)
        if self.table.num_rows not in (None, num_rows):
            raise InputError(f"{self.name}: announced {self.table.num_rows} rows and delivered {num_rows}: did the file change?")
        histogram.finish()
        known_src, known_dst = self._known
        if self.is_one_type:
            self._largest_src = self._largest_dst = max(self._largest_src, self._largest_dst)
        for known, largest in zip(self._known, (self._largest_src, self._largest_dst), strict=True):
            if known is None and largest >= max(FEW_NODES, NODES_PER_EDGE * num_rows):
                raise InputError(
                    f"{self.name}: {num_rows} edges name nodes up to {largest}, and every number below is a node too: have such ids mapped "
                    f"({argument('ids', 'int')}), or say how many nodes there are ({argument('num_nodes')})"
                )
        return EdgeCounts(
            histogram,
            num_rows,
            self._largest_src + 1 if known_src is None else known_src,
            self._largest_dst + 1 if known_dst is None else known_dst,
            num_dangling,
        )

    @property
    def records_per_row(self) -> int:
        """Most records that one row of the table becomes."""
        return 2 if self._is_doubled else 1

    @property
    def min_record_bytes(self) -> int:
        """Least bytes of a record, known before counting."""
        return 4 + sum(RecordColumn(field.dtype, field.row_shape).row_bytes for field in self.fields.values())

    def record_columns(self, counts: EdgeCounts) -> dict[str, RecordColumn]:
        """Return the columns of a record; ids and row numbers are int32 if they fit."""
        columns = {INDICES: RecordColumn(index_dtype(counts.num_src).__name__)}
        keep_ids = self.options.edge_ids
        if keep_ids or (keep_ids is None and self.fields):
            columns[EDGE_ID] = RecordColumn(index_dtype(counts.num_rows).__name__)
        return columns | {name: RecordColumn(field.dtype, field.row_shape) for name, field in self.fields.items()}

    def records(self, counts: EdgeCounts, progress: Progress) -> Iterator[Records]:
        """Second pass: yield the records in input order; keys are destinations."""
        columns, num_rows = self.record_columns(counts), 0
        with stage(progress, f"place {self.name}", counts.num_rows):
            for chunk in prefetch(self.table.chunks(self._max_rows)):
                num_rows += chunk.num_rows
                if num_rows > counts.num_rows:  # there is no place for these
                    break
                src, dst = (_as_int64(chunk.columns[end]) for end in (SRC, DST))
                rows: dict[str, np.ndarray] = {}
                if EDGE_ID in columns:
                    rows[EDGE_ID] = np.arange(chunk.first_row, chunk.first_row + src.size, dtype=columns[EDGE_ID].storage)
                for name, field in self.fields.items():
                    rows[name] = field.convert(chunk.columns[name], chunk.first_row)
                if (keep := self._without_dangling(src, dst)) is not None:
                    src, dst, rows = src[keep], dst[keep], {name: values[keep] for name, values in rows.items()}
                if self._is_doubled or self._drops_loops:
                    src, dst, rows = self._filter(src, dst, rows)
                rows[INDICES] = src.astype(columns[INDICES].storage)
                yield Records(dst, {name: rows[name] for name in columns})
                progress.advance(chunk.num_rows)
        if num_rows != counts.num_rows:
            found = f"more than {counts.num_rows}" if num_rows > counts.num_rows else f"{num_rows}"
            raise InputError(f"{self.name}: delivered {counts.num_rows} rows, and {found} when they were read again: did the file change?")

    def _filter(
        self, src: np.ndarray, dst: np.ndarray, rows: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Drop self-loops if asked to; insert the reverse of each edge after it if undirected."""
        is_loop = src == dst
        if not self._is_doubled:
            keep = ~is_loop
            return src[keep], dst[keep], {name: values[keep] for name, values in rows.items()}
        times = np.where(is_loop, 0 if self._drops_loops else 1, 2)
        row = np.repeat(np.arange(src.size), times)
        is_reverse = np.r_[False, row[1:] == row[:-1]]
        ends = np.where(is_reverse, dst[row], src[row]), np.where(is_reverse, src[row], dst[row])
        return *ends, {name: values[row] for name, values in rows.items()}

    def _without_dangling(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray | None:
        """bool[n]: the edges whose ends are both nodes; None if dangling edges are refused rather than dropped."""
        if not self._drops_dangling:
            return None
        keep = np.ones(src.size, dtype=np.bool_)
        for ends, num_nodes in zip((src, dst), self._known, strict=True):
            if num_nodes is not None:
                keep &= (ends >= 0) & (ends < num_nodes)
        return keep

    def _checked_end(self, chunk: Chunk, end: str, num_nodes: int | None) -> np.ndarray:
        raw = np.asarray(chunk.columns[end])
        if self._drops_dangling and num_nodes is not None:
            return _as_int64(raw)
        bound = MAX_NODES if num_nodes is None else num_nodes
        if raw.size and not (raw.min() >= 0 and raw.max() < bound):
            bad = np.flatnonzero((raw < 0) | (raw >= bound))
            of_tables = f"number the nodes from 0, or, of tables, map the ids ({argument('ids', 'int')})"
            drop = argument("dangling", "drop")
            otherwise = f"Is the number of nodes too small? Else {of_tables}, or leave such edges out ({drop})."
            hint = f"Are these ids? Then {of_tables}." if num_nodes is None else otherwise
            raise NodeIdError(
                f"{self.table.where(chunk.first_row + int(bad[0]))}: '{end}' is {raw[bad[0]]}, node ids must lie in [0, {bound}) "
                f"({bad.size} of the {raw.size} ids around do not). {hint}"
            )
        return _as_int64(raw)


def _as_int64(values: object) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64)


def reversed_edges(edges: EdgeTable) -> EdgeTable:
    """Return the reverse of an edge type between two node types, as type (dst, rev_relation, src)."""
    source, relation, destination = edges.edge_type
    return EdgeTable(edge_type=(destination, f"rev_{relation}", source), table=_SwappedTable(edges.table))


class _SwappedTable(ChangedTable):
    """A table of edges with sources and destinations exchanged."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, {_swap(name): column for name, column in table.columns.items()})

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Read the table and rename its columns."""
        wanted = None if names is None else tuple(map(_swap, names))
        for chunk in self._table.chunks(max_rows, wanted):
            yield Chunk(chunk.first_row, {_swap(name): values for name, values in chunk.columns.items()})


def _swap(name: str) -> str:
    return {SRC: DST, DST: SRC}.get(name, name)
