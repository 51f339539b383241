"""From `penstock.open` to the first batch, on a store of more than 4 GB: in a fresh process, with the store in memory and on disk only.

    python -m bench.opening FOLDER [PYTHON]

Makes the store FOLDER/wide (8M nodes, 64M edges, 128 features: 4.5 GB) if it is not there. PYTHON is the interpreter of another environment
that has Penstock, to be measured in alternation: a plain installation has no SciPy, which Numba imports with its first kernel where it
finds it. Kernels are compiled once per machine; that is not counted, so a process that compiles comes first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.common import ROOT, spread, write_result
from bench.graphs import make
from bench.memory_group import drop_from_page_cache

ROUNDS = 9
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": ""}
SCRIPT = """
import json, sys, time
import torch, torch_geometric.data
import penstock
path = sys.argv[1]
started = time.perf_counter()
store = penstock.open(path)
opened = time.perf_counter()
loader = penstock.NeighborLoader(store, [15, 10, 5], input_nodes="train", batch_size=1024, shuffle=True, num_workers=2, seed=0)
batch = next(iter(loader))
done = time.perf_counter()
print(json.dumps({"open_s": opened - started, "from_call_s": done - started, "from_return_s": done - opened}))
"""


def read_whole(folder: Path) -> None:
    """Bring the files of a store into memory."""
    for path in folder.rglob("*.npy"):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def measure(python: str, store: Path) -> dict[str, float]:
    """One fresh process."""
    done = subprocess.run([python, "-c", SCRIPT, str(store)], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return json.loads(done.stdout)


def has_scipy(python: str) -> bool:
    """Whether an environment has SciPy."""
    return subprocess.run([python, "-c", "import scipy"], capture_output=True).returncode == 0


def main() -> None:
    """Measure and write the result."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    store = make("wide", Path(sys.argv[1]))
    pythons = {f"scipy {'installed' if has_scipy(python) else 'absent'}": python for python in [sys.executable, *sys.argv[2:]]}
    rounds: dict[str, list[dict[str, float]]] = {}
    for kind, prepare in (("in memory", read_whole), ("on disk", drop_from_page_cache)):
        for number in range(ROUNDS + 1):
            for label, python in pythons.items():
                prepare(store)
                measured = measure(python, store)
                if number:
                    rounds.setdefault(f"{kind}, {label}", []).append(measured)
    values = {
        "command": "python -m bench.opening FOLDER PYTHON",
        "store_bytes": sum(path.stat().st_size for path in store.rglob("*.npy")),
        **{kind: {name: spread([run[name] for run in runs]) for name in runs[0]} for kind, runs in rounds.items()},
    }
    for kind in rounds:
        print(kind, values[kind])
    print(write_result("opening", values))


if __name__ == "__main__":
    main()
