"""The nodes of one type: fields and ids, streamed into the store.

In: a node table. Out: one array per field, in row order, and the ids as given. Row i is node i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.sources.source import ID, LABELS, Chunk, NodeTable, Table
from penstock.store.arrays import ArrayWriter
from penstock.store.format import ArraySpec, file_name, folder_of_nodes
from penstock.store.ids import INTEGER, Strings, kind_of, memory_row_bytes, read_ids
from penstock.store.ingestion.fields import FieldConverter
from penstock.store.ingestion.options import IngestOptions
from penstock.store.ingestion.prefetch import prefetch
from penstock.store.progress import Progress, stage
from penstock.store.writer import StoreWriter

RESERVED = ("id_offsets", "id_bytes", "id_cells", "id_rows")
"""Names that no field may have."""


class IdWriter:
    """Write the user's ids of one type in node order.

    Args:
        writer: of the store.
        node_type: whose ids they are.
        kind: `INTEGER` or `STRING`.
    """

    def __init__(self, writer: StoreWriter, node_type: str, kind: str) -> None:
        folder = folder_of_nodes(node_type)
        self.kind = kind
        if kind == INTEGER:
            self._arrays = {"id": writer.array(f"{folder}/id.npy", "int64")}
            return
        self._arrays: dict[str, ArrayWriter] = {
            "id_offsets": writer.array(f"{folder}/id_offsets.npy", "int64"),
            "id_bytes": writer.array(f"{folder}/id_bytes.npy", "uint8"),
        }
        self._arrays["id_offsets"].append(np.zeros(1, dtype=np.int64))

    def append(self, batch: np.ndarray | Strings) -> None:
        """Write the next ids."""
        if not isinstance(batch, Strings):
            self._arrays["id"].append(batch)
            return
        offsets, base = batch.offsets.astype(np.int64), self._arrays["id_bytes"].num_rows
        self._arrays["id_offsets"].append(offsets[1:] - offsets[0] + base)
        self._arrays["id_bytes"].append(batch.data[offsets[0] : offsets[-1]])

    def finish(self) -> dict[str, ArraySpec]:
        """Close the files."""
        return {name: array.finish() for name, array in self._arrays.items()}


@dataclass(frozen=True, slots=True)
class WrittenNodes:
    """The result of writing a node type.

    Attributes:
        num_nodes: None if it follows only from the edges.
        fields: of the store.
        ids: (kind, arrays) of the user's ids; None if the type is not mapped or its table has no ids.
    """

    num_nodes: int | None
    fields: dict[str, ArraySpec]
    ids: tuple[str, dict[str, ArraySpec]] | None


def write_nodes(
    writer: StoreWriter, nodes: NodeTable, options: IngestOptions, chunk_bytes: int, progress: Progress, *, is_mapped: bool
) -> WrittenNodes:
    """Write all fields of a node type, and its ids if it is mapped."""
    table, name = nodes.table, f"nodes {nodes.node_type}"
    if table is None:
        return WrittenNodes(nodes.num_nodes, {}, None)
    converters = {
        key: FieldConverter(table, column, options, name, nodes.num_classes) for key, column in table.columns.items() if key != ID
    }
    for key in converters:
        if key in RESERVED:
            raise InputError(f"{name}: a field cannot be called '{key}', the store uses that name: rename the column")
    folder = folder_of_nodes(nodes.node_type)
    arrays = {key: writer.array(f"{folder}/{file_name(key)}.npy", c.dtype, c.row_shape) for key, c in converters.items()}
    id_writer = IdWriter(writer, nodes.node_type, kind_of(table.columns[ID])) if is_mapped and ID in table.columns else None
    max_rows = max(1, chunk_bytes // memory_row_bytes(table.columns.values()))
    num_rows = 0
    with stage(progress, f"write {name}", table.num_rows):
        for chunk in prefetch(table.chunks(max_rows)):
            for key, converter in converters.items():
                arrays[key].append(converter.convert(chunk.columns[key], chunk.first_row))
            if ID in table.columns:
                _take_ids(table, chunk, id_writer)
            num_rows += chunk.num_rows
            progress.advance(chunk.num_rows)
    if nodes.num_nodes is not None and num_rows != nodes.num_nodes:
        raise InputError(f"{name}: there are {num_rows} rows for {nodes.num_nodes} nodes: give one row for each node")
    for key, converter in converters.items():
        names = table.class_names if key == LABELS else ()
        arrays[key].properties = {**converter.properties(), **({"class_names": list(names)} if names else {})}
    fields = {key: array.finish() for key, array in arrays.items()}
    has_rows = bool(table.columns)
    return WrittenNodes(num_rows if has_rows else nodes.num_nodes, fields, (id_writer.kind, id_writer.finish()) if id_writer else None)


def _take_ids(table: Table, chunk: Chunk, id_writer: IdWriter | None) -> None:
    """Write the ids of a mapped type; for any other type check that row i has id i."""
    ids: Any = read_ids(table, chunk.columns[ID], chunk.first_row, ID)
    if id_writer is not None:
        id_writer.append(ids)
        return
    expected = np.arange(chunk.first_row, chunk.first_row + chunk.num_rows)
    if isinstance(ids, Strings) or not np.array_equal(ids, expected):
        bad = 0 if isinstance(ids, Strings) else int(np.argmax(ids != expected))
        raise InputError(
            f"{table.where(chunk.first_row + bad)}: the id is {ids[bad]}, but row i must have id i unless ids are mapped: ask for mapping"
        )
