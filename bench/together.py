"""Accuracy where several processes train together, over a store and over its parts, against one process with as many seeds a step.

    python -m bench.together DATA [--seeds 5]        DATA: folder with facebook_pages.npz, tolokers.npz

Settings are those of `bench.accuracy`, except that batches are divided by the number of processes, and val and test are computed over
sampled neighbourhoods everywhere. All on this machine, a core for the model of each process: no measure of speed. Writes
`bench/results/together.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.accuracy import RECIPES
from bench.common import ROOT, write_result

NAMES = ("facebook_pages", "tolokers")
CONTENDERS = {
    "1 process": (1, "store"),
    "2 processes": (2, "store"),
    "4 processes": (4, "store"),
    "4 processes, parts by chance, own seeds": (4, "random"),
    "4 processes, ldg parts, own seeds": (4, "ldg"),
    "4 processes, 2 ldg parts of 2 trainers, own seeds": (4, "ldg2"),
}
"""Name -> (processes, how the graph is cut)."""


def work(folder: Path, num_ranks: int, cut: str, num_seeds: int) -> None:
    """What one process does: every graph, seed by seed; prints the scores."""
    import penstock
    from penstock.train import TrainConfig, started_together, train

    with started_together():
        for name in NAMES:
            settings = RECIPES[name][1]
            settings = {**settings, "batch_size": settings.get("batch_size", 1024) // num_ranks, "evaluation": "auto"}
            if num_ranks == 1:
                settings["evaluation"] = "sampled"
            splits = penstock.open(folder / f"{name}-store").split_names()
            for seed in range(num_seeds):
                settings["split"] = splits[seed % len(splits)]
                config = TrainConfig(store=str(folder / f"{name}-{cut}"), seed=seed, num_workers=1, torch_threads=1, **settings)
                result = train(config, folder / f"run-{num_ranks}-{cut}-{name}-{seed}")
                print(json.dumps({"name": name, "test": result.test, "steps": result.history[0].num_batches}), flush=True)


def run(folder: Path, num_ranks: int, cut: str, num_seeds: int) -> dict[str, list[dict[str, Any]]]:
    """Start the processes. Returns name -> what the first said of each seed; all must say the same."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        known = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(door.getsockname()[1]),
            "WORLD_SIZE": str(num_ranks),
            "OMP_NUM_THREADS": "1",
        }
    command = [sys.executable, "-m", "bench.together", str(folder), "--work", str(num_ranks), cut, "--seeds", str(num_seeds)]
    started = [
        subprocess.Popen(command, cwd=ROOT, env=os.environ | known | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(num_ranks)
    ]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started) or len(set(outputs)) != 1:
        sys.exit(f"{num_ranks} processes, {cut}: one failed, or they came to different scores")
    said = [json.loads(line) for line in outputs[0].splitlines()]
    return {name: [one for one in said if one["name"] == name] for name in NAMES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.data, int(options.work[0]), options.work[1], options.seeds)
    import penstock
    from penstock.partition import partition_store

    found: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in NAMES:
            store = penstock.ingest(options.data / f"{name}.npz", folder / f"{name}-store")
            for cut in {cut for _, cut in CONTENDERS.values()} - {"store"}:
                num_trainers = 2 if cut == "ldg2" else 1
                cut_into = dict(num_parts=4 // num_trainers, trainers_per_part=num_trainers, method=cut.removesuffix("2"))
                partition_store(store.path, folder / f"{name}-{cut}", split=store.split_names()[0], **cut_into)
        for contender, (num_ranks, cut) in CONTENDERS.items():
            for name, runs in run(folder, num_ranks, cut, options.seeds).items():
                tests = [100 * one["test"] for one in runs]
                spread = {"mean": round(statistics.mean(tests), 2), "stdev": round(statistics.pstdev(tests), 2)}
                found[name][contender] = {**spread, "steps": runs[0]["steps"], "tests": tests}
                print(f"{name:<16} {contender:<50} {spread['mean']:.2f} ± {spread['stdev']:.2f}", flush=True)
    write_result("together", {"command": f"python -m bench.together DATA --seeds {options.seeds}", "graphs": found})


if __name__ == "__main__":
    main()
