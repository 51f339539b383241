"""Typed graphs: loaders in turns, and steps of a heterogeneous model in turns; PyG's too, where pyg-lib is there.

    python -m bench.typed [GRAPH ...]      GRAPH: academic (the default), 10-relations, 100-relations, ...

academic: 400k papers, 600k authors, 5k institutions, 30k fields; 12.7M edges of 4 types, and their reverses; fanouts 10, 10; 128 wide.
R-relations: 200k entities, 4M edges of R types, as of a knowledge graph; one neighbour of each type, twice; 64 wide.
Batches of 1,024 seeds with their features. The models, of two layers and width 64: a SAGEConv for each edge type, summed by type
(`HeteroConv`), and, of academic alone, HGT with four heads. As most call them, `model(batch.x_dict, batch.edge_index_dict)`: PyG's, and the
same behind `penstock.trim`; and PyG's trimmed by hand, layer by layer (`trim_to_layer`). PyG's models have its loader without processes;
its HGT is not tried untrimmed, which took more than 15 GB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric import typing as has
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv
from torch_geometric.utils import trim_to_layer

import penstock
from bench.common import begin, in_turns, show_and_write, spread, write_result
from bench.ways import PYG, make_loaders, over, over_pyg

BATCH_SIZE, NUM_SEEDS, HIDDEN, NUM_CLASSES = 1024, 100_000, 64, 16
NUM_NODES = {"paper": 400_000, "author": 600_000, "institution": 5_000, "field": 30_000}
NUM_EDGES = {
    ("paper", "cites", "paper"): 4_000_000,
    ("author", "writes", "paper"): 4_000_000,
    ("author", "at", "institution"): 700_000,
    ("paper", "on", "field"): 4_000_000,
}
PEERS = {"sage": {"trimmed by hand": True, "plain": False}, "hgt": {"trimmed by hand": True}}
"""Kind of model -> ways of PyG's, and whether it is trimmed by hand."""
NUM_ENTITIES, NUM_FACTS = 200_000, 4_000_000


def academic() -> tuple[HeteroData, str, list[int]]:
    """(a graph of papers whose nodes of low numbers have most edges, type of the seeds, fanouts)."""
    data, random = HeteroData(), torch.Generator().manual_seed(0)
    for node_type, count in NUM_NODES.items():
        data[node_type].x = torch.randn(count, 128, generator=random)
    for (source, name, target), count in NUM_EDGES.items():
        ends = [(torch.rand(count, generator=random) ** 2 * NUM_NODES[t]).long() for t in (source, target)]
        data[source, name, target].edge_index = torch.stack(ends)
        data[target, f"rev_{name}", source].edge_index = torch.stack(ends[::-1])
    return data, "paper", [10, 10]


def relations(count: int) -> tuple[HeteroData, str, list[int]]:
    """(a graph of one type of nodes and `count` types of edges, type of the seeds, fanouts)."""
    data, random = HeteroData(), torch.Generator().manual_seed(0)
    data["entity"].x = torch.randn(NUM_ENTITIES, 64, generator=random)
    for number in range(count):
        ends = torch.randint(NUM_ENTITIES, (2, NUM_FACTS // count), generator=random)
        data["entity", f"relation_{number}", "entity"].edge_index = ends
    return data, "entity", [1, 1]


class Model(torch.nn.Module):
    """Two layers of PyG's. `by_hand`: each cuts off what it does not need, by what the batch says."""

    def __init__(self, kind: str, data: HeteroData, target: str, *, by_hand: bool) -> None:
        super().__init__()
        self.target, self.by_hand = target, by_hand
        widths = {t: data[t].x.shape[1] for t in data.node_types}

        def make(of: dict[str, int]) -> torch.nn.Module:
            if kind == "hgt":
                return HGTConv(of, HIDDEN, data.metadata(), heads=4)
            return HeteroConv({(s, name, t): SAGEConv((of[s], of[t]), HIDDEN) for s, name, t in data.edge_types})

        self.convs = torch.nn.ModuleList(map(make, (widths, dict.fromkeys(widths, HIDDEN))))
        self.head = torch.nn.Linear(HIDDEN, NUM_CLASSES)

    def forward(self, x: dict[str, torch.Tensor], edge_index: dict[Any, torch.Tensor], batch: Any = None) -> torch.Tensor:
        """float[nodes of the target type, NUM_CLASSES]."""
        for number, conv in enumerate(self.convs):
            if self.by_hand:
                x, edge_index, _ = trim_to_layer(number, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, edge_index)
            x = {t: rows.relu() for t, rows in conv(x, edge_index).items()}
        return self.head(x[self.target])


class Steps:
    """The batches of a loader, each after a step."""

    def __init__(self, loader: Iterable[Any], model: Model) -> None:
        self._loader, self._model = loader, model
        self._optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def __iter__(self) -> Iterator[Any]:
        target = self._model.target
        for batch in self._loader:
            num_seeds = batch[target].batch_size
            logits = self._model(batch.x_dict, batch.edge_index_dict, batch)[:num_seeds]
            labels = batch[target].n_id[:num_seeds] % NUM_CLASSES
            self._optimizer.zero_grad()
            F.cross_entropy(logits, labels).backward()
            self._optimizer.step()
            yield batch


def measure(make: Callable[[], tuple[HeteroData, str, list[int]]], kinds: Iterable[str] = ("sage",), **how: Any) -> dict[str, Any]:
    """Rates of all, in turns. `kinds`: of models; `how`: see `in_turns`."""
    data, target, fanouts = make()
    common = {"input_nodes": (target, torch.arange(NUM_SEEDS)), "batch_size": BATCH_SIZE, "shuffle": True}
    loaders, _ = make_loaders("NeighborLoader", data, fanouts, {"features": {}}, {}, **common)
    rates = in_turns(loaders, lambda batch: batch[target].batch_size, **how)
    print("measured: loaders", flush=True)
    found = {"features": {"seeds_per_s": {name: spread(each) for name, each in rates.items()}, "over_pyg": over_pyg(rates)}}
    for kind in kinds:
        steps = {"trimmed": Steps(loaders["features"], penstock.trim(Model(kind, data, target, by_hand=False)))}
        for name, by_hand in PEERS[kind].items() if has.WITH_PYG_LIB else ():
            steps[f"{PYG}{name}"] = Steps(loaders[f"{PYG}features"], Model(kind, data, target, by_hand=by_hand))
        rates = in_turns(steps, lambda batch: batch[target].batch_size, **how)
        others = {name: over(rates, "trimmed", name) for name in rates if name != "trimmed"}
        print(f"measured: {kind}", flush=True)
        found[f"step of {kind}"] = {"seeds_per_s": {name: spread(each) for name, each in rates.items()}, "over_pyg": others}
    return found


def main() -> None:
    """Measure and write the result."""
    values = begin(" ".join(["python -m bench.typed", *sys.argv[1:]]))
    for name in sys.argv[1:] or ["academic"]:
        if name != "academic" and not name.removesuffix("-relations").isdecimal():
            sys.exit(__doc__)
        if name == "academic":
            values[name] = measure(academic, ("sage", "hgt"), rounds=3)
        else:
            values[name] = measure(partial(relations, int(name.removesuffix("-relations"))), rounds=3)
        write_result("typed", values)
    show_and_write("typed", values)


if __name__ == "__main__":
    main()
