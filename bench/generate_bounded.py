"""A graph of a billion edges, written inside a control group of 4 GiB that counts the page cache too.

    python -m bench.generate_bounded FOLDER [--edges 1000000000]

Needs the right to make control groups (root) and 12 GB of disk in FOLDER. Exits with 1 where the process was killed or the store is not
what was asked for.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from bench.common import write_result
from bench.memory_group import run_limited


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--edges", type=int, default=1_000_000_000)
    parser.add_argument("--limit-mib", type=int, default=4096, help="of the control group")
    parser.add_argument("--memory-mib", type=int, default=3072, help="declared to penstock generate")
    chosen = parser.parse_args(arguments)
    store = chosen.folder / "billion"
    num_nodes = max(2, chosen.edges // 15)
    words = ["generate", "rmat", str(store), "--num-nodes", str(num_nodes), "--num-edges", str(chosen.edges)]
    words += ["--memory", f"{chosen.memory_mib}MiB", "--overwrite", "--json"]
    ended = run_limited([sys.executable, "-m", "penstock", *words], chosen.limit_mib << 20)
    written = sum(edges["num_edges"] for edges in json.loads(ended.out)["edges"]) if ended.exit_code == 0 else 0
    shutil.rmtree(store, ignore_errors=True)
    values = {
        "command": "python -m bench.generate_bounded FOLDER",
        "generated_by": "penstock " + " ".join(words).replace(str(store), "STORE"),
        "limit_bytes": chosen.limit_mib << 20,
        "num_nodes": num_nodes,
        "num_edges": written,
        "seconds": round(ended.seconds, 1),
        **ended.usage,
    }
    print(json.dumps(values, indent=1))
    print(write_result("generate_bounded", values))
    return int(written != chosen.edges or ended.usage["killed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
