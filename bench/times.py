"""Speed of sampling by time: loaders in turns, of the same graph with random times, and PyG's where pyg-lib is there.

    python -m bench.times [FOLDER]      the store small is made in FOLDER (default: a temporary one) if it is not there

Batches without features, fanouts 15, 10, 5, 1,024 seeds, each with a time of its own: sampled edges per second. Every edge has a time,
random as the seeds' are, so that half of a list is in time in the mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from bench.common import begin, in_turns, show_and_write, spread
from bench.graphs import edges_of, small_store
from bench.ways import make_loaders, over, over_pyg
from penstock.store import Store

FANOUTS, BATCH_SIZE, MOMENTS = [15, 10, 5], 1024, 1_000_000


def timed_data(store: Store) -> tuple[Data, torch.Tensor, torch.Tensor]:
    """(a graph whose edges have times, seeds, the time of each)."""
    data, random = edges_of(store), torch.Generator().manual_seed(0)
    data.edge_time = torch.randint(0, MOMENTS, (data.num_edges,), generator=random)
    seeds = torch.from_numpy(np.array(store.split("train")))
    return data, seeds, torch.randint(0, MOMENTS, (seeds.numel(),), generator=random)


def measure(store: Store) -> dict[str, Any]:
    """Rates of all, in turns."""
    data, seeds, moments = timed_data(store)
    by_time = {"time_attr": "edge_time", "input_time": moments}
    ways = {"by time": by_time, "by time, the last": {**by_time, "temporal_strategy": "last"}, "disjoint": {"disjoint": True}}
    found, made_s = make_loaders("NeighborLoader", data, FANOUTS, ways, {}, input_nodes=seeds, batch_size=BATCH_SIZE, shuffle=True)
    rates = in_turns(found, lambda batch: batch.num_edges)
    return {
        "made_s": made_s,
        "bytes_per_edge": round(found["by time"].stats().time_bytes / data.num_edges, 3),
        "m_edges_per_s": {name: spread([one / 1e6 for one in each]) for name, each in rates.items()},
        "over_disjoint": {name: over(rates, name, "disjoint") for name in rates},
        "over_pyg": over_pyg(rates),
    }


def main() -> None:
    """Measure and write the result."""
    with small_store() as store:
        values = {**begin("python -m bench.times FOLDER"), **measure(store)}
    show_and_write("times", values)


if __name__ == "__main__":
    main()
