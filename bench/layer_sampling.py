"""What shared draws (layer-neighbour sampling) bring and cost, beside each list drawing for itself: counts, speed, caches, accuracy.

    python -m bench.layer_sampling FOLDER DATA     the store small is made in FOLDER if it is not there; DATA: folder with tolokers.npz, ...
    python -m bench.layer_sampling DATA            real graphs only, batches of 256 seeds: counts, speed

On small, 1,024 seeds a batch: nodes and edges of a batch, and nodes of 16 batches in a row together; seeds a second in turns, two threads,
samples alone, with features in memory, and with features on a disk past the page cache behind a FIFO cache of a tenth; rows of an epoch
that a cache of a tenth misses. Then GraphSAGE on real graphs, several seeds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench.accuracy import INGESTED, RECIPES
from bench.common import begin, in_turns, spread, write_result
from bench.graphs import edges_of, make
from penstock import NeighborLoader, Plan, ingest
from penstock.records import EDGE, NODE
from penstock.store import Store

FANOUTS = [15, 10, 5], [10, 5]
SHARED = {"each list": False, "shared, 1 batch": 1, "shared, 16 batches": 16, "shared, 256 batches": 256}
COUNTED = 48
BATCH_SIZE, ROUNDS, SECONDS = 1024, 5, 3.0
CACHES = {"fifo": Plan(policy="fifo", cache="10%"), "presample": Plan(policy="presample", cache="10%")}
REAL = ("tolokers", "blogcatalog_multilabel", "ego_twitter", "soc_slashdot0902", "ogbn_arxiv_nofeat", "web_cnr2000", "coauth_dblp2010")
GRAPHS, NUM_SEEDS = ("coauthor_cs", "tolokers", "facebook_pages"), 3


def make_loader(source: Any, fanouts: list[int], shared_draws: int, **options: Any) -> NeighborLoader:
    """Batches of training."""
    how = {"batch_size": BATCH_SIZE, "shuffle": True, "drop_last": True, "num_workers": 2, "seed": 0} | options
    return NeighborLoader(source, fanouts, **how, shared_draws=shared_draws)


def count(store: Store, fanouts: list[int], **options: Any) -> dict[str, Any]:
    """What batches hold, in the mean over some."""
    found = {}
    for name, shared_draws in SHARED.items():
        batches = make_loader(store, fanouts, shared_draws, **options).engine.maker.batches
        workspace, nodes, edges = batches.sampler.workspace(), [], []
        for index in range(min(COUNTED, batches.num_batches)):
            sample = batches.draw(0, index, workspace)
            nodes.append(sample.nodes[NODE].copy())
            edges.append(sample.edges[EDGE].positions.size)
        groups = [np.unique(np.concatenate(nodes[first : first + 16])).size for first in range(0, len(nodes), 16)]
        found[name] = {
            "nodes": statistics.mean(ids.size for ids in nodes),
            "edges": statistics.mean(edges),
            "nodes_of_16": statistics.mean(groups),
        }
    return {name: {key: round(value) for key, value in of_name.items()} for name, of_name in found.items()}


def time_loading(store: Store, fanouts: list[int]) -> dict[str, Any]:
    """Seeds a second in turns."""
    seeds, disk = store.split("train"), Plan(features="disk", policy="fifo", cache="10%")
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "samples": (edges_of(store), {"input_nodes": seeds}),
        "features in memory": (store, {"input_nodes": "train"}),
        "features on a disk, fifo": (store, {"input_nodes": "train", "plan": disk}),
    }
    found = {}
    for kind, (source, options) in kinds.items():
        loaders = {name: make_loader(source, fanouts, shared_draws, **options) for name, shared_draws in SHARED.items()}
        rates = in_turns(loaders, lambda batch: batch.batch_size, rounds=ROUNDS, seconds=SECONDS)
        alone = rates["each list"]
        found[kind] = {
            name: {"seeds_per_s": spread(each), "over_each_list": spread([a / b for a, b in zip(each, alone, strict=True)])}
            for name, each in rates.items()
        }
        print(fanouts, kind, {name: each["over_each_list"] for name, each in found[kind].items()}, flush=True)
    return found


def count_misses(store: Store, fanouts: list[int]) -> dict[str, Any]:
    """Rows of the second epoch that caches of a tenth are asked for, and miss."""
    found: dict[str, Any] = {}
    for policy, plan in CACHES.items():
        for name, shared_draws in SHARED.items():
            loader = make_loader(store, fanouts, shared_draws, input_nodes="train", plan=plan)
            seen = []
            for _ in range(2):
                seen.append({key: tier["num_rows"] for key, tier in loader.stats().tiers.items()})
                for _ in loader:
                    pass
            rows = {key: tier["num_rows"] - seen[1][key] for key, tier in loader.stats().tiers.items()}
            asked, hits, num_batches = sum(rows.values()), rows["cache"], len(loader)
            found.setdefault(policy, {})[name] = {
                "rows_a_batch": round(asked / num_batches),
                "missed_a_batch": round((asked - hits) / num_batches),
                "hit_rate": round(hits / asked, 4),
            }
            print(fanouts, policy, name, found[policy][name], flush=True)
    return found


def compare_accuracy(data: Path, folder: Path) -> dict[str, Any]:
    """Test metric in percent at the best epoch by validation, GraphSAGE with the settings of `bench.accuracy`; seed by seed in turns."""
    from penstock.train import TrainConfig, train

    found: dict[str, Any] = {}
    for graph in GRAPHS:
        store, settings = ingest(data / f"{graph}.npz", folder / graph), {**RECIPES[graph][1], "model": "sage"}
        splits, tests = store.split_names(), {name: [] for name in islice(SHARED, 3)}
        for seed in range(NUM_SEEDS):
            for name, of_name in tests.items():
                split = {"split": splits[seed % len(splits)]} if len(splits) > 1 else {}
                how = {"seed": seed, "num_workers": 1, "torch_threads": 1, "shared_draws": int(SHARED[name])}
                config = TrainConfig(store=str(store.path), **settings, **split, **how)
                of_name.append(round(100 * (train(config, folder / f"{graph}-{name}-{seed}").test or 0), 2))
        found[graph] = {
            "settings": settings,
            "test": {name: {"mean": round(statistics.mean(each), 2), "runs": each} for name, each in tests.items()},
        }
        print(graph, found[graph]["test"], flush=True)
    return found


def count_real(data: Path, folder: Path) -> dict[str, Any]:
    """What batches of 256 of all nodes hold, on real graphs, and how fast they are loaded with the features that there are."""
    found = {}
    for graph in REAL:
        store = ingest(data / f"{graph}.npz", folder / graph, **INGESTED.get(graph, {}))
        found[graph] = {",".join(map(str, fanouts)): count(store, fanouts, batch_size=256) for fanouts in FANOUTS}
        loaders = {name: make_loader(store, FANOUTS[0], SHARED[name], batch_size=256) for name in islice(SHARED, 2)}
        alone, shared = in_turns(loaders, lambda batch: batch.batch_size, rounds=ROUNDS, seconds=SECONDS / 3).values()
        found[graph]["loading_over_each_list"] = spread([a / b for a, b in zip(shared, alone, strict=True)])
        print(graph, found[graph], flush=True)
    return found


def main() -> None:
    """Measure and write the result."""
    if len(sys.argv) == 2:
        with tempfile.TemporaryDirectory() as temporary:
            counts = count_real(Path(sys.argv[1]), Path(temporary))
        print(write_result("layer_sampling_real", {"command": "python -m bench.layer_sampling DATA", **counts}))
        return
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    values = begin("python -m bench.layer_sampling FOLDER DATA")
    store = Store.open(make("small", Path(sys.argv[1])))
    for fanouts in FANOUTS:
        name = ",".join(map(str, fanouts))
        values[name] = {
            "of_a_batch": count(store, fanouts, input_nodes="train"),
            "loading": time_loading(store, fanouts),
            "caches": count_misses(store, fanouts),
        }
        print(name, values[name]["of_a_batch"], flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        values["accuracy"] = compare_accuracy(Path(sys.argv[2]), Path(temporary))
    print(write_result("layer_sampling", values))


if __name__ == "__main__":
    main()
