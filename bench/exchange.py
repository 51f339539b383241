"""Machines that share a partition, played on one: processes in network namespaces of their own, over links of a stated rate.

    python -m bench.exchange FOLDER [--rate 1gbit] [--machines 2] [--seconds 3] [--rounds 5]       as root, with `ip` and `tc`

A graph with communities (1M nodes, 20M edges, 128 features), cut at random and by ldg. Each process loads batches of its own, with two
threads that make them ahead; contenders take turns. By a plain loop, without a model: what is measured is what the network lets through.
The processes share this machine's cores and memory, so that rates are of the network or of these cores, whichever is less, and no measure
of a cluster. Writes `bench/results/exchange.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.common import ROOT, foreign_load, spread, write_result

GRAPH = ["communities", "--num-nodes", "1000000", "--num-edges", "20000000", "--num-communities", "200", "--mixing", "0.2"]
DIM = 128
FANOUTS, BATCH = (15, 10), 256
CONTENDERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "the whole store in each": ("store", {}, {}),
    "random parts": ("random", {}, {}),
    "ldg parts, any seeds": ("ldg", {}, {}),
    "ldg parts, own seeds": ("ldg", {"order": "split"}, {}),
    "ldg parts, own seeds, rows and lists kept": (
        "ldg", {"order": "split"}, {"policy": "presample", "cache": "20%", "neighbor_policy": "presample", "neighbor_cache": "20%"},
    ),
}  # fmt: skip
"""Name -> (how the graph is cut, arguments of the loader, of its plan). The first reads nothing over the network: what could be reached."""


def make(folder: Path, machines: int) -> dict[str, Path]:
    """The store and its partitions, made if they are not there."""
    store = folder / "communities"
    if not (store / "manifest.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        kind, *options = GRAPH
        subprocess.run([sys.executable, "-m", "penstock", "generate", kind, store, *options, "--feature-dim", str(DIM)], check=True)
    found = {"store": store}
    for method in {cut for cut, _, _ in CONTENDERS.values()} - {"store"}:
        found[method] = folder / f"{method}-{machines}"
        if not found[method].exists():
            command = ["partition", store, found[method], "--num-parts", str(machines), "--method", method]
            subprocess.run([sys.executable, "-m", "penstock", *command], check=True)
    return found


@contextmanager
def hosts(machines: int, rate: str) -> Iterator[list[str]]:
    """Network namespaces with an address each, joined by a bridge; every one sends at the rate."""

    def run(line: str) -> None:
        subprocess.run(line.split(), check=True)

    names, bridge = [f"penstock{number}" for number in range(machines)], "penstock-br"
    try:
        run(f"ip link add {bridge} type bridge")
        run(f"ip link set {bridge} up")
        for number, name in enumerate(names):
            run(f"ip netns add {name}")
            run(f"ip link add {name}-out type veth peer name eth0 netns {name}")
            run(f"ip link set {name}-out master {bridge}")
            run(f"ip link set {name}-out up")
            run(f"ip -n {name} addr add 10.77.0.{number + 1}/24 dev eth0")
            run(f"ip -n {name} link set eth0 up")
            run(f"ip -n {name} link set lo up")
            run(f"ip netns exec {name} tc qdisc add dev eth0 root tbf rate {rate} burst 1mb latency 100ms")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", bridge], check=False)


def work(parts: dict[str, str], rank: int, machines: int, seconds: float, rounds: int) -> None:
    """What one machine does: all contenders in turn; prints what it measured."""
    import torch

    import penstock
    from penstock.exchange import join

    torch.set_num_threads(1)
    loaders: dict[str, Any] = {}
    graphs: dict[str, Any] = {}
    for number, (method, path) in enumerate(sorted(parts.items())):
        addresses = [f"10.77.0.{r + 1}:{7000 + number}" for r in range(machines)]
        graphs[method] = path if method == "store" else join(path, addresses=addresses, rank=rank, timeout_s=300)
    for name, (method, options, plan) in CONTENDERS.items():
        loaders[name] = penstock.NeighborLoader(
            graphs[method], list(FANOUTS), "train", batch_size=BATCH, shuffle=True, seed=0, num_workers=2,
            rank=rank, num_ranks=machines, plan=penstock.Plan(**plan), **options,
        )  # fmt: skip
    found: dict[str, Any] = {name: {"rates": [], "remote_bytes": 0, "batches": 0} for name in CONTENDERS}
    for turn in range(rounds + 1):
        for name, loader in loaders.items():
            _meet(turn, name, rank, machines)
            before, started, seeds, batches = _sent(loader), time.perf_counter(), 0, 0
            for batch in loader:
                seeds, batches = seeds + batch.batch_size, batches + 1
                if time.perf_counter() - started > seconds:
                    break
            if turn:
                one = found[name]
                one["rates"].append(seeds / (time.perf_counter() - started))
                one["remote_bytes"] += _sent(loader) - before
                one["batches"] += batches
    print(json.dumps(found), flush=True)
    for method, graph in graphs.items():
        if method != "store":
            graph.close()


def _sent(loader: Any) -> int:
    """Bytes of rows that came over the network for a loader."""
    return sum(one["num_bytes"] for name, one in loader.stats().tiers.items() if name.endswith("remote"))


def _meet(turn: int, name: str, rank: int, machines: int) -> None:
    """Wait for all machines: by files, which no network carries."""
    folder = Path(os.environ["MEET"])
    place = f"{turn}-{list(CONTENDERS).index(name)}"
    (folder / f"{place}-{rank}").touch()
    while len(list(folder.glob(f"{place}-*"))) < machines:
        time.sleep(0.01)


def main(arguments: list[str] | None = None) -> None:
    """Run all contenders, or be one of the machines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    parts = make(options.folder, options.machines)
    if options.rank is not None:
        work({method: str(path) for method, path in parts.items()}, options.rank, options.machines, options.seconds, options.rounds)
        return
    load, meet = foreign_load(), options.folder / f"meet-{os.getpid()}"
    meet.mkdir()
    common = [sys.executable, "-m", "bench.exchange", str(options.folder), "--machines", str(options.machines)]
    common += ["--seconds", str(options.seconds), "--rounds", str(options.rounds)]
    try:
        with hosts(options.machines, options.rate) as names:
            environment = os.environ | {"MEET": str(meet), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
            processes = [
                subprocess.Popen(
                    ["ip", "netns", "exec", name, *common, "--rank", str(r)], stdout=subprocess.PIPE, text=True, env=environment
                )
                for r, name in enumerate(names)
            ]
            said = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    finally:
        for file in meet.iterdir():
            file.unlink()
        meet.rmdir()
    results = {}
    for name in CONTENDERS:
        both = [one[name] for one in said]
        together = [sum(rates) for rates in zip(*(one["rates"] for one in both), strict=True)]
        batches = sum(one["batches"] for one in both)
        results[name] = {
            "seeds_per_s": spread(together),
            "remote_mb_per_batch": round(sum(one["remote_bytes"] for one in both) / max(batches, 1) / 1e6, 2),
        }
        print(f"{name}: {statistics.median(together):,.0f} seeds/s, {results[name]['remote_mb_per_batch']} MB a batch", file=sys.stderr)
    settings = {"rate": options.rate, "machines": options.machines, "fanouts": FANOUTS, "batch_size": BATCH}
    cuts = {
        method: json.loads((path / "manifest.json").read_text())["made"]["edge_cut"] for method, path in parts.items() if method != "store"
    }
    values = {"command": f"bench.exchange --rate {options.rate} --machines {options.machines}", **settings}
    write_result("exchange", {**values, "graph": [*GRAPH, DIM], "edge_cut": cuts, "foreign_load_percent": load, "results": results})


if __name__ == "__main__":
    main()
