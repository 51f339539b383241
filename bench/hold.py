"""What holding a batch ahead takes: its whole sample, the smaller form of it, or the ids of its rows only, which means sampling it again.

    python -m bench.hold STORE [--num-neighbors 10,10,10] [--batch-size 1024] [--batches 12]

Neighbour lists are read from the disk, the best tenth of them by sampled visits kept. Per batch: bytes of each form, seconds of making it
smaller and whole again, seconds and requests of sampling it a second time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from bench.common import spread, write_result
from penstock.feed.buffers import BufferPool
from penstock.feed.held import hold, release
from penstock.feed.subgraph import Subgraph, number_edges, subgraph_of
from penstock.plan import Plan


def whole_bytes(subgraph: Subgraph) -> int:
    """Bytes of a subgraph as sampled."""
    edges = sum(one.edge_index.nbytes + one.row_ptr.nbytes + one.positions.nbytes for one in subgraph.edges.values())
    return edges + sum(ids.nbytes for ids in subgraph.nodes.values())


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--num-neighbors", default="10,10,10")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=12)
    chosen = parser.parse_args()
    plan = Plan(topology="disk", neighbor_policy="presample", neighbor_cache="10%", presample_batches=16)
    loader = penstock.NeighborLoader(
        penstock.open(chosen.store), [int(fanout) for fanout in chosen.num_neighbors.split(",")], input_nodes="train",
        batch_size=chosen.batch_size, shuffle=True, seed=0, plan=plan,
    )  # fmt: skip
    maker, pool = loader.engine.maker, BufferPool()
    graph, lists = maker.sampler.graph, next(iter(loader.engine.caches.beneath.values()))
    columns: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        columns.setdefault(name, []).append(value)

    workspace = maker.sampler.workspace()
    for index in range(chosen.batches + 2):  # two to warm up
        seeds = np.ascontiguousarray(maker.seeds.ids[maker.order.batch(0, index, chosen.batch_size)], np.int64)
        asked, started = lists.stats.as_dict(), time.perf_counter()
        sample = maker.sampler.sample({maker.seeds.node_type: seeds}, epoch=0, batch=index, workspace=workspace, allocate=pool.empty)
        subgraph = subgraph_of(sample)
        number_edges(subgraph, graph, pool.empty)
        sampled, counted = time.perf_counter(), lists.stats.as_dict()
        held: Any = hold(subgraph, graph, pool.empty)
        smaller = time.perf_counter()
        release(held, graph, pool.empty)
        whole = time.perf_counter()
        if index < 2:
            continue
        assert isinstance(held, np.ndarray)
        note("sample_bytes", whole_bytes(subgraph))
        note("held_bytes", held.nbytes)
        note("ids_bytes", 4 * sum(ids.numel() for ids in subgraph.nodes.values()))
        note("hold_s", smaller - sampled)
        note("release_s", whole - smaller)
        note("sample_again_s", sampled - started)
        note("sample_again_requests", counted["num_requests"] - asked["num_requests"])
    result = {name: spread(values, 6) for name, values in columns.items()}
    for name, values in result.items():
        print(f"{name:24} {values}")
    options = {"num_neighbors": chosen.num_neighbors, "batch_size": chosen.batch_size}
    write_result("hold", {"command": "python -m bench.hold STORE", "store": chosen.store.name, **options, **result})


if __name__ == "__main__":
    main()
