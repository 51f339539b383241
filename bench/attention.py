"""Layers of attention: a step behind `penstock.trim`, beside PyG's as most call it and trimmed by hand, over the same batches in turns.

    python -m bench.attention [FOLDER]      the graph small is made in FOLDER if it is not there

Three layers of width 128 in four heads, and a linear map to the classes; fanouts 15, 10, 5, batches of 1,024 of Penstock's loader, made
before. Once with memory as it is, once with what a step frees kept for the next (`keep_freed_memory`).
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv
from torch_geometric.utils import trim_to_layer

import penstock
from bench.common import begin, show_and_write, spread
from bench.contenders import BATCH_SIZE, CLASSES, FANOUTS, HIDDEN
from bench.graphs import small_store
from penstock.store.process_memory import keep_freed_memory

LAYERS = {"gat": GATConv, "gatv2": GATv2Conv, "transformer": TransformerConv}
WAYS = ("trimmed", "by hand", "plain")
HEADS, NUM_BATCHES, ROUNDS = 4, 2, 4


class Model(torch.nn.Module):
    """Three layers of PyG's. `by_hand`: each cuts off what it does not need, by what the batch says."""

    def __init__(self, kind: str, *, by_hand: bool) -> None:
        super().__init__()
        self.by_hand = by_hand
        self.convs = torch.nn.ModuleList(LAYERS[kind](HIDDEN, HIDDEN // HEADS, heads=HEADS) for _ in FANOUTS)
        self.head = torch.nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: Any) -> torch.Tensor:
        """float[nodes, CLASSES]."""
        for number, conv in enumerate(self.convs):
            if self.by_hand:
                x, edge_index, _ = trim_to_layer(number, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index)
            x = conv(x, edge_index).relu()
        return self.head(x)


class Steps:
    """Steps of a model that is called in one of the ways."""

    def __init__(self, kind: str, way: str) -> None:
        torch.manual_seed(0)
        self._model = Model(kind, by_hand=way == "by hand")
        if way == "trimmed":
            penstock.trim(self._model)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=3e-3)

    def take(self, batch: Any) -> float:
        """Take a step. Returns seconds."""
        started = time.perf_counter()
        self._optimizer.zero_grad()
        logits = self._model(batch.x, batch.edge_index, batch)[: batch.batch_size]
        F.cross_entropy(logits, batch.y[: batch.batch_size]).backward()
        self._optimizer.step()
        return time.perf_counter() - started


def measure(batches: list[Any]) -> dict[str, Any]:
    """Seconds of a step of each layer in each way, the first round left out; and how many times as long PyG's ways take."""
    found = {}
    for kind in LAYERS:
        steps = {way: Steps(kind, way) for way in WAYS}
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(1 + ROUNDS):
            for batch in batches:
                for way in WAYS:
                    took = steps[way].take(batch)
                    if number:
                        seconds[way].append(took)
        over = {way: spread([other / own for other, own in zip(seconds[way], seconds["trimmed"], strict=True)]) for way in WAYS[1:]}
        found[kind] = {"step_s": {way: spread(each) for way, each in seconds.items()}, "over_pyg": over}
        print(f"measured: {kind}", flush=True)
    return found


def main() -> None:
    """Measure and write the result."""
    with small_store() as store:
        loader = penstock.NeighborLoader(store, FANOUTS, input_nodes="train", batch_size=BATCH_SIZE, shuffle=True, num_workers=2, seed=0)
        batches = list(islice(loader, NUM_BATCHES))
    values = begin("OMP_WAIT_POLICY=PASSIVE python -m bench.attention FOLDER")
    values["memory as it is"] = measure(batches)
    keep_freed_memory()
    values["freed memory kept"] = measure(batches)
    show_and_write("attention", values)


if __name__ == "__main__":
    main()
