"""From `penstock.open` to the first batch, on a store of more than 4 GB: in a fresh process, with the store in memory and on disk only.

    python -m bench.opening FOLDER

Makes the store FOLDER/wide (8M nodes, 64M edges, 128 features: 4.5 GB) if it is not there. Kernels are compiled once per machine; that is
not counted, so a process that compiles comes first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.common import spread, write_result
from bench.graphs import make

ROUNDS = 5
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
print(json.dumps({"open_s": opened - started, "first_batch_s": time.perf_counter() - started, "nodes": batch.n_id.numel()}))
"""


def drop_from_page_cache(folder: Path) -> None:
    """Leave the files of a store on disk only."""
    os.sync()
    for path in folder.rglob("*.npy"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_whole(folder: Path) -> None:
    """Bring the files of a store into memory."""
    for path in folder.rglob("*.npy"):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def measure(store: Path) -> dict[str, float]:
    """One fresh process."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(store)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    """Measure both and write the result."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    store = make("wide", Path(sys.argv[1]))
    measure(store)
    rounds: dict[str, list[dict[str, float]]] = {"in_memory": [], "on_disk": []}
    for _ in range(ROUNDS):
        read_whole(store)
        rounds["in_memory"].append(measure(store))
        drop_from_page_cache(store)
        rounds["on_disk"].append(measure(store))
    values = {
        "command": "python -m bench.opening FOLDER",
        "store_bytes": sum(path.stat().st_size for path in store.rglob("*.npy")),
        **{kind: {name: spread([run[name] for run in runs]) for name in ("open_s", "first_batch_s")} for kind, runs in rounds.items()},
    }
    for kind in rounds:
        print(kind, values[kind])
    print(write_result("opening", values))


if __name__ == "__main__":
    main()
