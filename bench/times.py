"""Speed of sampling by time: loaders in turns, of the same graph with random times, and PyG's where pyg-lib is there.

    python -m bench.times [FOLDER]      the store small is made in FOLDER (default: a temporary one) if it is not there

Batches without features, fanouts 15, 10, 5, 1,024 seeds, each with a time of its own: sampled edges per second. Every edge has a time,
random as the seeds' are, so that half of a list is in time in the mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_geometric import typing as has
from torch_geometric.data import Data

from bench.common import begin, in_turns, show_and_write, spread
from bench.graphs import edges_of, small_store
from penstock import NeighborLoader
from penstock.store import Store

FANOUTS, BATCH_SIZE, WORKERS = [15, 10, 5], 1024, 2
MOMENTS, PROCESSES = 1_000_000, f", {WORKERS} workers"


def timed_data(store: Store) -> tuple[Data, torch.Tensor, torch.Tensor]:
    """(a graph whose edges have times, seeds, the time of each)."""
    data, random = edges_of(store), torch.Generator().manual_seed(0)
    data.edge_time = torch.randint(0, MOMENTS, (data.num_edges,), generator=random)
    seeds = torch.from_numpy(np.array(store.split("train")))
    return data, seeds, torch.randint(0, MOMENTS, (seeds.numel(),), generator=random)


def loaders(data: Data, seeds: torch.Tensor, moments: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Name -> what makes it."""
    all_of_them = {"input_nodes": seeds, "batch_size": BATCH_SIZE, "shuffle": True}
    ways: dict[str, dict[str, Any]] = {
        "by time": {"time_attr": "edge_time", "input_time": moments},
        "by time, the last": {"time_attr": "edge_time", "input_time": moments, "temporal_strategy": "last"},
        "disjoint": {"disjoint": True},
    }
    ours = {"num_workers": WORKERS, "seed": 0}
    made: dict[str, Callable[[], Any]] = {
        way: lambda how=how: NeighborLoader(data, FANOUTS, **all_of_them, **how, **ours) for way, how in ways.items()
    }
    if has.WITH_PYG_LIB:
        from torch_geometric.loader import NeighborLoader as Peer

        for workers in (0, WORKERS):
            for way, how in ways.items():
                theirs = all_of_them | how | ({"num_workers": workers} if workers else {})
                made[f"PyG, {way}{PROCESSES * bool(workers)}"] = lambda theirs=theirs: Peer(data, FANOUTS, **theirs)
    return made


def measure(store: Store) -> dict[str, Any]:
    """Rates of all, in turns."""
    data, seeds, moments = timed_data(store)
    found, made_s = {}, {}
    for name, make_loader in loaders(data, seeds, moments).items():
        started = time.perf_counter()
        found[name] = make_loader()
        made_s[name] = round(time.perf_counter() - started, 2)
    rates = in_turns(found, lambda batch: batch.num_edges)
    stats = found["by time"].stats()
    return {
        "made_s": made_s,
        "bytes_per_edge": round(stats.time_bytes / data.num_edges, 3),
        "m_edges_per_s": {name: spread([one / 1e6 for one in each]) for name, each in rates.items()},
        "over_disjoint": {name: spread([a / b for a, b in zip(rates[name], rates["disjoint"], strict=True)]) for name in rates},
        "over_pyg": {
            name: spread([a / b for a, b in zip(rates[name.removeprefix("PyG, ").removesuffix(PROCESSES)], rates[name], strict=True)])
            for name in rates
            if name.startswith("PyG")
        },
    }  # fmt: skip


def main() -> None:
    """Measure and write the result."""
    with small_store() as store:
        values = {**begin("python -m bench.times FOLDER"), **measure(store)}
    show_and_write("times", values)


if __name__ == "__main__":
    main()
