"""What batches of one size cost and bring: loading beside loading without, and by PyG's `Pad`; compiling a model, with and without.

    python -m bench.padding [FOLDER]    the store small is made in FOLDER (default: a temporary one) if it is not there

Fanouts 15, 10, 5, 1,024 seeds, two threads, 128 features: seeds a second, in turns. Then GraphSAGE of three layers, trimmed hop by hop,
trained by torch.compile as it is used by default, a process for each: how many graphs, how long until a step takes what it takes later.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

import torch
from torch_geometric.nn import GraphSAGE
from torch_geometric.transforms import Pad

from bench.common import begin, in_turns, show_and_write, spread
from bench.graphs import small_store
from penstock import NeighborLoader
from penstock.records import EDGE, NODE
from penstock.store import Store

STEPS = 14


def make_loader(store: Store, **options: Any) -> NeighborLoader:
    """Batches of training."""
    return NeighborLoader(store, [15, 10, 5], "train", batch_size=1024, shuffle=True, drop_last=True, num_workers=2, seed=0, **options)


def load(store: Store) -> dict[str, Any]:
    """Rates in turns, and how much is added."""
    padded = make_loader(store, pad=True)
    assert padded.padding is not None
    most = sum(padded.padding.num_nodes[NODE]), sum(padded.padding.num_edges[EDGE])
    loaders = {"as they are": make_loader(store), "pad=True": padded, "PyG's Pad": make_loader(store, transform=Pad(*most))}
    rates, stats = in_turns(loaders, lambda batch: batch.batch_size), padded.stats()
    plain = rates["as they are"]
    return {
        "seeds_per_s": {name: spread(each) for name, each in rates.items()},
        "over_as_they_are": {name: spread([a / b for a, b in zip(each, plain, strict=True)]) for name, each in rates.items()},
        "added": {"nodes": round(stats.padding_nodes / stats.num_nodes, 4), "edges": round(stats.padding_edges / stats.num_edges, 4)},
        "batches_by_step": stats.padding_steps,
    }  # fmt: skip


def train(store: Store, *, pad: bool) -> dict[str, Any]:
    """Steps of a compiled model."""
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    model = GraphSAGE(store.node_field("x").shape[1], 128, 3, 50)
    compiled, optimizer = torch.compile(model), torch.optim.Adam(model.parameters())
    seconds = []
    for _, batch in zip(range(STEPS), make_loader(store, pad=pad), strict=False):
        started, hops = time.perf_counter(), (batch.num_sampled_nodes, batch.num_sampled_edges)
        logits = compiled(batch.x, batch.edge_index, num_sampled_nodes_per_hop=hops[0], num_sampled_edges_per_hop=hops[1])
        loss = torch.nn.functional.cross_entropy(logits[: batch.batch_size], batch.y[: batch.batch_size].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    usual = median(seconds[STEPS // 2 :])
    return {"graphs": counters["stats"]["unique_graphs"], "step_s": round(usual, 3), "compiling_s": round(sum(seconds) - STEPS * usual, 1)}


def main() -> None:
    """Measure and write the result."""
    if "--train" in sys.argv:
        print(json.dumps(train(Store.open(sys.argv[1]), pad="pad" in sys.argv)))
        return
    with small_store() as store:
        values = {**begin("python -m bench.padding FOLDER"), **load(store)}
        compiled: dict[str, list[dict[str, Any]]] = {"as they are": [], "pad=True": []}
        for _ in range(3):
            for name, words in (("as they are", []), ("pad=True", ["pad"])):
                command = [sys.executable, "-m", "bench.padding", str(store.path), "--train", *words]
                environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}  # else the second time nothing is compiled
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                compiled[name].append(json.loads(done.stdout.splitlines()[-1]))
        values["compiled"] = {
            name: {key: spread([run[key] for run in runs]) for key in runs[0]} for name, runs in compiled.items()
        }  # fmt: skip
    show_and_write("padding", values)


if __name__ == "__main__":
    main()
