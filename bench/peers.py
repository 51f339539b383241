"""Penstock against PyG, DGL and its GraphBolt: complete batches through the public interfaces, on the same arrays, in alternation.

    python -m bench.peers STORE --mode MODE [--pyg PYTHON] [--dgl PYTHON] [--before CHECKOUT] [--workers 2]

MODE: see bench/contenders.py.
STORE is made by `python -m bench.graphs small|large FOLDER`. PYTHON is the interpreter of an environment that holds the peer (for PyG:
torch, torch_geometric and pyg-lib or torch-sparse; for DGL: dgl 2.1 with torch 2.2 and torchdata 0.7). CHECKOUT is an older one of
Penstock: it runs between two of this one, whose difference is what the place in the order makes. Each contender runs in a process of its
own; rounds alternate, so that a noisy machine is noisy for all; what counts is the ratio of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.common import ROOT, foreign_load, spread, write_result

REST_S = 2.0
"""Before each round of a contender: worker processes of the one before, which has ended its round, still make what they had begun."""


class Contender:
    """A process that serves rounds."""

    def __init__(self, name: str, python: str, store: str, mode: str, workers: int, checkout: Path = ROOT, note: str = "") -> None:
        self.label = f"{name}, {workers} workers{note}"
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [python, str(checkout / "bench" / "contenders.py"), name, store, mode, str(workers)],
            env={**os.environ, "PYTHONPATH": str(checkout / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions = self._read().get("versions", {})
        self.ready_s = time.perf_counter() - started
        self.rounds: list[dict[str, float]] = []

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.label}: the process ended; see its message above")
        return json.loads(line)

    def run(self, warmup: int, num_batches: int) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"run {warmup} {num_batches}\n")
        self._process.stdin.flush()
        self.rounds.append(self._read())
        return self.rounds[-1]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def compare(contenders: list[Contender], rounds: int, warmup: int, num_batches: int) -> dict[str, dict[str, object]]:
    """Run rounds in alternation; the first is a warm-up for all and not counted."""
    for number in range(rounds + 1):
        for contender in contenders:
            time.sleep(REST_S)
            result = contender.run(warmup, num_batches)
            if number == 0:
                contender.rounds.clear()
            print(
                f"round {number}  {contender.label:<24} {result['seeds_per_s']:>10,.0f} seeds/s  {result['batch_ms']:>8.1f} ms/batch"
                f"  step {result['step_ms']:.0f} ms  {result['features_gb_per_s']:.2f} GB/s  peak {result['peak_mib']:,.0f} MiB",
                flush=True,
            )
    return {
        contender.label: {
            **{name: spread([r[name] for r in contender.rounds]) for name in ("seeds_per_s", "batch_ms", "step_ms", "features_gb_per_s")},
            **{name: round(contender.rounds[-1][name]) for name in ("edges_per_batch", "nodes_per_batch", "peak_mib")},
            "ready_s": round(contender.ready_s, 2),
            "versions": contender.versions,
        }
        for contender in contenders
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--mode", choices=("sample", "features", "train", "loop", "plain", "plain-gcn", "plain-gat"), default="sample")
    parser.add_argument("--pyg", help="interpreter with PyG")
    parser.add_argument("--dgl", help="interpreter with DGL")
    parser.add_argument("--before", type=Path, help="checkout of an older version")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=6)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--name", help="of the result file; default peers-<store>-<mode>")
    options = parser.parse_args()
    store = str(Path(options.store).resolve())
    wanted = [("penstock", sys.executable, options.workers)]
    if options.mode == "loop" or options.mode.startswith("plain"):
        wanted += [("penstock, kept", sys.executable, options.workers), ("penstock, untrimmed", sys.executable, options.workers)]
    if options.pyg:
        wanted += [("pyg", options.pyg, 0), ("pyg", options.pyg, options.workers)]
    if options.dgl:
        wanted += [("dgl", options.dgl, 0), ("graphbolt", options.dgl, 0), ("graphbolt", options.dgl, options.workers)]
    load_before = foreign_load()
    contenders = [Contender(name, python, store, options.mode, workers) for name, python, workers in wanted]
    if options.before:
        for checkout, note in ((options.before.resolve(), ", before"), (ROOT, ", again")):
            contenders.append(Contender("penstock", sys.executable, store, options.mode, options.workers, checkout, note))
    try:
        table = compare(contenders, options.rounds, options.warmup, options.batches)
    finally:
        for contender in contenders:
            contender.close()
    ours = table[contenders[0].label]["seeds_per_s"]["median"]  # type: ignore[index]
    ratios = {label: round(ours / row["seeds_per_s"]["median"], 2) for label, row in table.items()}  # type: ignore[index]
    for label, ratio in ratios.items():
        print(f"{ratio:6.2f} x {label}")
    name = options.name or f"peers-{Path(store).name}-{options.mode}"
    command = f"python -m bench.peers {Path(store).name} --mode {options.mode} --workers {options.workers} --rounds {options.rounds}"
    command += " --before CHECKOUT" if options.before else ""
    values = {"command": command, "foreign_load_percent": round(load_before, 1), "contenders": table, "penstock_is_faster_by": ratios}
    print(write_result(name, values))


if __name__ == "__main__":
    main()
