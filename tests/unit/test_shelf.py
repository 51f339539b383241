"""The names on the public API, whichever part is imported first."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import penstock.sources",
        "import penstock.store",
        "from penstock.sources.source import Source",
        "penstock.Store",
        "penstock.open",
    ],
)
def test_the_shelf_is_the_same_whatever_is_imported_first(before, tmp_path):
    code = f"""
import penstock
{before}
import numpy as np
from penstock.sources.source import ArrayTable, EdgeTable, NodeTable, Source
edges = EdgeTable(edge_type=("node", "to", "node"), table=ArrayTable({{"src": np.array([0]), "dst": np.array([1])}}, "edges"))
source = Source(nodes={{"node": NodeTable(node_type="node")}}, edges={{("node", "to", "node"): edges}}, is_homogeneous=True)
store = penstock.ingest(source, {str(tmp_path / "store")!r})
assert store.num_nodes == {{"node": 2}} and penstock.open(store.path).digest == store.digest
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_penstock_imports_nothing_heavy():
    code = (
        "import sys, penstock, penstock.cli; print([m for m in ('torch', 'numba', 'numpy', 'pyarrow', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_store_needs_no_torch():
    code = "import sys, penstock.store, penstock.sources; print([m for m in ('torch', 'torch_geometric') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_opening_a_store_loads_nothing_that_writes_one():
    code = "import sys, penstock; penstock.open; print([m for m in ('pyarrow', 'penstock.sources') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
