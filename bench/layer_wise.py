"""What layer-wise sampling brings and costs, beside neighbour sampling: nodes of a batch, speed, accuracy.

    python -m bench.layer_wise FOLDER DATA     the store small is made in FOLDER if it is not there; DATA: folder with tolokers.npz, ...

On small, 1,024 seeds a batch: nodes and edges of a batch; seeds a second in turns, two threads, samples alone and with features in memory.
Then GraphSAGE and GCN of two layers on real graphs, three seeds: nodes of a batch, and the test metric. 2,400 nodes a layer, and fanouts
2, 2 beside them, are PaGraph's.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.accuracy import RECIPES
from bench.common import begin, in_turns, spread, write_result
from bench.graphs import edges_of, make
from penstock import NeighborLoader, ingest
from penstock.records import EDGE, NODE
from penstock.store import Store

Sampled = tuple[list[int], bool]
"""Fanouts, and whether they count the nodes of a layer."""

ON_SMALL: dict[str, Sampled] = {
    "fanouts 15, 10, 5": ([15, 10, 5], False),
    "fanouts 10, 5": ([10, 5], False),
    "fanouts 2, 2": ([2, 2], False),
    "3 layers of 2,400": ([2400] * 3, True),
    "3 layers of 20,000": ([20_000] * 3, True),
    "2 layers of 2,400": ([2400] * 2, True),
    "2 layers of 512": ([512] * 2, True),
}
ON_REAL: dict[str, Sampled] = {
    "fanouts 10, 10": ([10, 10], False),
    "fanouts 2, 2": ([2, 2], False),
    "2 layers of 2,400": ([2400] * 2, True),
    "2 layers of 512": ([512] * 2, True),
}
COUNTED, BATCH_SIZE, ROUNDS, SECONDS = 24, 1024, 3, 2.0
GRAPHS, NUM_SEEDS = {"tolokers": ("sage", "gcn"), "facebook_pages": ("sage",)}, 3


def make_loader(source: Any, sampled: Sampled, **options: Any) -> NeighborLoader:
    """Batches of training."""
    how = {"batch_size": BATCH_SIZE, "shuffle": True, "num_workers": 2, "seed": 0} | options
    return NeighborLoader(source, sampled[0], **how, layer_wise=sampled[1])


def count(loader: NeighborLoader) -> dict[str, int]:
    """Nodes and edges of a batch, in the mean over some."""
    batches = loader.engine.maker.batches
    workspace, nodes, edges = batches.sampler.workspace(), [], []
    for index in range(min(COUNTED, batches.num_batches)):
        sample = batches.draw(0, index, workspace)
        nodes.append(sample.nodes[NODE].size)
        edges.append(sample.edges[EDGE].positions.size)
    return {"nodes": round(statistics.mean(nodes)), "edges": round(statistics.mean(edges))}


def time_loading(store: Store) -> dict[str, dict[str, Any]]:
    """Seeds a second in turns."""
    kinds = {"samples": (edges_of(store), store.split("train")), "features in memory": (store, "train")}
    found: dict[str, dict[str, Any]] = {}
    for kind, (source, seeds) in kinds.items():
        loaders = {name: make_loader(source, sampled, input_nodes=seeds) for name, sampled in ON_SMALL.items()}
        for name, each in in_turns(loaders, lambda batch: batch.batch_size, rounds=ROUNDS, seconds=SECONDS).items():
            found.setdefault(name, {})[kind] = spread(each)
    return found


def compare_accuracy(data: Path, folder: Path) -> dict[str, Any]:
    """Test metric in percent at the best epoch by validation, otherwise with the settings of `bench.accuracy`; seed by seed in turns."""
    from penstock.train import TrainConfig, train

    found: dict[str, Any] = {}
    for graph, models in GRAPHS.items():
        store, settings = ingest(data / f"{graph}.npz", folder / graph), RECIPES[graph][1]
        splits, tests = store.split_names(), {model: {name: [] for name in ON_REAL} for model in models}
        split = {"split": splits[0]} if len(splits) > 1 else {}
        of_batch = {"input_nodes": "train", "batch_size": settings.get("batch_size", BATCH_SIZE), **split}
        for seed in range(NUM_SEEDS):
            split = {"split": splits[seed % len(splits)]} if len(splits) > 1 else {}
            for model, of_model in tests.items():
                for name, of_name in of_model.items():
                    how = {"model": model, "num_neighbors": tuple(ON_REAL[name][0]), "layer_wise": ON_REAL[name][1], "seed": seed}
                    config = TrainConfig(**{**settings, **split, **how}, store=str(store.path), num_workers=1, torch_threads=1)
                    of_name.append(round(100 * (train(config, folder / f"{graph}-{model}-{name}-{seed}").test or 0), 2))
        found[graph] = {
            "settings": settings,
            "of_a_batch": {name: count(make_loader(store, sampled, **of_batch)) for name, sampled in ON_REAL.items()},
            **{
                model: {name: {"mean": round(statistics.mean(each), 2), "runs": each} for name, each in of_model.items()}
                for model, of_model in tests.items()
            },
        }
        print(graph, found[graph], flush=True)
    return found


def main() -> None:
    """Measure and write the result."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    values = begin("python -m bench.layer_wise FOLDER DATA")
    store = Store.open(make("small", Path(sys.argv[1])))
    rates = time_loading(store)
    values["small"] = {
        name: {**count(make_loader(store, sampled, input_nodes="train")), "seeds_per_s": rates[name]} for name, sampled in ON_SMALL.items()
    }
    print(values["small"], flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        values["accuracy"] = compare_accuracy(Path(sys.argv[2]), Path(temporary))
    print(write_result("layer_wise", values))


if __name__ == "__main__":
    main()
