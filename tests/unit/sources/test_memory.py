"""Sources are read in memory that does not grow with the file: the peak of a process of its own, over what it takes to import."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

NUM_ROWS = 6_000_000
"""96 MB as two columns of int64."""

CODE = """
import sys
from penstock.sources import open_source
from penstock.sources.generate import generate
from penstock.store.process_memory import peak_resident_bytes

def peak_mb():
    return peak_resident_bytes() / (1 << 20)

kind, path = sys.argv[1:]
if kind == "generated":
    next(iter(generate("rmat", scale=10).edges.values())).table.read(0, 1 << 16)
    source = generate("rmat", scale=22, num_edges=20_000_000)
else:
    source = open_source(path)
before, rows = peak_mb(), 0
for chunk in next(iter(source.edges.values())).table.chunks(1 << 16):
    rows += chunk.num_rows
print(rows, peak_mb() - before)
"""


def write(kind, folder):
    if kind == "generated":
        return folder
    ends = np.random.default_rng(0).integers(0, 1 << 20, (2, NUM_ROWS))
    table = pa.table({"src": ends[0], "dst": ends[1]})
    path = folder / f"edges.{kind}"
    if kind == "csv":
        pyarrow.csv.write_csv(table, path)
    elif kind == "parquet":
        pq.write_table(table, path, row_group_size=NUM_ROWS, use_dictionary=False)
    elif kind == "npz":
        np.savez(path, edge_index=ends, num_nodes=1 << 20)
    return path


@pytest.mark.parametrize(("kind", "allowed_mb"), [("parquet", 40), ("csv", 25), ("npz", 15), ("generated", 15)])
def test_memory_does_not_grow_with_the_file(tmp_path, kind, allowed_mb):
    path = write(kind, tmp_path)
    result = subprocess.run([sys.executable, "-c", CODE, kind, str(path)], capture_output=True, text=True, check=True)
    num_rows, grown_mb = result.stdout.split()
    assert int(num_rows) == (20_000_000 if kind == "generated" else NUM_ROWS)
    assert float(grown_mb) < allowed_mb
