"""A declared bound is kept, however large the input: measured on a process of its own, as the largest resident set it ever had."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

SCRIPT = """
import json, sys
import numpy as np, pyarrow as pa
from penstock.sources.source import Chunk, Column, EdgeTable, NodeTable, Source, Table
from penstock.store import ingest
from penstock.store.process_memory import peak_resident_bytes

class Edges(Table):
    # Rows computed on demand, so that the source itself takes no memory.
    def __init__(self, kind, num_rows, num_nodes):
        self.name, self._num_rows, self._kind, self._num_nodes = "edges", num_rows, kind, num_nodes
        self.num_rows = None if kind == "unknown" else num_rows
        dtype = np.dtype(object if kind == "string" else np.int64)
        self.columns = {"src": Column(name="src", dtype=dtype), "dst": Column(name="dst", dtype=dtype)}
        if kind in ("fields", "unknown"):
            self.columns["x"] = Column(name="x", dtype=np.dtype(np.float32), row_shape=(8,))

    def chunks(self, max_rows, names=None):
        for first in range(0, self._num_rows, max_rows):
            rows = np.arange(first, min(self._num_rows, first + max_rows), dtype=np.int64)
            columns = {"src": self._ids(rows * 2654435761 % self._num_nodes), "dst": self._ids(rows * rows % self._num_nodes)}
            if "x" in self.columns:
                columns["x"] = np.repeat(rows.astype(np.float32), 8).reshape(-1, 8)
            yield Chunk(first, {name: columns[name] for name in names or self.columns})

    def _ids(self, nodes):
        if self._kind == "sparse":
            return nodes * 1_000_003 - 10**12
        return pa.array(np.char.add("node number ", nodes.astype(str))) if self._kind == "string" else nodes

kind, num_rows, num_nodes, memory, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
is_mapped = kind in ("sparse", "string")
edge_type = ("node", "to", "node")
source = kind if kind.endswith(".csv") else Source(
    nodes={"node": NodeTable(node_type="node", num_nodes=None if is_mapped or kind == "unknown" else num_nodes)},
    edges={edge_type: EdgeTable(edge_type=edge_type, table=Edges(kind, num_rows, num_nodes))},
    is_homogeneous=True, mapped=frozenset(["node"] if is_mapped else []),
)
store = ingest(source, path, memory=memory, duplicates="drop" if kind == "duplicates" else "keep")
print(json.dumps({"peak_bytes": peak_resident_bytes(), "digest": store.digest,
                  "num_edges": sum(store.num_edges.values())}))
"""


def ingest_in_process(folder, *arguments):
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kind", "num_rows", "num_nodes"),
    [
        ("plain", 24_000_000, 3_000_000),
        ("fields", 3_000_000, 100_000),
        ("duplicates", 10_000_000, 3000),
        ("sparse", 6_000_000, 1_000_000),
        ("string", 1_000_000, 200_000),
    ],
)
def test_bound_is_kept(tmp_path, kind, num_rows, num_nodes):
    bound_mib = 330
    tight = ingest_in_process(tmp_path / "tight", kind, num_rows, num_nodes, f"{bound_mib}MiB")
    assert tight["peak_bytes"] <= bound_mib << 20
    if kind in ("plain", "fields"):
        roomy = ingest_in_process(tmp_path / "roomy", kind, num_rows, num_nodes, "8GiB")
        assert roomy["peak_bytes"] > bound_mib << 20, "the input is too small to show anything"
        assert roomy["digest"] == tight["digest"]


@pytest.mark.parametrize("is_csv", [False, True])
def test_bound_is_kept_where_only_reading_tells_the_rows(tmp_path, is_csv):
    """Degrees are then counted as finely as memory allows, and must not take a multiple of it once the lists turn out not to fit."""
    kind, num_rows, num_nodes, bound_mib = "unknown", 3_000_000, 6_000_000, 420
    if is_csv:
        kind, num_rows = str(tmp_path / "edges.csv"), 6_000_000
        dst = np.random.default_rng(0).integers(0, num_nodes, num_rows)
        pyarrow.csv.write_csv(pa.table({"src": dst[::-1], "dst": dst, "weight": dst % 7}), kind)
    tight = ingest_in_process(tmp_path / "store", kind, num_rows, num_nodes, f"{bound_mib}MiB")
    assert tight["num_edges"] == num_rows
    assert tight["peak_bytes"] <= bound_mib << 20
