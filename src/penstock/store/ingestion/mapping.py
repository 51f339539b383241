"""Mapping the user's node ids of one type: gather the ids if no node table lists them, build the id table, translate the edges.

In: a node type and the edge tables that name its nodes. Out: the ids and their table in the store, and translated edge tables. A node's
number is its row in the node table if that has ids, else the rank of its id in sorted order.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import InputError
from penstock.records import index_dtype
from penstock.sources.source import Table
from penstock.store.arrays import ArrayFile
from penstock.store.budget import MIB, Budget
from penstock.store.format import ArraySpec, folder_of_nodes
from penstock.store.ids import INTEGER, SeenIds, Strings, as_arrow, from_arrow, kind_of, memory_row_bytes, read_ids
from penstock.store.ingestion.idsort import DistinctIds, Integers, Texts
from penstock.store.ingestion.idtable import HashCollisionError, IdColumn, build_parts
from penstock.store.ingestion.nodes import IdWriter
from penstock.store.ingestion.prefetch import prefetch
from penstock.store.ingestion.translate import TranslatedTable
from penstock.store.manifest import IdEntry
from penstock.store.progress import Progress, stage
from penstock.store.writer import StoreWriter

MAX_GATHERED_BYTES = 64 * MIB
"""Of ids gathered before they are sorted. Sorting strings takes three times as much memory, and larger sorts are not faster."""
MAX_SEEDS = 8
"""Seeds tried before giving up; collisions are rare, and independent between seeds."""


@dataclass(frozen=True, slots=True)
class Use:
    """An edge table that names nodes of the type, and the columns in which it does."""

    table: TranslatedTable
    names: tuple[str, ...]
    original: Table
    label: str


class Mapping:
    """The mapping of one node type.

    Args:
        writer: of the store.
        node_type: whose ids are mapped.
        uses: the columns of edges that name its nodes.
        budget, progress: of the ingestion.
        refuses_unknown: raise InputError for an edge to an id that no node has; else such ends stay -1.
    """

    def __init__(
        self, writer: StoreWriter, node_type: str, uses: list[Use], budget: Budget, progress: Progress, *, refuses_unknown: bool
    ) -> None:
        self._writer = writer
        self._node_type = node_type
        self._uses = uses
        self._budget = budget
        self._progress = progress
        self._refuses_unknown = refuses_unknown

    def gather(self) -> tuple[str, dict[str, ArraySpec]]:
        """Write the distinct ids named by edges, in sorted order; returns their kind and arrays."""
        kinds = {kind_of(use.original.columns[name]): use.label for use in self._uses for name in use.names}
        if len(kinds) > 1:
            raise InputError(f"the ids of '{self._node_type}' are integers in {kinds[INTEGER]} and strings elsewhere: use one kind")
        kind = next(iter(kinds), INTEGER)
        gathered_bytes = min(MAX_GATHERED_BYTES, self._budget.work_bytes // 8)
        ids = DistinctIds(Integers() if kind == INTEGER else Texts(), self._writer.scratch, gathered_bytes)
        seen = SeenIds(self._budget.work_bytes // 4)
        for use in self._uses:
            max_rows = max(1, self._budget.chunk_bytes // memory_row_bytes(use.original.columns[name] for name in use.names))
            with stage(self._progress, f"gather ids of {self._node_type}", use.original.num_rows):
                for chunk in prefetch(use.original.chunks(max_rows, use.names)):
                    for name in use.names:
                        batch = read_ids(use.original, chunk.columns[name], chunk.first_row, name)
                        ids.add(batch.to_arrow().filter(pa.array(seen.fresh(batch))) if isinstance(batch, Strings) else batch)
                    self._progress.advance(chunk.num_rows)
        del seen
        id_writer = IdWriter(self._writer, self._node_type, kind)
        for batch in ids.finish():
            id_writer.append(batch if kind == INTEGER else from_arrow(as_arrow(batch)))
        return kind, id_writer.finish()

    def translate(self, kind: str, arrays: dict[str, ArraySpec], where: Callable[[int], str]) -> IdEntry:
        """Build the table of ids and translate every use.

        Args:
            kind, arrays: from `gather`, or from the node table.
            where: describes where a node's id is in the input.
        """
        for use in self._uses:
            if others := {kind_of(use.original.columns[name]) for name in use.names} - {kind}:
                here, there = ("integers" if each == INTEGER else "strings" for each in (kind, *others))
                raise InputError(f"the ids of '{self._node_type}' are {here} in its table and {there} in {use.label}: use one kind")
        folder = os.open(self._writer.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            ids = IdColumn(
                {name: ArrayFile(spec, folder, self._writer.destination) for name, spec in arrays.items()}, self._budget.chunk_bytes
            )
            for seed in range(MAX_SEEDS):
                try:
                    return IdEntry(kind=kind, seed=seed, arrays=arrays | self._translate_with(ids, seed, where))
                except HashCollisionError:
                    if seed == MAX_SEEDS - 1:
                        raise
        finally:
            os.close(folder)
        raise AssertionError("unreachable")

    def _translate_with(self, ids: IdColumn, seed: int, where: Callable[[int], str]) -> dict[str, ArraySpec]:
        folder = folder_of_nodes(self._node_type)
        arrays = {
            "id_cells": self._writer.array(f"{folder}/id_cells.npy", "int64"),
            "id_rows": self._writer.array(f"{folder}/id_rows.npy", index_dtype(ids.num_nodes).__name__),
        }
        for use in self._uses:
            use.table.begin(use.names, ids.num_nodes)
        try:
            for index, part in enumerate(build_parts(ids, seed, self._budget.work_bytes, arrays["id_cells"], arrays["id_rows"], where)):
                for use in self._uses:
                    use.table.apply(part, use.names, self._progress, is_first=index == 0)
        except HashCollisionError:
            for array in arrays.values():
                array.discard()
            raise
        for use in self._uses if self._refuses_unknown else ():
            use.table.refuse_unknown(use.names, self._node_type)
        return {name: array.finish() for name, array in arrays.items()}
