"""What features aggregated once bring: loading and training with a hop less, from memory and from a disk, and what a model scores.

    python -m bench.aggregate FOLDER [DATA]     the store small is made in FOLDER if it is not there; DATA: the real graphs, for the scores

Speed: fanouts 15, 10, 5 over the store, 15, 10 over the aggregated one, batches of 1,024, two threads; GraphSAGE of three layers of 128 in
both cases; from a disk past the page cache, the hottest tenth of the rows in memory. Scores: the settings of `bench.accuracy`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bench.accuracy import RECIPES
from bench.common import begin, in_turns, show_and_write, spread
from bench.graphs import make
from penstock import NeighborLoader, Plan, aggregate
from penstock.store import Store, ingest
from penstock.train import TrainConfig, keep_freed_memory, train
from penstock.train.aggregate import MODEL_OF
from penstock.train.data import read_training_data
from penstock.train.learner import Learner

FANOUTS, ROUNDS = (15, 10, 5), 3
GRAPHS = ("amazon_computers", "facebook_pages", "tolokers")
SEEDS = 3
PLANS = {"memory": None, "disk": Plan(features="disk", policy="presample", cache="10%")}


class Training:
    """A loader whose batches are learnt from.

    Args:
        store: a store. fanouts: of its batches.
    """

    def __init__(self, store: Store, fanouts: tuple[int, ...]) -> None:
        config = TrainConfig(store=str(store.path), model="sage", num_neighbors=fanouts)
        self._learner = Learner(config, read_training_data(store, config), torch.device("cpu"))
        self._loader = make_loader(store, fanouts, None)

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self._loader):
            self._learner.step(number, batch, 0)
            yield batch


def make_loader(store: Store, fanouts: tuple[int, ...], plan: Plan | None) -> NeighborLoader:
    """Batches of training."""
    return NeighborLoader(store, list(fanouts), "train", batch_size=1024, shuffle=True, drop_last=True, num_workers=2, seed=0, plan=plan)


def rates(contenders: dict[str, Any]) -> dict[str, Any]:
    """Seeds a second in turns, and how many times as fast the second is."""
    measured = in_turns(contenders, lambda batch: batch.batch_size, rounds=5)
    before, after = measured.values()
    return {**{name: spread(each) for name, each in measured.items()}, "ratio": spread([b / a for a, b in zip(before, after, strict=True)])}


def speed(folder: Path) -> dict[str, Any]:
    """All of it on the store small."""
    store = Store.open(make("small", folder))
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        aggregate(store, folder / "small-mean", overwrite=True, num_workers=2)
        seconds.append(time.perf_counter() - started)
    values: dict[str, Any] = {"aggregate_s": spread(seconds)}
    cases = {"sampled": (store, FANOUTS), "aggregated": (Store.open(folder / "small-mean"), FANOUTS[:-1])}
    for name, (each, fanouts) in cases.items():
        loader = make_loader(each, fanouts, None)
        for _ in zip(range(20), loader, strict=False):
            pass
        stats = loader.stats()
        values[f"{name}, a batch"] = {
            "nodes": stats.num_nodes // stats.num_batches, "edges": stats.num_edges // stats.num_batches,
            "feature_bytes": stats.num_nodes // stats.num_batches * each.node_fields()["x"].row_bytes,
        }  # fmt: skip
    for place, plan in PLANS.items():
        values[f"loading from {place}, seeds_per_s"] = rates({name: make_loader(*case, plan) for name, case in cases.items()})
    values["training, seeds_per_s"] = rates({name: Training(*case) for name, case in cases.items()})
    return values


def scores(data: Path, name: str, folder: Path) -> dict[str, Any]:
    """Test metric of the same model, sampled and aggregated: mean over seeds, in percent, and each."""
    _, settings = RECIPES[name]
    store = ingest(data / f"{name}.npz", folder / name)
    by = {model: way for way, model in MODEL_OF.items()}[settings["model"]]
    aggregate(store, folder / f"{name}-{by}", by=by)
    splits = store.split_names()
    tests: dict[str, list[float]] = {"sampled": [], "aggregated": []}
    for seed in range(SEEDS):
        split = {"split": splits[seed % len(splits)]} if len(splits) > 1 else {}
        for kind, path in (("sampled", store.path), ("aggregated", folder / f"{name}-{by}")):
            fanouts = settings["num_neighbors"][: None if kind == "sampled" else -1]
            config = TrainConfig(
                store=str(path), seed=seed, num_workers=1, torch_threads=1, **{**settings, **split, "num_neighbors": fanouts}
            )
            result = train(config, folder / f"{name}-{kind}-{seed}")
            tests[kind].append(round(100 * (result.test or 0.0), 2))
            print(f"{name:<18} seed {seed} {kind:<10} {tests[kind][-1]}", flush=True)
    return {kind: {"mean": round(sum(each) / SEEDS, 2), "runs": each} for kind, each in tests.items()}


def main() -> None:
    """Measure and write the result."""
    keep_freed_memory()  # as `penstock train` does
    with tempfile.TemporaryDirectory() as temporary:
        values = begin("python -m bench.aggregate FOLDER DATA")
        values |= speed(Path(sys.argv[1]))
        if len(sys.argv) > 2:
            values["scores"] = {name: scores(Path(sys.argv[2]), name, Path(temporary)) for name in GRAPHS}
    show_and_write("aggregate", values)


if __name__ == "__main__":
    main()
