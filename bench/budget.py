"""Training within a budget of memory, in a control group that limits it, page cache included: a fifth, a tenth, a twentieth of the store.

    python -m bench.budget FOLDER [--store PATH] [--only 2]

Makes the store FOLDER/budget (18.5M nodes, 296M edges, 256 features, labels: 20 GB) if it is not there; --store takes another one with
labels. Each run is `penstock train --host-memory B` in a group of exactly B bytes, store dropped from the page cache first: one epoch with
evaluation; a tenth also beside a spool. Last comes a budget that is too small, which must be refused.
Needs root: control groups.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from bench.common import RESULTS, ROOT, write_result
from bench.memory_group import drop_from_page_cache, run_limited

CASES = (
    (1 / 5, ["--num-neighbors", "10,10,10", "--batch-size", "1024"]),
    (1 / 10, ["--num-neighbors", "10,10,10", "--batch-size", "256"]),
    (1 / 10, ["--num-neighbors", "10,10,10", "--batch-size", "256", "--spool", "12GiB"]),
    (1 / 20, ["--num-neighbors", "10,10", "--batch-size", "256"]),
    (1 / 40, ["--num-neighbors", "10,10", "--batch-size", "256"]),
)
REFUSED = 2


def make(path: Path) -> Path:
    """Generate the store if it is not there."""
    from penstock.store import generate

    if not (path / "manifest.json").exists():
        generate(
            "zipf", path, num_nodes=18_500_000, num_edges=296_000_000, feature_dim=256, num_classes=16, train=0.001, val=0.0002,
            test=0.0002, memory="4GiB", overwrite=True,
        )  # fmt: skip
    return path


def train(store: Path, out: Path, limit_bytes: int, options: list[str]) -> dict[str, Any]:
    """Train one epoch in a group of its own."""
    drop_from_page_cache(store)
    shutil.rmtree(out, ignore_errors=True)
    arguments = ["train", str(store), "--host-memory", f"{limit_bytes}B", "--epochs", "1", "--hidden", "64", *options]
    command = [sys.executable, "-m", "penstock", *arguments, "--out", str(out), "--json"]
    ended = run_limited(command, limit_bytes, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    lines = ended.err.strip().splitlines()
    return {
        "command": " ".join(["penstock", *arguments[:1], "STORE", *arguments[2:]]),
        "limit_bytes": limit_bytes,
        **ended.usage,
        "exit_code": ended.exit_code,
        "seconds": round(ended.seconds, 1),
        "memory": next((line for line in lines if line.startswith("memory: ")), ""),
        "last_line": lines[-1] if lines else "",
        "result": json.loads(ended.out.replace(str(out.parent), "FOLDER")) if ended.exit_code == 0 else None,
    }


def main() -> None:
    """Run all cases, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--only", type=int, help="Run one of the cases, from 0, and keep what is there of the others.")
    chosen = parser.parse_args()
    store = chosen.store or make(chosen.folder / "budget")
    size, path = sum(file.stat().st_size for file in store.rglob("*.npy")), RESULTS / "budget.json"
    is_part = chosen.only is not None and path.exists()
    known = {run["case"]: run for run in json.loads(path.read_text())["runs"]} if is_part else {}
    for case, (share, options) in enumerate(CASES):
        if chosen.only in (None, case):
            known[case] = {"case": case, "share": share, **train(store, chosen.folder / "budget-run", int(size * share), options)}
            print(json.dumps(known[case], indent=1), flush=True)
    runs = [known[case] for case in sorted(known)]
    write_result("budget", {"command": "python -m bench.budget FOLDER", "store_bytes": size, "runs": runs})
    if any(run["killed"] for run in runs) or runs[-1]["exit_code"] != REFUSED:
        sys.exit("a run was killed, or the smallest budget was not refused")


if __name__ == "__main__":
    main()
