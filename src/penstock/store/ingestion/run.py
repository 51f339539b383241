"""From a source to a store: the steps in their order, and the user's options.

In: a `Source` and a path. Out: a store. The steps: write fields and ids of nodes; build the id tables and translate edges by them; count
and place each edge type; write splits and the manifest; rename the folder, which makes everything visible at once.
"""

from __future__ import annotations

import datetime
import os
import shutil
from dataclasses import asdict, fields, replace
from inspect import Parameter, signature
from typing import Any

import numpy as np

import penstock
from penstock.errors import InputError, StoreError, UsageError, argument
from penstock.kernels.placement import cpu as kernels
from penstock.records import EDGE_NAMES, NODE_NAMES, EdgeType, NodeType
from penstock.sources.open import open_with
from penstock.sources.source import DST, ID, SRC, EdgeTable, Source
from penstock.store.budget import Budget, default_bound, format_bytes, parse_bytes, plan_budget
from penstock.store.ingestion.allocators import arrow_by_malloc, release_memory
from penstock.store.ingestion.build import BuiltEdges, Limits, build_edges, limits_of
from penstock.store.ingestion.edges import EdgeReader, reversed_edges
from penstock.store.ingestion.forecasting import Forecast, make_forecast
from penstock.store.ingestion.mapping import Mapping, Use
from penstock.store.ingestion.nodes import WrittenNodes, write_nodes
from penstock.store.ingestion.options import IngestOptions, KeepOrDrop, RefuseOrDrop
from penstock.store.ingestion.splits import write_splits
from penstock.store.ingestion.translate import TranslatedTable
from penstock.store.manifest import IdEntry, Manifest, NodeEntry
from penstock.store.opened import Store
from penstock.store.process_memory import free_bytes, free_in_container, own_file_bytes, resident_bytes
from penstock.store.progress import Progress, Quiet
from penstock.store.writer import StoreWriter


def ingest(
    source: Any,
    dest: str | os.PathLike[str],
    *,
    memory: str | int | None = None,
    undirected: bool = False,
    duplicates: KeepOrDrop = "keep",
    self_loops: KeepOrDrop = "keep",
    dangling: RefuseOrDrop = "refuse",
    feature_dtype: str | None = None,
    edge_ids: bool | None = None,
    allow_nan: bool = False,
    progress: Progress | None = None,
    overwrite: bool = False,
    **source_options: Any,
) -> Store:
    """Write a graph into a store.

    Args:
        source: a `Source`, or anything that `penstock.sources.open_source` takes: a path, PyG's `Data` or `HeteroData`.
        dest: path of the store; must not exist unless `overwrite`, its parent must.
        memory: bound for the whole process, for instance "2GiB"; None: half of the free memory.
        undirected: add the reverse of every edge: right after it if both ends are of one type, else as a type `rev_...`.
        duplicates: "drop" keeps only the first of equal (src, dst) pairs.
        self_loops: "drop" leaves out edges from a node to itself.
        dangling: "drop" leaves out edges with an end that is not a node, and counts them in the manifest's provenance.
        feature_dtype: of the fields `x`: float16, bfloat16, float32 or float64. None keeps the dtype, except that float64 becomes float32.
        edge_ids: store the row number of each edge in the input; None: if edges have fields.
        allow_nan: accept NaN and infinite values, and read missing values of floating-point fields as NaN.
        progress: receives the forecast and each stage.
        overwrite: replace a store at `dest`; the old one stays until the new one is complete.
        **source_options: options of `penstock.sources.open_source`, for instance which columns and which split.
    Returns:
        The store, open.
    Raises:
        InputError: the data are wrong; the message names file, row and value.
        BudgetError: the memory does not suffice; the message shows the sum.
        StoreError: the disk is full or read-only, or another process writes to `dest`.
    """
    options = IngestOptions(
        undirected=undirected,
        duplicates=duplicates,
        self_loops=self_loops,
        dangling=dangling,
        feature_dtype=feature_dtype,
        edge_ids=edge_ids,
        allow_nan=allow_nan,
    )
    opened = open_with(source, source_options, _own_options())
    budget = _declare(memory, opened)
    ingestion = Ingestion(opened, options, budget, limits_of(budget), progress or Quiet())
    with arrow_by_malloc(), StoreWriter(dest, overwrite=overwrite) as writer:
        writer.commit(ingestion.run(writer))
    return Store(dest)


def forecast(source: Any, *, memory: str | int | None = None, **options: Any) -> Forecast:
    """Forecast the memory, disk space and time that `ingest` takes.

    Args:
        source, memory: as for `ingest`.
        **options: all other arguments of `ingest`, source options included, except `dest`, `progress` and `overwrite`.
    Raises:
        InputError, BudgetError: as `ingest`, if the error can be found before the data are read.
    """
    rules = IngestOptions(**{each.name: options.pop(each.name) for each in fields(IngestOptions) if each.name in options})
    opened = open_with(source, options, _own_options())
    budget = _declare(memory, opened)
    return Ingestion(opened, rules, budget, limits_of(budget), Quiet()).forecast()


def _own_options() -> list[str]:
    """Names of the options of `ingest` itself, which do not depend on the source."""
    return [each.name for each in signature(ingest).parameters.values() if each.kind is Parameter.KEYWORD_ONLY]


def _declare(memory: str | int | None, source: Source) -> Budget:
    # the compiler takes memory once, also when kernels are loaded from the cache: let it do so before the baseline is measured
    kernels.count_keys(np.zeros(1, dtype=np.int64), 0, np.zeros(1, dtype=np.int64))
    tables = [one.table for one in (*source.nodes.values(), *source.edges.values()) if one.table is not None]
    readers_bytes = max((table.reader_bytes for table in tables), default=0)
    release_memory()
    baseline_bytes, left_bytes = resident_bytes(), free_bytes()
    if memory is not None:
        return plan_budget(parse_bytes(memory), baseline_bytes, readers_bytes)
    bound_bytes = default_bound(baseline_bytes, left_bytes, own_file_bytes(), readers_bytes)
    return plan_budget(bound_bytes, baseline_bytes, readers_bytes, left_bytes)


class Ingestion:
    """One run from a source to a manifest.

    Args:
        source: the graph.
        options, budget, limits, progress: see their classes.
    Attributes:
        paths: edge type -> how its edges were placed, see `penstock.store.ingestion.build.Builder`.
    """

    def __init__(self, source: Source, options: IngestOptions, budget: Budget, limits: Limits, progress: Progress) -> None:
        self._source = source
        self._options = replace(options, undirected=options.undirected or source.is_undirected)
        self._budget = budget
        self._limits = limits
        self._progress = progress
        self.paths: dict[EdgeType, frozenset[str]] = {}
        _check_source(source)
        _check_names(source)

    def forecast(self) -> Forecast:
        """Forecast memory, disk space and time of the run."""
        source, options = self._source, self._options
        edges = _with_reverses(source.edges, options.undirected)
        return make_forecast(source.nodes, edges, source.mapped, options, self._budget)

    def run(self, writer: StoreWriter) -> Manifest:
        """Write all arrays; returns the manifest."""
        self._announce(writer)
        source = self._source
        written = {
            name: write_nodes(writer, table, self._options, self._budget.chunk_bytes, self._progress, is_mapped=name in source.mapped)
            for name, table in source.nodes.items()
        }
        release_memory()
        tables, id_entries = self._map_ids(writer, written)
        num_nodes = {name: nodes.num_nodes for name, nodes in written.items()}
        for name, entry in id_entries.items():
            num_nodes[name] = entry.arrays["id_rows"].shape[0]
        edges = _with_reverses({name: EdgeTable(edge_type=name, table=table) for name, table in tables.items()}, self._options.undirected)
        built = {name: self._build(writer, table, num_nodes) for name, table in edges.items()}
        for table in tables.values():
            if isinstance(table, TranslatedTable):
                table.close()
        self.paths = {name: edges.paths for name, edges in built.items()}
        counts = {name: _settle(name, count, built) for name, count in num_nodes.items()}
        if sum(counts.values()) == 0:
            raise InputError("the source has no nodes: a graph needs at least one")
        entries = {}
        for name, count in counts.items():
            splits = write_splits(writer, name, source.splits.get(name, {}), count)
            entries[name] = NodeEntry(num_nodes=count, fields=written[name].fields, splits=splits, ids=id_entries.get(name))
        return Manifest(
            is_homogeneous=source.is_homogeneous,
            nodes=entries,
            edges={name: edges.sink.finish(counts[name[2]]) for name, edges in built.items()},
            provenance={
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "penstock": penstock.__version__,
                "options": asdict(self._options),
                "source": source.provenance,
                **({"dangling": {"-".join(k): b.num_dangling for k, b in built.items()}} if self._options.dangling == "drop" else {}),
            },
        )

    def _announce(self, writer: StoreWriter) -> None:
        forecast = self.forecast()
        self._progress.note(str(forecast))
        left, wanted = free_in_container(), self._budget.bound_bytes - self._budget.baseline_bytes
        if left is not None and wanted > left:
            self._progress.note(
                f"warning: the container around this process has {format_bytes(left)} left, less than the bound: it may be killed"
            )
        free = shutil.disk_usage(writer.folder).free
        needed = forecast.disk_bytes + forecast.scratch_bytes
        if needed <= free:
            return
        about = "about " if forecast.is_about else ""
        shortage = (
            f"{about}{format_bytes(forecast.disk_bytes)} for the store + {format_bytes(forecast.scratch_bytes)} while it is made = "
            f"{format_bytes(needed)}, and the disk has {format_bytes(free)} free"
        )
        if not forecast.is_about or forecast.certain_bytes > free:
            raise StoreError(f"cannot write {writer.destination}: {shortage}: free some space or choose another disk")
        self._progress.note(f"warning: the disk may not suffice: {shortage}")

    def _map_ids(self, writer: StoreWriter, written: dict[NodeType, WrittenNodes]) -> tuple[dict[EdgeType, Any], dict[NodeType, IdEntry]]:
        """Translate every edge table with ends of a mapped node type; returns all edge tables, and the id entry of each mapped type."""
        source, tables, uses = self._source, {}, {name: [] for name in self._source.mapped}
        for edge_type, edges in source.edges.items():
            label = f"edges {edge_type[0]}-{edge_type[1]}->{edge_type[2]}"
            ends = {SRC: edge_type[0], DST: edge_type[2]}
            if not source.mapped.intersection(ends.values()):
                tables[edge_type] = edges.table
                continue
            tables[edge_type] = TranslatedTable(edges.table, label, writer.scratch, self._budget.chunk_bytes)
            for node_type in source.mapped.intersection(ends.values()):
                names = tuple(end for end, of_type in ends.items() if of_type == node_type)
                uses[node_type].append(Use(tables[edge_type], names, edges.table, label))
        entries = {}
        for name in (name for name in source.nodes if name in source.mapped):
            mapping = Mapping(writer, name, uses[name], self._budget, self._progress, refuses_unknown=self._options.dangling == "refuse")
            kind, arrays = written[name].ids or mapping.gather()
            table = source.nodes[name].table
            release_memory()
            entries[name] = mapping.translate(kind, arrays, table.where if table is not None else str)
            release_memory()
        return tables, entries

    def _build(self, writer: StoreWriter, edges: EdgeTable, num_nodes: dict[NodeType, int | None]) -> BuiltEdges:
        num_src, num_dst = num_nodes[edges.edge_type[0]], num_nodes[edges.edge_type[2]]
        reader = EdgeReader(edges, num_src, num_dst, self._options, self._budget.chunk_bytes)
        built = build_edges(writer, edges.edge_type, reader, self._limits, self._progress)
        release_memory()
        return built


def _check_source(source: Source) -> None:
    """Refuse sources whose parts contradict each other."""
    if source.is_homogeneous and (len(source.nodes), len(source.edges)) != (1, 1):
        raise InputError(f"a homogeneous graph has one node type and one edge type, this has {len(source.nodes)} and {len(source.edges)}")
    for edge_type in source.edges:
        for end in (edge_type[0], edge_type[2]):
            if end not in source.nodes:
                raise InputError(f"edges {edge_type} name the node type '{end}', there are {', '.join(source.nodes) or 'none'}")
    for name in [*source.mapped, *source.splits]:
        if name not in source.nodes:
            raise InputError(f"there is no node type '{name}' to map or split, there are {', '.join(source.nodes)}")
    for name in source.mapped:
        table = source.nodes[name].table
        if table is not None and table.columns and ID not in table.columns:
            raise InputError(f"the ids of '{name}' are to be mapped, but its table has no column '{ID}' to say which row is which node")


def _check_names(source: Source) -> None:
    """Refuse fields that a batch could not carry under their names."""
    fields = [("nodes", t, one.table, NODE_NAMES) for t, one in source.nodes.items()]
    fields += [("edges", "-".join(e), one.table, EDGE_NAMES) for e, one in source.edges.items()]
    for what, name, table, taken in fields:
        if source.is_homogeneous:
            taken = (*NODE_NAMES, *EDGE_NAMES)
        for column in table.columns if table is not None else ():
            if column in taken:
                raise InputError(f"field '{column}' of {what} '{name}' has a name that a batch gives to something else: rename it")


def _with_reverses(edges: dict[EdgeType, EdgeTable], undirected: bool) -> dict[EdgeType, EdgeTable]:
    """Add the reverse of each edge type between two different node types, if `undirected`."""
    result = dict(edges)
    for table in edges.values() if undirected else ():
        if table.edge_type[0] != table.edge_type[2]:
            turned = reversed_edges(table)
            if turned.edge_type in result:
                raise UsageError(
                    f"{argument('undirected')} would add edges of type {turned.edge_type}, which the source has already: leave it out"
                )
            result[turned.edge_type] = turned
    return result


def _settle(name: NodeType, num_nodes: int | None, built: dict[EdgeType, BuiltEdges]) -> int:
    """Return the number of nodes of a type; if it was not given, it follows from the edges."""
    if num_nodes is not None:
        return num_nodes
    by_src = [edges.num_src for edge_type, edges in built.items() if edge_type[0] == name]
    by_dst = [edges.num_dst for edge_type, edges in built.items() if edge_type[2] == name]
    return max([*by_src, *by_dst], default=0)
