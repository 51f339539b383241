"""A declared bound is kept, however large the input: measured on a process of its own, as the largest resident set it ever had."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource, sys
import numpy as np, pyarrow as pa
from penstock.sources.source import EdgeTable, NodeTable, Source
from penstock.sources.source import Chunk, Column
from penstock.store import ingest

class Edges:
    # Rows computed on demand, so that the source itself takes no memory.
    def __init__(self, kind, num_rows, num_nodes):
        self.name, self.num_rows, self._kind, self._num_nodes = "edges", num_rows, kind, num_nodes
        dtype = np.dtype(object if kind == "string" else np.int64)
        self.columns = {"src": Column(name="src", dtype=dtype), "dst": Column(name="dst", dtype=dtype)}
        if kind == "fields":
            self.columns["x"] = Column(name="x", dtype=np.dtype(np.float32), row_shape=(8,))

    def chunks(self, max_rows, names=None):
        for first in range(0, self.num_rows, max_rows):
            rows = np.arange(first, min(self.num_rows, first + max_rows), dtype=np.int64)
            columns = {"src": self._ids(rows * 2654435761 % self._num_nodes), "dst": self._ids(rows * rows % self._num_nodes)}
            if self._kind == "fields":
                columns["x"] = np.repeat(rows.astype(np.float32), 8).reshape(-1, 8)
            yield Chunk(first, {name: columns[name] for name in names or self.columns})

    def _ids(self, nodes):
        if self._kind == "sparse":
            return nodes * 1_000_003 - 10**12
        return pa.array(np.char.add("node number ", nodes.astype(str))) if self._kind == "string" else nodes

    def where(self, row):
        return f"row {row}"

kind, num_rows, num_nodes, memory, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
is_mapped = kind in ("sparse", "string")
edge_type = ("node", "to", "node")
source = Source(
    nodes={"node": NodeTable(node_type="node", num_nodes=None if is_mapped else num_nodes)},
    edges={edge_type: EdgeTable(edge_type=edge_type, table=Edges(kind, num_rows, num_nodes))},
    is_homogeneous=True, mapped=frozenset(["node"] if is_mapped else []),
)
store = ingest(source, path, memory=memory, duplicates="drop" if kind == "duplicates" else "keep")
print(json.dumps({"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "digest": store.digest,
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
