"""Small graphs and small batches, where the time of a batch is mostly fixed: loaders in turns; PyG's too, where pyg-lib is there.

    python -m bench.small_graphs

Batches of 1, 32 and 512 seeds with their features, fanouts 10, 10, over graphs of some thousand nodes and more, shuffled, pass after pass.
The last has many edge types, as relational databases have: each takes its time, though few of its edges are in a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch_geometric.loader
from torch_geometric import typing as has
from torch_geometric.data import Data, HeteroData

import penstock
from bench.common import begin, in_turns, show_and_write, spread
from bench.ways import over

GRAPHS = {"2,700 nodes": (2_700, 4, 1433), "20,000 nodes": (20_000, 8, 64), "200,000 nodes": (200_000, 15, 100)}
"""Name -> (nodes, edges of each, features)."""
TYPED = "10 types of 5,000 nodes"
BATCH_SIZES = (1, 32, 512)
OURS = {"no threads": 0, "2 threads": 2}
PEERS = {"no workers": "no threads", "2 workers": "2 threads"}
"""How PyG's loader works -> what it is compared with."""


class Passes:
    """The batches of a loader, one pass after the other."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self._loader


def make(num_nodes: int, degree: int, width: int) -> Data:
    """A graph whose nodes of low numbers have most edges."""
    random = torch.Generator().manual_seed(0)
    sources = (torch.rand(num_nodes * degree, generator=random) ** 2 * num_nodes).long()
    targets = torch.randint(num_nodes, sources.shape, generator=random)
    return Data(x=torch.randn(num_nodes, width, generator=random), edge_index=torch.stack([sources, targets]))


def make_typed(num_types: int, num_edge_types: int, num_nodes: int, degree: int, width: int) -> HeteroData:
    """A graph whose edge types each join one node type to another, evenly spread; `num_nodes` of each type."""
    random, data = torch.Generator().manual_seed(0), HeteroData()
    for node_type in range(num_types):
        data[f"{node_type}"].x = torch.randn(num_nodes, width, generator=random)
    for number in range(num_edge_types):
        source, target = number % num_types, (7 * number + number // num_types + 1) % num_types
        data[f"{source}", f"{number}", f"{target}"].edge_index = torch.randint(num_nodes, (2, num_nodes * degree), generator=random)
    return data


def measure(data: Data | HeteroData, batch_size: int, **how: Any) -> dict[str, Any]:
    """Batches a second, and how many times as many as PyG's in the same way; `how`: see `in_turns`."""
    seeds = data.node_types[0] if isinstance(data, HeteroData) else None
    common = {"num_neighbors": [10, 10], "batch_size": batch_size, "shuffle": True, "input_nodes": seeds}
    loaders = {name: penstock.NeighborLoader(data, **common, num_workers=count, seed=0) for name, count in OURS.items()}
    if has.WITH_PYG_LIB:
        loaders |= {
            f"PyG, {name}": torch_geometric.loader.NeighborLoader(data, **common, num_workers=OURS[ours]) for name, ours in PEERS.items()
        }
    rates = in_turns({name: Passes(loader) for name, loader in loaders.items()}, lambda batch: 1, **how)
    ratios = {name: over(rates, ours, f"PyG, {name}") for name, ours in PEERS.items()} if has.WITH_PYG_LIB else {}
    return {"batches_per_s": {name: spread(each) for name, each in rates.items()}, "over_pyg": ratios}


def main() -> None:
    """Measure and write the result."""
    values = begin("python -m bench.small_graphs")
    for name, data in [*((name, make(*shape)) for name, shape in GRAPHS.items()), (TYPED, make_typed(10, 30, 5_000, 4, 32))]:
        values[name] = {str(size): measure(data, size, rounds=5, seconds=1.0) for size in BATCH_SIZES}
        print(f"measured: {name}", flush=True)
    show_and_write("small_graphs", values)


if __name__ == "__main__":
    main()
