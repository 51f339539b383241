"""Graphs to ingest, stores to make of them in any way, and what the stores must hold, by NumPy."""

import numpy as np

from penstock.records import EDGE, NODE
from penstock.sources.source import ArrayTable, EdgeTable, NodeTable, Source
from penstock.store import Store
from penstock.store.budget import Budget
from penstock.store.ingestion.build import Limits
from penstock.store.ingestion.options import IngestOptions
from penstock.store.ingestion.run import Ingestion
from penstock.store.progress import Quiet
from penstock.store.writer import StoreWriter

ROOMY = Limits(in_memory_bytes=1 << 30, bucket_bytes=1 << 20, piece_bytes=1 << 16, histogram_cells=1 << 16)


class ChunkedTable(ArrayTable):
    """A table that delivers chunks of uneven size, and may not know its length."""

    def __init__(self, columns, name="edges.csv", *, chunk_rows=7, knows_length=True):
        super().__init__(columns, name)
        self._chunk_rows, self._length = chunk_rows, self.num_rows
        self.num_rows = self._length if knows_length else None

    def chunks(self, max_rows, names=None):
        self.num_rows, known = self._length, self.num_rows
        try:
            yield from super().chunks(max(1, min(max_rows, self._chunk_rows)), names)
        finally:
            self.num_rows = known

    def where(self, row):
        return f"{self.name}, line {row + 2}"


def homogeneous(columns, num_nodes=None, *, node_columns=None, node_chunk_rows=7, mapped=False, splits=None, **options):
    """A source of one node type and one edge type."""
    table = None if node_columns is None else ChunkedTable(node_columns, "nodes.csv", chunk_rows=node_chunk_rows)
    return Source(
        nodes={NODE: NodeTable(node_type=NODE, num_nodes=num_nodes, table=table)},
        edges={EDGE: EdgeTable(edge_type=EDGE, table=ChunkedTable(columns, **options))},
        is_homogeneous=True,
        mapped=frozenset([NODE] if mapped else []),
        splits={} if splits is None else {NODE: splits},
    )


def budget(chunk_bytes=1 << 16, work_bytes=1 << 26):
    """A budget that declares what a test wants it to be."""
    return Budget(bound_bytes=1 << 40, baseline_bytes=0, chunk_bytes=chunk_bytes, work_bytes=work_bytes)


def build(source, path, limits=ROOMY, *, overwrite=False, the_budget=None, progress=None, **options):
    """Ingest under any limits; returns (store, how the edges of each type went)."""
    ingestion = Ingestion(source, IngestOptions(**options), the_budget or budget(), limits, progress or Quiet())
    with StoreWriter(path, overwrite=overwrite) as writer:
        writer.commit(ingestion.run(writer))
    return Store(path), ingestion.paths


def expected_edges(src, dst, columns, num_dst, *, undirected=False, duplicates="keep", self_loops="keep", one_type=True):
    """What a store must hold: (indptr, columns in list order, "indices" and "edge_id" among them). The definition, edge by edge."""
    rows = []
    seen = set()
    for row, (s, d) in enumerate(zip(map(int, src), map(int, dst), strict=True)):
        if one_type and self_loops == "drop" and s == d:
            continue
        ends = [(s, d)] + ([(d, s)] if undirected and one_type and s != d else [])
        for one, other in ends:
            if duplicates == "drop" and (one, other) in seen:
                continue
            seen.add((one, other))
            rows.append((one, other, row))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    order = np.argsort(table[:, 1], kind="stable")
    table = table[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(table[:, 1], minlength=num_dst))])
    return indptr, {"indices": table[:, 0], "edge_id": table[:, 2], **{name: values[table[:, 2]] for name, values in columns.items()}}


def assert_edges(store, edge_type, indptr, columns):
    """The store holds these edges."""
    csc = store.csc(edge_type)
    np.testing.assert_array_equal(csc.indptr, indptr)
    np.testing.assert_array_equal(csc.indices, columns["indices"])
    if csc.edge_ids is not None:
        np.testing.assert_array_equal(csc.edge_ids, columns["edge_id"])
    for name in store.edge_fields(edge_type):
        np.testing.assert_array_equal(store.edge_field(name, edge_type), columns[name])


def litter(folder, *, besides=()):
    """What lies in a folder that should not."""
    return sorted(path.name for path in folder.iterdir() if path.name not in besides)
