"""Kinds of subgraphs: the sampled edges, these with their reverses, and all edges among the nodes; loaders in turns, PyG's too.

    OMP_WAIT_POLICY=PASSIVE python -m bench.subgraph_types [FOLDER]      the store small is made in FOLDER if it is not there

Complete batches with features, fanouts 15, 10, 5, 1,024 seeds. Then, over the same batches in turns, steps of PyG's models of three layers
as they are and behind `penstock.trim`; these batches have 256 seeds and two hops of 10.
"""

from __future__ import annotations

import copy
import time
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GAT, GCN, GraphSAGE

import penstock
from bench.common import begin, in_turns, show_and_write, spread
from bench.contenders import CLASSES, HIDDEN
from bench.graphs import edges_of, small_store
from bench.ways import make_loaders, over_pyg
from penstock.store import Store

FANOUTS, BATCH_SIZE = [15, 10, 5], 1024
KINDS = {kind: {"subgraph_type": kind} for kind in ("directional", "bidirectional")}
OURS = {"induced": {"subgraph_type": "induced"}}
"""Of which PyG wants torch-sparse."""

MODELS = {"sage": GraphSAGE, "gcn": GCN, "gat": partial(GAT, heads=4)}
WAYS = ("as it is", "trimmed")
OF_STEPS = dict(num_neighbors=[10, 10], batch_size=256)
NUM_BATCHES, ROUNDS = 3, 4


def batches(store: Store, **how: Any) -> dict[str, Any]:
    """Seeds a second, and how many times as many as PyG's; `how`: see `in_turns`."""
    data = edges_of(store)
    data.x = torch.from_numpy(np.array(store.node_field("x")))
    seeds = torch.from_numpy(np.array(store.split("train")))
    found, _ = make_loaders("NeighborLoader", data, FANOUTS, KINDS, OURS, input_nodes=seeds, batch_size=BATCH_SIZE, shuffle=True)
    rates = in_turns(found, lambda batch: batch.batch_size, **how)
    return {"seeds_per_s": {name: spread(each) for name, each in rates.items()}, "over_pyg": over_pyg(rates)}


def take(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> float:
    """Take a step. Returns seconds."""
    started = time.perf_counter()
    optimizer.zero_grad()
    F.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size]).backward()
    optimizer.step()
    return time.perf_counter() - started


def steps(store: Store) -> dict[str, Any]:
    """Kind -> model -> seconds of a step in each way, the first round left out, and how many times as long as trimmed it takes."""
    found: dict[str, Any] = {}
    for kind in ("bidirectional", "induced"):
        loader = penstock.NeighborLoader(store, **OF_STEPS, subgraph_type=kind, input_nodes="train", shuffle=True, seed=0)
        taken, found[kind] = list(islice(loader, NUM_BATCHES)), {}
        for name, make in MODELS.items():
            model = make(taken[0].x.shape[1], HIDDEN, 3, CLASSES)
            models = dict(zip(WAYS, (model, penstock.trim(copy.deepcopy(model))), strict=True))
            optimizers = {way: torch.optim.Adam(each.parameters(), lr=3e-3) for way, each in models.items()}
            seconds: dict[str, list[float]] = {way: [] for way in WAYS}
            for number in range(1 + ROUNDS):
                for batch in taken:
                    for way in WAYS:
                        took = take(models[way], optimizers[way], batch)
                        if number:
                            seconds[way].append(took)
            over = [plain / own for plain, own in zip(*seconds.values(), strict=True)]
            found[kind][name] = {"step_s": {way: spread(each) for way, each in seconds.items()}, "over": spread(over)}
            print(f"measured: {kind}, {name}", flush=True)
    return found


def main() -> None:
    """Measure and write the result."""
    with small_store() as store:
        values = begin("OMP_WAIT_POLICY=PASSIVE python -m bench.subgraph_types FOLDER")
        values |= {**batches(store), "steps": steps(store)}
    show_and_write("subgraph_types", values)


if __name__ == "__main__":
    main()
