"""Kinds of subgraphs: the sampled edges, these with their reverses, and all edges among the nodes; loaders in turns, PyG's too.

    python -m bench.subgraph_types [FOLDER]      the store small is made in FOLDER (default: a temporary one) if it is not there

Complete batches with features, fanouts 15, 10, 5, 1,024 seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bench.common import begin, in_turns, show_and_write, spread
from bench.graphs import edges_of, small_store
from bench.ways import make_loaders, over_pyg
from penstock.store import Store

FANOUTS, BATCH_SIZE = [15, 10, 5], 1024
KINDS = {kind: {"subgraph_type": kind} for kind in ("directional", "bidirectional")}
OURS = {"induced": {"subgraph_type": "induced"}}
"""Of which PyG wants torch-sparse."""


def measure(store: Store, **how: Any) -> dict[str, Any]:
    """Seeds a second, and how many times as many as PyG's; `how`: see `in_turns`."""
    data = edges_of(store)
    data.x = torch.from_numpy(np.array(store.node_field("x")))
    seeds = torch.from_numpy(np.array(store.split("train")))
    found, _ = make_loaders("NeighborLoader", data, FANOUTS, KINDS, OURS, input_nodes=seeds, batch_size=BATCH_SIZE, shuffle=True)
    rates = in_turns(found, lambda batch: batch.batch_size, **how)
    return {"seeds_per_s": {name: spread(each) for name, each in rates.items()}, "over_pyg": over_pyg(rates)}


def main() -> None:
    """Measure and write the result."""
    with small_store() as store:
        values = {**begin("python -m bench.subgraph_types FOLDER"), **measure(store)}
    show_and_write("subgraph_types", values)


if __name__ == "__main__":
    main()
