"""Rows that nodes learn, by machines that train together, played on one as in `bench.exchange`: what a step sends, and how long it takes.

    python -m bench.learnt_rows FOLDER --before CHECKOUT [--rate 1gbit] [--machines 2] [--rounds 3] [--evaluation full]

As root, with `ip` and `tc`. A graph with communities (200,000 nodes, 4M edges, no features), in a store, and cut at random and by ldg.
CHECKOUT is one of 8242298, in which each process has all rows and is told the gradients of all. Each turn is a training of its own, of
which the steps of the second epoch count, and the time of its evaluation (half of the nodes), before which the first process writes a
checkpoint; contenders take turns. Bytes are those that a machine's link has sent. Writes
`bench/results/learnt_rows_<machines>_<rate>[_full].json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

import penstock
from bench.common import ROOT, foreign_load, spread, write_result
from bench.exchange import hosts
from penstock.records import EDGE, NODE
from penstock.store import Store
from penstock.store.process_memory import peak_resident_bytes
from penstock.train import Observer, TrainConfig, started_together, train

GRAPH = ["communities", "--num-nodes", "200000", "--num-edges", "4000000", "--num-communities", "64", "--mixing", "0.2"]
SETTINGS: dict[str, Any] = dict(num_neighbors=(10, 5), batch_size=256, hidden=128, epochs=2, num_workers=1, eval_every=9, torch_threads=1)
TRAIN = 0.05
CONTENDERS = {
    "each has all rows, a store": ("before", "store"),
    "each has all rows, ldg parts": ("before", "ldg"),
    "shares, a store": ("now", "store"),
    "shares, random parts": ("now", "random"),
    "shares, ldg parts": ("now", "ldg"),
}
"""Name -> (which code, how the graph is cut). Over parts each takes seeds of its own part."""


def make(folder: Path, machines: int) -> dict[str, Path]:
    """The store and its partitions, made if they are not there."""
    store = folder / "bare"
    if not (store / "manifest.json").exists():
        with_features = folder / "with-features"
        kind, *options = [*GRAPH, "--feature-dim", "1", "--train", str(TRAIN)]
        subprocess.run([sys.executable, "-m", "penstock", "generate", kind, with_features, *options], check=True)
        penstock.ingest(_without_features(Store.open(with_features)), store)
    found = {"store": store}
    for method in {cut for _, cut in CONTENDERS.values()} - {"store"}:
        found[method] = folder / f"bare-{method}-{machines}"
        if not found[method].exists():
            command = ["partition", store, found[method], "--num-parts", str(machines), "--method", method]
            subprocess.run([sys.executable, "-m", "penstock", *command], check=True)
    return found


def _without_features(store: Store) -> Data:
    """A graph, its labels and its split."""
    csc, num_nodes = store.graph().adjacency[EDGE], store.num_nodes[NODE]
    targets = np.repeat(np.arange(num_nodes), np.diff(csc.indptr))
    edge_index = torch.from_numpy(np.stack([np.asarray(csc.indices, np.int64), targets]))
    data = Data(edge_index=edge_index, y=torch.from_numpy(np.array(store.node_field("y"))), num_nodes=num_nodes)
    for part in ("train", "val", "test"):
        data[f"{part}_mask"] = torch.zeros(num_nodes, dtype=torch.bool)
        data[f"{part}_mask"][torch.from_numpy(store.split(part, None))] = True
    return data


def work(path: str, evaluation: str) -> None:
    """What one machine does in a turn: trains, and prints what the steps of the second epoch took and sent."""
    sent = Path("/sys/class/net/eth0/statistics/tx_bytes")

    class Count(Observer):
        """Looks at the first and the last step."""

        def __init__(self) -> None:
            self.first: tuple[float, int] | None = None

        def batch_done(self, record: Any, batches_per_epoch: int) -> None:
            if record.epoch != 1:
                return
            now = time.perf_counter(), int(sent.read_text())
            if self.first is None:
                self.first, self.num_seeds = now, record.num_seeds
            elif record.num_batches == batches_per_epoch:
                steps = batches_per_epoch - 1
                (began, bytes_before), (ended, bytes_after) = self.first, now
                self.found = {
                    "seconds": (ended - began) / steps,
                    "mb": (bytes_after - bytes_before) / steps / 1e6,
                    "seeds_per_s": (record.num_seeds - self.num_seeds) / (ended - began),
                }

    observer = Count()
    with started_together() as ranks, tempfile.TemporaryDirectory() as out:
        torch.set_num_threads(1)
        result = train(TrainConfig(store=path, evaluation=evaluation, **SETTINGS), Path(out) / "run", observer=observer)
        told = {
            **observer.found,
            "peak_gib": peak_resident_bytes() / 2**30,
            "evaluation_s": result.history[-1].eval_s,
            "loss": result.history[-1].loss,
        }
        print(json.dumps(told if ranks.num_ranks > 1 else {}), flush=True)


def turn(names: list[str], source: Path, path: Path, evaluation: str) -> list[dict[str, Any]]:
    """What each machine says of a training over `path` by the code of `source`."""
    known = {"WORLD_SIZE": str(len(names)), "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "7100", "GLOO_SOCKET_IFNAME": "eth0"}
    known |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": f"{source / 'src'}:{ROOT}"}
    processes = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-m", "bench.learnt_rows", str(path), "--work", "--evaluation", evaluation],
            stdout=subprocess.PIPE, text=True, env=os.environ | known | {"RANK": str(rank)},
        )
        for rank, name in enumerate(names)
    ]  # fmt: skip
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]


def main(arguments: list[str] | None = None) -> None:
    """Run all contenders, or be one of the machines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--before", type=Path, help="a checkout of 8242298")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--evaluation", default="auto", help="full: over all neighbours; of before there is none by several")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(str(options.folder), options.evaluation)
        return
    if options.before is None:
        parser.error("--before: give a checkout of 8242298")
    load, paths = foreign_load(), make(options.folder, options.machines)
    sources = {"before": options.before.resolve(), "now": ROOT}
    contenders = {name: each for name, each in CONTENDERS.items() if options.evaluation != "full" or each[0] == "now"}
    said: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in contenders}
    with hosts(options.machines, options.rate) as names:
        for _ in range(options.rounds):
            for name, (code, cut) in contenders.items():
                said[name].append(turn(names, sources[code], paths[cut], options.evaluation))
                print(f"{name}: {[round(one['seconds'] * 1000) for one in said[name][-1]]} ms a step", file=sys.stderr)
    results = {}
    for name, turns in said.items():
        results[name] = {
            "seconds_per_step": spread([statistics.mean(one["seconds"] for one in each) for each in turns]),
            "seeds_per_s": spread([each[0]["seeds_per_s"] for each in turns]),
            "mb_sent_per_step_and_machine": spread([statistics.mean(one["mb"] for one in each) for each in turns]),
            "evaluation_s": spread([each[0]["evaluation_s"] for each in turns]),
            "peak_gib": round(max(one["peak_gib"] for each in turns for one in each), 2),
            "loss": turns[0][0]["loss"],
        }
    shutil.rmtree(options.folder / "runs", ignore_errors=True)
    values = {"command": f"bench.learnt_rows --rate {options.rate} --machines {options.machines}", "settings": SETTINGS}
    write_result(
        f"learnt_rows_{options.machines}_{options.rate}" + "_full" * (options.evaluation == "full"),
        {**values, "graph": GRAPH, "train": TRAIN, "foreign_load_percent": load, "results": results},
    )


if __name__ == "__main__":
    main()
