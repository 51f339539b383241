"""Labels that are words: numbered in sorted order, so that the numbers do not depend on the order of rows.

In: a node table whose `y` are strings. Out: the same table with `y` as int64, -1 if there is no word, and `class_names`. `y` is read
once to collect the words before the first chunk is delivered; the memory for words is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock.sources.columns import pc
from penstock.sources.source import CHUNK_ROWS, LABELS, ChangedTable, Chunk, Table

MAX_CLASSES, MAX_BYTES = 1 << 16, 8 << 20


class WordLabels(ChangedTable):
    """A node table with numbered labels, over one with words in `y`."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, {**table.columns, LABELS: replace(table.columns[LABELS], dtype=np.dtype(np.int64))})

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The word of each class."""
        known = pa.array([], pa.string())
        for chunk in self._table.chunks(CHUNK_ROWS, (LABELS,)):
            known = pc.unique(pa.concat_arrays([known, pc.utf8_trim_whitespace(chunk.columns[LABELS])]))
            if len(known) > MAX_CLASSES or known.nbytes > MAX_BYTES:
                raise InputError(
                    f"{self.where(chunk.first_row)}: {len(known):,} different labels 'y' by the end of these {chunk.num_rows:,} rows; "
                    f"at most {MAX_CLASSES:,} words or {MAX_BYTES >> 20} MiB of them are numbered. Do these name classes?"
                )
        return tuple(sorted(word for word in known.to_pylist() if word))

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Yield chunks with numbered words."""
        for chunk in self._table.chunks(max_rows, names):
            if LABELS in chunk.columns:
                words, classes = pc.utf8_trim_whitespace(chunk.columns[LABELS]), pa.array(self.class_names, pa.string())
                chunk.columns[LABELS] = pc.fill_null(pc.index_in(words, value_set=classes), -1).to_numpy().astype(np.int64)
            yield chunk
