"""Tables in Parquet files.

In: a path and the requested fields. Out: a table. Invariant: memory is a few pages and one chunk per column, even if one row group holds
the whole file: pages are read through a small buffer as they are decoded, never a whole column chunk. `reader_bytes` is the memory for the
pages of many columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InputError, first_line
from penstock.sources.columns import ColumnsTable, Field, Request, as_strings, make_chunk, make_field, resolve
from penstock.sources.source import ID, TEXT_BYTES, Chunk

_BUFFER_BYTES = 1 << 14, 1 << 20
"""Smallest and largest read buffer of a column."""
_BUFFERS_BYTES = 8 << 20
"""Read buffers of all columns together, unless the smallest buffers take more."""
_FEW_COLUMNS, _PROBED_COLUMNS, _PROBED_ROWS = 8, 32, 1000


class ParquetTable(ColumnsTable):
    """Fields of one Parquet file."""

    def __init__(self, path: Path, requests: Sequence[Request]) -> None:
        self.name, self._path = str(path), path
        with self._open() as file:
            schema = file.schema_arrow
            self.num_rows = file.metadata.num_rows
        self._fields: dict[str, Field] = {}
        for request in requests:
            if request.is_optional and request.columns not in schema.names:
                continue
            if request.is_default and request.name == ID and len(schema.names) == 1:
                request = replace(request, columns="0")
            columns = resolve(request, schema.names, self.name)
            types = {column: schema.field(column).type for column in columns}
            self._fields[request.name] = make_field(request, columns, types, self.name, self._list_width)
        self.columns = {name: field.column for name, field in self._fields.items()}

    @contextmanager
    def _open(self, num_columns: int = 1) -> Iterator[pq.ParquetFile]:
        buffer_bytes = min(max(_BUFFERS_BYTES // max(1, num_columns), _BUFFER_BYTES[0]), _BUFFER_BYTES[1])
        try:
            with pq.ParquetFile(self._path, pre_buffer=False, buffer_size=buffer_bytes) as file:
                yield file
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.name}: not a Parquet file that can be read ({first_line(error)})") from error

    def _list_width(self, column: str) -> int:
        with self._open() as file:
            for batch in file.iter_batches(1, columns=[column], use_threads=False):
                if (first := batch.column(0)[0]).is_valid:
                    return len(first)
        return 0

    @cached_property
    def reader_bytes(self) -> int:
        """Memory for decoding beside the rows, estimated from some columns: each has a buffer, a page, and possibly a dictionary. 0 for few
        columns."""
        columns = [column for field in self._fields.values() for column in field.columns]
        if len(columns) <= _FEW_COLUMNS or not self.num_rows:
            return 0
        probed, pool = columns[:: -(-len(columns) // _PROBED_COLUMNS)], pa.default_memory_pool()
        with self._open(len(columns)) as file:
            before, batches = pool.bytes_allocated(), file.iter_batches(1, columns=probed, use_threads=False)
            with suppress(pa.ArrowException, OSError):  # reported when the rows are read
                next(batches)
            return (pool.bytes_allocated() - before) * len(columns) // len(probed)

    def _rows_at_once(self, max_rows: int, fields: Sequence[Field]) -> int:
        """Return `max_rows`, or fewer if texts are long, judged by the first ones."""
        texts = [field.columns[0] for field in fields if field.is_text]
        if not texts or max_rows <= _PROBED_ROWS:
            return max_rows
        batch = self._first(_PROBED_ROWS, texts)
        if batch is None:
            return max_rows
        text_bytes = sum(as_strings(column).nbytes for column in batch.columns) / max(1, batch.num_rows) / len(texts)
        return max(_PROBED_ROWS, int(max_rows * min(1, TEXT_BYTES / max(1, text_bytes))))

    def _first(self, num_rows: int, columns: Sequence[str]) -> pa.RecordBatch | None:
        with self._open() as file, suppress(pa.ArrowException, OSError):  # reported when they are read
            return next(file.iter_batches(num_rows, columns=columns, use_threads=False), None)

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Decode `max_rows` rows at a time; fewer if texts are long."""
        fields = [self._fields[name] for name in (self._fields if names is None else names)]
        wanted = [column for field in fields for column in field.columns]
        first = 0
        with self._open(len(wanted)) as file:
            batches = file.iter_batches(self._rows_at_once(max_rows, fields), columns=wanted, use_threads=False)
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise InputError(f"{self.where(first)}: damaged Parquet file ({first_line(error)})") from error
                if batch is None:
                    return
                yield make_chunk(fields, batch, first, self.where)
                first += batch.num_rows
