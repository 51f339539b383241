"""Edges -> CSC files in bounded memory: count, then place; by way of the disk if the lists do not fit.

In: a reader of edges. Out: indptr, indices and columns of the store. `place_range` handles every size: it places all records at once in
memory; or it spills them into buckets that fit, and places each bucket in memory; a bucket that does not fit goes through `place_range`
again, with its narrower range of destinations. A single destination larger than a bucket needs no sorting and is copied.

Refused: sorting the edges (the counting build reads and writes each edge once per level, and only hubs cause more than one level), and
random writes into a mapped file (they thrash as soon as the page cache is bounded).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from penstock.errors import BudgetError, argument
from penstock.kernels.duplicates import cpu as duplicate_kernels
from penstock.kernels.placement import cpu as kernels
from penstock.records import EdgeType
from penstock.store.arrays import ArrayWriter
from penstock.store.budget import MIB, Budget, format_bytes
from penstock.store.files import Scratch
from penstock.store.format import file_name, folder_of_edges
from penstock.store.ingestion.allocators import release_memory
from penstock.store.ingestion.edges import EDGE_ID, EdgeReader
from penstock.store.ingestion.histogram import DegreeHistogram
from penstock.store.ingestion.place import INDICES, Columns, PlacedLists, Records, drop_repeats, place_records
from penstock.store.ingestion.spill import Buckets, Spill, plan_buckets, spill_records
from penstock.store.manifest import EdgeEntry
from penstock.store.process_memory import usable_cores
from penstock.store.progress import Progress
from penstock.store.writer import StoreWriter

MAX_BUCKET_BYTES = 64 * MIB
"""Larger buckets would not be placed faster: their lists exceed the processor's caches."""
MAX_WORKERS = 2
NUM_WORKERS = min(MAX_WORKERS, usable_cores())
"""Buckets that are in memory at the same time, being placed or waiting to be written."""
MAX_CELLS = 1 << 20
PLAN_CELL_BYTES = 32
"""Memory per cell of the histogram while buckets are planned: 8 bytes for the count, and three times as much in `plan_buckets`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Memory limits for building one edge type; tests set them low to reach every path.

    Attributes:
        in_memory_bytes: for degrees and lists that are placed without spilling.
        bucket_bytes: for the lists and columns of one bucket.
        piece_bytes: of records that are read back from disk at a time.
        histogram_cells: number of ranges in which destinations are counted if exact degrees do not fit; planning the buckets takes
            `PLAN_CELL_BYTES` per range.
    """

    in_memory_bytes: int
    bucket_bytes: int
    piece_bytes: int
    histogram_cells: int


def limits_of(budget: Budget) -> Limits:
    """Derive the limits from a budget. The work memory is used in turn by lists placed at once, bucket planning, and buckets at work."""
    return Limits(
        in_memory_bytes=budget.work_bytes,
        bucket_bytes=min(MAX_BUCKET_BYTES, budget.work_bytes // MAX_WORKERS),
        piece_bytes=budget.chunk_bytes,
        histogram_cells=min(MAX_CELLS, budget.work_bytes // PLAN_CELL_BYTES),
    )


class EdgeSink:
    """The files of one edge type, written list by list."""

    def __init__(self, writer: StoreWriter, edge_type: EdgeType, columns: Columns) -> None:
        folder = folder_of_edges(edge_type)
        self.num_edges = 0
        self.indptr = writer.array(f"{folder}/indptr.npy", "int64")
        self.columns: dict[str, ArrayWriter] = {
            name: writer.array(f"{folder}/{file_name(name)}.npy", column.dtype, column.row_shape) for name, column in columns.items()
        }
        self.indptr.append(np.zeros(1, dtype=np.int64))

    def append_lists(self, lists: PlacedLists) -> None:
        """Append the finished lists of the next destinations."""
        for name, rows in lists.columns.items():
            self.columns[name].append(rows)
        num_edges = int(lists.ends[-1]) if lists.ends.size else 0
        lists.ends += self.num_edges
        self.indptr.append(lists.ends)
        self.num_edges += num_edges

    def append_piece(self, columns: dict[str, np.ndarray]) -> None:
        """Append a piece of the list of the next destination; `close_list` ends it."""
        for name, rows in columns.items():
            self.columns[name].append(rows)
        self.num_edges += columns[INDICES].size

    def close_list(self) -> None:
        """End the list of the next destination."""
        self.indptr.append(np.full(1, self.num_edges, dtype=np.int64))

    def finish(self, num_dst: int) -> EdgeEntry:
        """Close the files; destinations without edges get empty lists."""
        self.indptr.pad_rows(num_dst + 1, self.num_edges)
        specs = {name: column.finish() for name, column in self.columns.items()}
        indices, edge_id = specs.pop(INDICES), specs.pop(EDGE_ID, None)
        return EdgeEntry(num_edges=self.num_edges, indptr=self.indptr.finish(), indices=indices, edge_id=edge_id, fields=specs)


class Builder:
    """Builds one edge type.

    Args:
        columns: of a record.
        limits: memory limits.
        scratch: receives spilled records.
        sink: receives the lists, in the order of destinations.
        num_src: size of the bitmap that finds duplicates; None if duplicates are kept.
    Attributes:
        paths: the paths that were taken, for tests and reports: "memory", "spill", "copy" (a hub), "again" (a range spilled once more).
    """

    def __init__(self, columns: Columns, limits: Limits, scratch: Scratch, sink: EdgeSink, num_src: int | None) -> None:
        self._columns = columns
        self._limits = limits
        self._scratch = scratch
        self._sink = sink
        self._num_words = 0 if num_src is None else -(-num_src // 64)
        self._drops = num_src is not None
        self._record_bytes = sum(column.row_bytes for column in columns.values()) + self._drops
        self._bucket_bytes = limits.bucket_bytes - 8 * self._num_words
        self._piece_records = max(1, limits.piece_bytes // (self._record_bytes + 16))
        self.paths: set[str] = set()

    def place_range(self, read: Callable[[], Iterator[Records]], histogram: DegreeHistogram) -> None:
        """Place all records that `read` yields. The histogram has the counts of their keys; it is overwritten."""
        needed_bytes = 8 * histogram.num_keys + histogram.num_records * self._record_bytes + 8 * self._num_words
        if histogram.is_exact and needed_bytes <= self._limits.in_memory_bytes:
            self.paths.add("memory")
            self._sink.append_lists(self._place(read(), histogram.counts, on_two_threads=True))
            return
        if self._bucket_bytes < self._limits.bucket_bytes // 4:
            raise BudgetError(
                f"dropping duplicates takes one bit per source node, {format_bytes(8 * self._num_words)} in each of {NUM_WORKERS} buckets "
                f"at work, of which there are {format_bytes(self._limits.bucket_bytes)}: declare more {argument('memory')}, or "
                f"{argument('duplicates', 'keep')}"
            )
        self.paths.add("spill")
        histogram.coarsen(self._limits.histogram_cells)
        buckets = plan_buckets(histogram, self._record_bytes, self._bucket_bytes)
        with closing(Spill(self._scratch, self._columns)) as spill:
            spill_records(read(), buckets, spill)
            release_memory()
            self._place_buckets(spill, buckets)

    def _place_buckets(self, spill: Spill, buckets: Buckets) -> None:
        """Place buckets in parallel and append them in order; at most NUM_WORKERS of them are in memory."""
        waiting: deque[Future[PlacedLists]] = deque()

        def append(keep: int) -> None:
            while len(waiting) > keep:
                self._sink.append_lists(waiting.popleft().result())

        with ThreadPoolExecutor(NUM_WORKERS, "penstock-place") as pool:
            try:
                for bucket in range(len(buckets)):
                    num_keys = int(buckets.bounds[bucket + 1] - buckets.bounds[bucket])
                    first, end = int(buckets.starts[bucket]), int(buckets.starts[bucket + 1])
                    if 8 * num_keys + (end - first) * self._record_bytes <= self._bucket_bytes:
                        append(NUM_WORKERS - 1)
                        waiting.append(pool.submit(self._place_bucket, spill, first, end, num_keys))
                        continue
                    append(0)
                    if num_keys == 1:
                        self._copy_hub(spill, first, end)
                    else:
                        self._spill_again(spill, first, end, num_keys)
                append(0)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _place_bucket(self, spill: Spill, first: int, end: int, num_keys: int) -> PlacedLists:
        counts = np.zeros(num_keys, dtype=np.int64)
        for keys in spill.read_keys(first, end, self._piece_records):
            kernels.count_keys(keys, 0, counts)
        return self._place(spill.read_records(first, end, self._piece_records), counts)

    def _place(self, pieces: Iterator[Records], counts: np.ndarray, *, on_two_threads: bool = False) -> PlacedLists:
        lists = place_records(pieces, counts, self._columns, on_two_threads=on_two_threads)
        return drop_repeats(lists, np.zeros(self._num_words, dtype=np.uint64)) if self._drops else lists

    def _copy_hub(self, spill: Spill, first: int, end: int) -> None:
        """Copy the records of one destination that does not fit: they are in order already."""
        self.paths.add("copy")
        bitmap = np.zeros(self._num_words, dtype=np.uint64)
        for piece in spill.read_records(first, end, self._piece_records):
            if self._drops:
                keep = np.empty(piece.keys.size, dtype=np.uint8)
                duplicate_kernels.mark_list(piece.columns[INDICES], bitmap, keep)
                piece.columns = {name: kernels.compact_rows(rows, keep) for name, rows in piece.columns.items()}
            self._sink.append_piece(piece.columns)
        self._sink.close_list()

    def _spill_again(self, spill: Spill, first: int, end: int, num_keys: int) -> None:
        """Place a bucket that does not fit: spill it again, by a finer histogram."""
        self.paths.add("again")
        histogram = DegreeHistogram(num_keys, self._limits.histogram_cells)
        for keys in spill.read_keys(first, end, self._piece_records):
            histogram.add(keys, num_keys - 1)
        self.place_range(lambda: spill.read_records(first, end, self._piece_records), histogram)


@dataclass(frozen=True, slots=True)
class BuiltEdges:
    """Edges of one type whose number of destinations may still grow; `sink.finish` closes them.

    Attributes:
        sink: their files.
        num_src, num_dst: numbers of nodes, as given or as implied by the edges.
        paths: see `Builder`.
        num_dangling: rows left out because an end is not a node.
    """

    sink: EdgeSink
    num_src: int
    num_dst: int
    paths: frozenset[str]
    num_dangling: int


def build_edges(writer: StoreWriter, edge_type: EdgeType, reader: EdgeReader, limits: Limits, progress: Progress) -> BuiltEdges:
    """Build the files of one edge type."""
    counts = reader.count(_choose_cells(reader, limits), progress)
    columns = reader.record_columns(counts)
    sink = EdgeSink(writer, edge_type, columns)
    builder = Builder(columns, limits, writer.scratch, sink, counts.num_src if reader.options.duplicates == "drop" else None)
    builder.place_range(lambda: reader.records(counts, progress), counts.histogram)
    for name, converter in reader.fields.items():
        sink.columns[name].properties = converter.properties()
    return BuiltEdges(sink, counts.num_src, counts.num_dst, frozenset(builder.paths), counts.num_dangling)


def _choose_cells(reader: EdgeReader, limits: Limits) -> int:
    """Choose the number of histogram cells before anything is read: one per node if the lists may fit in memory."""
    num_rows = reader.table.num_rows
    num_records = None if num_rows is None else num_rows * reader.records_per_row
    lists_bytes = (num_records or 0) * reader.min_record_bytes
    if lists_bytes > limits.in_memory_bytes:
        return limits.histogram_cells
    if num_records is not None and reader.num_dst is not None:
        return reader.num_dst if lists_bytes + 8 * reader.num_dst <= limits.in_memory_bytes else limits.histogram_cells
    return max(limits.histogram_cells, limits.in_memory_bytes // 16)
