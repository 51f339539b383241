"""A graph of a billion edges, written inside a control group of 4 GiB that counts the page cache too.

    python -m bench.generate_bounded FOLDER [--edges 1000000000]

Needs the right to make control groups (root) and 12 GB of disk in FOLDER. Exits with 1 where the process was killed or the store is not
what was asked for.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.common import write_result
from bench.ingest_bounded import MemoryGroup


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--edges", type=int, default=1_000_000_000)
    parser.add_argument("--limit-mib", type=int, default=4096, help="of the control group")
    parser.add_argument("--memory-mib", type=int, default=3072, help="declared to penstock generate")
    chosen = parser.parse_args(arguments)
    store, group = chosen.folder / "billion", MemoryGroup(chosen.limit_mib << 20)
    num_nodes = max(2, chosen.edges // 15)
    words = ["generate", "rmat", str(store), "--num-nodes", str(num_nodes), "--num-edges", str(chosen.edges)]
    words += ["--memory", f"{chosen.memory_mib}MiB", "--overwrite", "--json"]
    started = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, "-m", "penstock", *words], stdout=subprocess.PIPE, preexec_fn=group.enter)
        seconds, usage = time.perf_counter() - started, group.usage()
    finally:
        group.remove()
    written = sum(edges["num_edges"] for edges in json.loads(done.stdout)["edges"]) if done.returncode == 0 else 0
    shutil.rmtree(store, ignore_errors=True)
    values = {
        "command": "python -m bench.generate_bounded FOLDER",
        "generated_by": "penstock " + " ".join(words).replace(str(store), "STORE"),
        "limit_bytes": chosen.limit_mib << 20,
        "num_nodes": num_nodes,
        "num_edges": written,
        "seconds": round(seconds, 1),
        **usage,
    }
    print(json.dumps(values, indent=1))
    print(write_result("generate_bounded", values))
    return int(written != chosen.edges or usage["killed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
