"""PyG's own tests of its loaders of nodes and links, run on ours: the one import is replaced, nothing else.

    python -m bench.compat CHECKOUT          CHECKOUT: a checkout of pytorch_geometric (its tests are not installed with it)

Tests that call the compiled sampler itself are left out. The others do not need it here: PyG's switches for it are set, so that no test
is skipped for its absence. Prints one line per test that does not pass, and what docs/compat.md says: how many pass.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

LOADERS = {"test_neighbor_loader.py": "NeighborLoader", "test_link_neighbor_loader.py": "LinkNeighborLoader"}
TESTS = Path("test/loader")

CONFTEST = """
import pytest
import torch_geometric.typing as typing

for switch in ("WITH_PYG_LIB", "WITH_TORCH_SPARSE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE"):
    setattr(typing, switch, True)

import torch_geometric.testing.decorators as decorators

before = decorators.has_package
decorators.has_package = lambda package: package == "pyg_lib" or before(package)


@pytest.fixture(scope="session")
def get_dataset():
    from torch_geometric.datasets import KarateClub

    return lambda name: {"karate": KarateClub}[name]()


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if "torch_sparse" not in item.name]


def pytest_configure(config):
    config.addinivalue_line("markers", "dataset: needs a dataset")
"""


def main() -> None:
    """Run the tests in a folder of their own."""
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / TESTS).exists():
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "conftest.py").write_text(CONFTEST)
        for name, loader in LOADERS.items():
            text, line = (Path(sys.argv[1]) / TESTS / name).read_text(), f"from torch_geometric.loader import {loader}"
            if line not in text:
                sys.exit(f"{TESTS / name} does not hold the line {line!r}: is this a newer PyG?")
            (Path(folder) / name).write_text(text.replace(line, f"from penstock import {loader}"))
        command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "--tb=line", "-rfs", "."]
        sys.exit(subprocess.run(command, cwd=folder, check=False).returncode)


if __name__ == "__main__":
    main()
