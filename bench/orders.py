"""Orders of seeds on real graphs: what they do to accuracy, epoch by epoch, and to a cache of features.

    python -m bench.orders DATA [NAME ...] [--seeds 3]        DATA: folder with amazon_computers.npz, ogbn_arxiv_nofeat.npz, ...

Arms: random; proximity; community; proximity with 8 sequences, fewer than its bound allows; and one breadth-first sequence without shifts,
the contrast. Each run is `penstock.train` (GraphSAGE, two layers) on one core, evaluated over full neighbourhoods after every epoch.
Features of more than 256 columns are projected to 128 at random; a graph without features gets random vectors averaged over
neighbourhoods of one to three hops. Graphs with few train nodes are split anew, 60/20/20.
Cache: FIFO over a tenth of the nodes, from the sampled batches of one epoch. Writes `bench/results/orders.json` and `orders.png`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bench.common import RESULTS, write_result

COMMON = dict(model="sage", num_neighbors=(10, 10), hidden=64, lr=0.005, batch_size=256, num_workers=1, torch_threads=1)
GRAPHS: dict[str, tuple[bool, dict[str, Any]]] = {
    "amazon_computers": (True, dict(epochs=12)),
    "facebook_pages": (False, dict(epochs=8)),
    "tolokers": (False, dict(epochs=8, dropout=0.2)),
    "ogbn_arxiv_nofeat": (False, dict(epochs=24, batch_size=1024, num_neighbors=(10, 5))),
    "coauthor_cs": (True, dict(epochs=8)),
    "citation_dblp": (True, dict(epochs=8)),
}
"""name -> (whether to split anew, settings)."""

ARMS = ("random", "proximity", "community", "8 sequences", "one sequence")


def load(path: Path, split_anew: bool) -> Any:
    """Read a graph as PyG data with features and one split."""
    import torch
    from torch_geometric.data import Data

    archive = np.load(path)
    num_nodes, edge_index = int(archive["num_nodes"]), archive["edge_index"].astype(np.int64)
    data = Data(edge_index=torch.from_numpy(edge_index), y=torch.from_numpy(archive["y"].astype(np.int64)))
    data.x = torch.from_numpy(_features(archive, num_nodes, edge_index))
    place = np.random.default_rng(0).permutation(num_nodes) / num_nodes
    anew = {"train": place < 0.6, "val": (place >= 0.6) & (place < 0.8), "test": place >= 0.8}
    for part, chosen in anew.items():
        mask = chosen if split_anew else archive[f"{part}_mask"]
        mask = mask[:, 0] if mask.ndim == 2 else mask
        data[f"{part}_mask"] = torch.from_numpy(mask & (archive["y"] >= 0))
    return data


def _features(archive: Any, num_nodes: int, edge_index: np.ndarray) -> np.ndarray:
    from scipy.sparse import csr_matrix, diags

    random = np.random.default_rng(0)
    if "x" not in archive and "x_indptr" not in archive:
        ones = np.ones(edge_index.shape[1], dtype=np.float32)
        adjacency = csr_matrix((ones, (edge_index[0], edge_index[1])), shape=(num_nodes, num_nodes))
        adjacency = adjacency + adjacency.T
        walk = diags(1 / np.maximum(np.asarray(adjacency.sum(axis=1)).reshape(-1), 1)) @ adjacency
        x, parts = random.standard_normal((num_nodes, 64), dtype=np.float32), []
        for _ in range(3):
            x = walk @ x
            x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
            parts.append(x.astype(np.float32))
        return 8 * np.concatenate(parts, axis=1)
    if "x" in archive:
        x: Any = archive["x"]
    else:
        indices = archive["x_indices"]
        values = archive["x_data"] if "x_data" in archive else np.ones(indices.size, dtype=np.float32)
        x = csr_matrix((values, indices, archive["x_indptr"]), shape=tuple(archive["x_shape"]))
    if x.shape[1] > 256:
        x = np.asarray(x @ random.standard_normal((x.shape[1], 128), dtype=np.float32))
    x = np.asarray(x if isinstance(x, np.ndarray) else x.toarray(), dtype=np.float32)
    return (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-6)


def make_order(arm: str, config: Any, data: Any) -> Any:
    """The order of an arm; what the trainer would make where it has a name for it."""
    from penstock.order import GivenOrder, RandomOrder, proximity_order

    nodes, seed, batch_size = data.parts["train"], config.seed, config.batch_size
    if arm == "random":
        return RandomOrder(nodes.size, seed)
    number = {"8 sequences": 8, "one sequence": 1}.get(arm)
    order = proximity_order(
        data.graph,
        (data.target, nodes),
        data.labels,
        seed=seed,
        batch_size=batch_size,
        num_sequences=number,
        by_community=arm == "community",
    )
    return GivenOrder(nodes.size, sampler=order.sequences.tolist()) if arm == "one sequence" else order


def train_arm(store: Path, folder: Path, arm: str, seed: int, settings: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """One run: the curve, and the order it used."""
    from penstock.train import TrainConfig
    from penstock.train import run as trainer

    orders = []

    def make(plan: Any, config: Any, data: Any) -> Any:
        started = time.perf_counter()
        orders.append((make_order(arm, config, data), data, time.perf_counter() - started))
        return orders[-1][0]

    with mock.patch.object(trainer, "make_order", make):
        result = trainer.train(TrainConfig(store=str(store), seed=seed, **{**COMMON, **settings}), folder)
    curve = [round(100 * record.val, 3) for record in result.history if record.val is not None]
    return {"seed": seed, "test": round(100 * (result.test or 0), 3), "val": curve, "metric": result.metric}, orders[-1]


def measure_order(order: Any, data: Any, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Shuffling error, and what a FIFO cache of a tenth of the nodes makes of one epoch."""
    from penstock.order.shuffling_error import read_classes, shuffling_error
    from penstock.records import NODE
    from penstock.sample import NeighborSampler, Workspace

    nodes, batch_size = data.parts["train"], settings["batch_size"]
    sampler, workspace = NeighborSampler(data.graph, list(settings["num_neighbors"]), seed=0), Workspace(data.graph, disjoint=False)
    num_nodes = data.graph.num_nodes[NODE]
    entered, clock, size, hits, asked = np.full(num_nodes, -(1 << 60)), 0, num_nodes // 10, 0, 0
    for index in range(order.num_batches(batch_size, False)):
        seeds = nodes[order.batch(0, index, batch_size)]
        ids = sampler.sample({NODE: seeds}, epoch=0, batch=index, workspace=workspace).nodes[NODE]
        missing = ids[entered[ids] < clock - size]  # the `size` rows that entered last are there
        entered[missing] = np.arange(clock, clock + missing.size)
        clock, hits, asked = clock + missing.size, hits + ids.size - missing.size, asked + ids.size
    return {
        "num_sequences": getattr(order, "num_sequences", None),
        "shuffling_error": round(shuffling_error(order, read_classes(data.labels[nodes]), batch_size), 4),
        "fifo_hits_10_percent": round(hits / asked, 4),
        "prepare_s": round(seconds, 3),
    }


def measure(name: str, store: Path, num_seeds: int, folder: Path) -> dict[str, Any]:
    """All arms and seeds of one graph."""
    settings, arms = {**COMMON, **GRAPHS[name][1]}, {}
    for arm in ARMS:
        runs = []
        for seed in range(num_seeds):
            run, (order, data, seconds) = train_arm(store, folder / f"{name}-{arm}-{seed}", arm, seed, settings)
            runs.append(run)
        tests = [run["test"] for run in runs]
        arms[arm] = {
            "test": round(statistics.mean(tests), 2),
            "test_stdev": round(statistics.stdev(tests), 2) if num_seeds > 1 else None,
            **measure_order(order, data, settings, seconds),
            "runs": runs,
        }
        print(name, arm, {key: value for key, value in arms[arm].items() if key != "runs"}, flush=True)
    return {"settings": settings, "num_train": int(data.parts["train"].size), "metric": runs[0]["metric"], "arms": arms}


def draw(results: dict[str, Any], path: Path) -> None:
    """Validation metric by epoch: mean of the seeds, and their range as a band."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(4 * len(results), 3.6), squeeze=False)
    for axis, (name, result) in zip(axes[0], results.items(), strict=True):
        for arm, values in result["arms"].items():
            curves = np.array([run["val"] for run in values["runs"]])
            epochs = np.arange(1, curves.shape[1] + 1)
            axis.plot(epochs, curves.mean(axis=0), label=arm, linewidth=1.3)
            axis.fill_between(epochs, curves.min(axis=0), curves.max(axis=0), alpha=0.15)
        axis.set(title=name, xlabel="epoch", ylabel=f"val {result['metric']}, %")
        floor = min(min(run["val"][1:]) for arm in ("random", "proximity") for run in result["arms"][arm]["runs"])
        axis.set_ylim(bottom=floor - 8)
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    import penstock

    path = RESULTS / "orders.json"  # graphs that are not run again keep their results
    results = json.loads(path.read_text())["graphs"] if options.names and path.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.names or GRAPHS:
            store = penstock.ingest(load(options.data / f"{name}.npz", GRAPHS[name][0]), Path(temporary) / name)
            results[name] = measure(name, store.path, options.seeds, Path(temporary))
            write_result("orders", {"command": f"python -m bench.orders DATA --seeds {options.seeds}", "graphs": results})
            draw(results, RESULTS / "orders.png")


if __name__ == "__main__":
    main()
