"""Distinct ids in sorted order, in bounded memory: sorted runs on disk, merged.

In: batches of ids, in any order and number. Out: batches of distinct ids, ascending (strings by their UTF-8 bytes). Ids are gathered until
a buffer is full, and repetitions are removed; the rest is written to disk as a sorted run, or stays in memory if it is small. Each run has
a block in memory; a merge step takes from all blocks the ids up to the smallest of the blocks' last ids: no unread id can be smaller.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.placement.cpu import compact_rows
from penstock.store.files import Scratch
from penstock.store.ids import as_arrow, from_arrow
from penstock.store.ingestion.allocators import release_memory
from penstock.store.ingestion.string_sort import sort_distinct

FAN_IN = 16
"""Number of runs merged at a time; each has two blocks in memory."""
Batch = Any
"""Ids of either kind: a NumPy or Arrow array."""


class Integers:
    """int64 ids."""

    def distinct(self, batches: list[np.ndarray]) -> np.ndarray:
        """Return the distinct ids of some batches, ascending."""
        ids = np.concatenate(batches) if batches else np.empty(0, dtype=np.int64)
        batches.clear()
        ids.sort()
        keep = np.ones(ids.size, dtype=np.uint8)
        np.not_equal(ids[1:], ids[:-1], out=keep[1:].view(np.bool_))
        return compact_rows(ids, keep)

    def write(self, batches: Iterator[np.ndarray], scratch: Scratch, block_bytes: int) -> Iterator[np.ndarray]:
        """Write a run to a nameless file; returns an iterator over its blocks."""
        file, num_ids, step = scratch.file(), 0, max(1, block_bytes // 8)
        for batch in batches:
            file.write(batch, num_ids * 8)
            num_ids += batch.size

        def blocks() -> Iterator[np.ndarray]:
            for first in range(0, num_ids, step):
                yield file.read(np.empty(min(step, num_ids - first), dtype=np.int64), first * 8, forget=True)
            file.close()

        return blocks()

    def last(self, batch: np.ndarray) -> int:
        """Return the largest id."""
        return int(batch[-1])

    def split(self, batch: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:
        """Split after the last id that is not above the bound."""
        at = int(np.searchsorted(batch, bound, side="right"))
        return batch[:at], batch[at:]


class Texts:
    """String ids, as Arrow arrays of large_string."""

    def distinct(self, batches: list[pa.Array]) -> pa.Array:
        """Return the distinct ids of some batches, ascending."""
        ids = as_arrow(pa.chunked_array(batches, type=pa.large_string()))
        batches.clear()
        return ids.take(pa.array(sort_distinct(from_arrow(ids))))

    def write(self, batches: Iterator[pa.Array], scratch: Scratch, block_bytes: int) -> Iterator[pa.Array]:
        """Write a run to a nameless file; returns an iterator over its blocks."""
        schema = pa.schema([("id", pa.large_string())])
        file = scratch.file()
        with pa.ipc.new_stream(file.as_stream(), schema) as stream:
            for batch in batches:
                rows = max(1, block_bytes * len(batch) // max(1, batch.nbytes))
                for first in range(0, len(batch), rows):
                    stream.write_batch(pa.record_batch([batch.slice(first, rows)], schema=schema))

        def blocks() -> Iterator[pa.Array]:
            file.as_stream().seek(0)
            for block in pa.ipc.open_stream(file.as_stream()):
                yield block.column(0)
            file.close()

        return blocks()

    def last(self, batch: pa.Array) -> bytes:
        """Return the largest id."""
        return self._at(batch, len(batch) - 1)

    def split(self, batch: pa.Array, bound: bytes) -> tuple[pa.Array, pa.Array]:
        """Split after the last id that is not above the bound."""
        at = bisect_right(range(len(batch)), bound, key=lambda index: self._at(batch, index))
        return batch.slice(0, at), batch.slice(at)

    def _at(self, batch: pa.Array, index: int) -> bytes:
        return batch[index].as_buffer().to_pybytes()


class DistinctIds:
    """Gather ids, then yield the distinct ones in order.

    Args:
        ids: `Integers()` or `Texts()`.
        scratch: receives the runs.
        max_bytes: of gathered ids; sorting or merging takes about as much again.
    """

    def __init__(self, ids: Integers | Texts, scratch: Scratch, max_bytes: int) -> None:
        self._ids: Any = ids
        self._scratch, self._max_bytes = scratch, max_bytes
        self._block_bytes = max(1 << 14, max_bytes // FAN_IN)
        self._batches: list[Batch] = []
        self._levels: list[list[Iterator[Batch]]] = []
        self._bytes = 0

    def add(self, batch: Batch) -> None:
        """Gather a batch."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes <= self._max_bytes:
            return
        ids = self._ids.distinct(self._batches)
        if ids.nbytes > self._max_bytes // 2:
            self._add_run(iter([ids]), 0)
            self._batches, self._bytes = [], 0
        else:
            self._batches, self._bytes = [ids], ids.nbytes

    def _add_run(self, batches: Iterator[Batch], level: int) -> None:
        """Write a run; when a level has FAN_IN runs, they are merged into one run of the next level."""
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(self._ids.write(batches, self._scratch, self._block_bytes))
        release_memory()
        if len(runs) == FAN_IN:
            self._levels[level] = []
            self._add_run(self._merge(runs), level + 1)

    def finish(self) -> Iterator[Batch]:
        """Yield batches of distinct ids, ascending; can be called once."""
        rest = self._ids.distinct(self._batches)
        runs = [run for level in self._levels for run in level]
        if not runs:
            yield rest
            return
        while len(runs) > FAN_IN:
            runs = [*runs[FAN_IN:], self._ids.write(self._merge(runs[:FAN_IN]), self._scratch, self._block_bytes)]
        yield from self._merge([*runs, iter([rest] if len(rest) else [])])

    def _merge(self, runs: Iterable[Iterator[Batch]]) -> Iterator[Batch]:
        heads = [[next(run, None), next(run, None), run] for run in runs]
        while heads := [head for head in heads if head[0] is not None]:
            unfinished = [self._ids.last(head[0]) for head in heads if head[1] is not None]
            taken = []
            for head in heads:
                part, rest = self._ids.split(head[0], min(unfinished)) if unfinished else (head[0], None)
                taken.append(part)
                if rest is None or not len(rest):
                    head[0], head[1] = head[1], next(head[2], None)
                else:
                    head[0] = rest
            yield self._ids.distinct(taken)
