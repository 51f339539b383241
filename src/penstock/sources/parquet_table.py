"""Tables in Parquet files.

In: a path and the fields that are asked for. Out: a table. Invariant: memory is a few pages and one chunk per column, also where one
row group holds the whole file: pages are read through a small buffer as they are decoded, never a column chunk ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InputError
from penstock.sources.columns import Field, Request, make_chunk, make_field, resolve
from penstock.sources.source import Chunk, Column

_BUFFER_BYTES = 1 << 20


class ParquetTable:
    """Fields of one Parquet file."""

    def __init__(self, path: Path, requests: Sequence[Request]) -> None:
        self.name, self._path = str(path), path
        with self._open() as file:
            schema = file.schema_arrow
            self.num_rows: int | None = file.metadata.num_rows
        self._fields: dict[str, Field] = {}
        for request in requests:
            if request.is_optional and request.columns not in schema.names:
                continue
            if request.is_default and len(schema.names) == 1:
                request = replace(request, columns="0")
            columns = resolve(request, schema.names, self.name)
            types = {column: schema.field(column).type for column in columns}
            self._fields[request.name] = make_field(request, columns, types, self.name, self._list_width)
        self.columns: Mapping[str, Column] = {name: field.column for name, field in self._fields.items()}

    def _open(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{self.name}: not a Parquet file that can be read ({str(error).splitlines()[0]})") from error

    def _list_width(self, column: str) -> int:
        with self._open() as file:
            for batch in file.iter_batches(1, columns=[column], use_threads=False):
                return len(batch.column(0)[0])
        return 0

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Decode `max_rows` rows at a time."""
        fields = [self._fields[name] for name in (self._fields if names is None else names)]
        wanted = [column for field in fields for column in field.columns]
        first = 0
        with self._open() as file:
            batches = file.iter_batches(max_rows, columns=wanted, use_threads=False)
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowInvalid, OSError) as error:
                    raise InputError(f"{self.where(first)}: damaged Parquet file ({str(error).splitlines()[0]})") from error
                if batch is None:
                    return
                yield make_chunk(fields, batch, first, self.where)
                first += batch.num_rows

    def where(self, row: int) -> str:
        """Name the file and the row."""
        return f"{self.name}, row {row}"
