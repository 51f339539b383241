"""Accuracy on real graphs: several seeds, sampled neighbourhoods against full ones, the same models, in one harness.

    python -m bench.accuracy DATA [NAME ...] [--seeds 5]        DATA: folder with cora.npz, citeseer.npz, ...

Each run is `penstock.train` on one core. Seed i also takes split i where there are several. What counts is the test metric at the best
epoch by validation, averaged over seeds. Writes `bench/results/accuracy-NAME.json`; exits with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.common import write_result

BAG_OF_WORDS = dict(hidden=64, lr=0.01, weight_decay=5e-4, normalize="rows", eval_every=5)
RECIPES: dict[str, tuple[float, dict[str, Any]]] = {
    "cora": (79.5, dict(BAG_OF_WORDS, model="gcn", num_neighbors=(10, 10), input_dropout=0.5, epochs=100)),
    "citeseer": (67.5, dict(BAG_OF_WORDS, model="gcn", num_neighbors=(10, 10), input_dropout=0.5, epochs=60)),
    "amazon_computers": (
        81.0,
        dict(model="gcn", num_neighbors=(25, 25), hidden=64, lr=0.003, weight_decay=5e-4, epochs=150, eval_every=10),
    ),
    "coauthor_cs": (90.0, dict(BAG_OF_WORDS, model="sage", num_neighbors=(10, 10), epochs=40)),
    "facebook_pages": (
        90.0,
        dict(model="gcn", num_neighbors=(10, 10), hidden=64, batch_size=4096, lr=0.01, epochs=8, eval_every=4),
    ),
    "tolokers": (79.0, dict(model="sage", num_neighbors=(15, 15), hidden=128, lr=0.01, dropout=0.2, epochs=60, eval_every=5)),
    "hetero_dblp": (
        86.0,
        dict(model="rgcn", num_neighbors=(15, 15), hidden=64, lr=0.005, epochs=30, metric="micro-f1", split="20", eval_every=3),
    ),
    "ogbn_arxiv_nofeat": (62.6, dict(model="gcn", num_neighbors=(15, 10), lr=0.02, epochs=4)),
}
"""name -> (least test metric in percent, settings); the rest is `penstock.train`'s defaults."""
INGESTED: dict[str, dict[str, Any]] = {"ogbn_arxiv_nofeat": {"undirected": True}}
"""name -> how it is read, where not as it stands."""


def measure(name: str, store: Path, num_seeds: int, folder: Path) -> dict[str, Any]:
    """Train on samples and on full neighbourhoods, seed by seed."""
    import penstock
    from penstock.train import TrainConfig, train

    target, settings = RECIPES[name]
    splits = [] if "split" in settings else penstock.open(store).split_names()
    runs: dict[str, list[dict[str, Any]]] = {"sampled": [], "full": []}
    for seed in range(num_seeds):
        for kind, done in runs.items():
            chosen = {**settings, **({"split": splits[seed % len(splits)]} if len(splits) > 1 else {})}
            if kind == "full":
                chosen["num_neighbors"] = (-1,) * len(settings["num_neighbors"])
            config = TrainConfig(store=str(store), seed=seed, num_workers=1, torch_threads=1, **chosen)
            started = time.perf_counter()
            result = train(config, folder / f"{name}-{kind}-{seed}")
            seconds = round(time.perf_counter() - started, 1)
            done.append({"seed": seed, "test": result.test, "val": result.val, "epoch": result.best_epoch, "seconds": seconds})
            print(f"{name:<18} seed {seed} {kind:<8} {result.metric} {100 * (result.test or 0):.2f}  {seconds:.0f} s", flush=True)
    summary = {kind: _summarize(done) for kind, done in runs.items()}
    sampled, full = summary["sampled"]["mean"], summary["full"]["mean"]
    is_reached = sampled >= target and sampled >= full - 1
    values = {
        "command": f"python -m bench.accuracy DATA {name} --seeds {num_seeds}",
        "metric": result.metric,
        "target": target,
        "settings": settings,
        **summary,
        "reached": is_reached,
    }
    print(f"{name:<18} sampled {sampled:.2f}, full {full:.2f}, at least {target}: {'reached' if is_reached else 'MISSED'}")
    write_result(f"accuracy-{name}", values)
    return values


def _summarize(runs: list[dict[str, Any]]) -> dict[str, Any]:
    tests = [100 * run["test"] for run in runs]
    return {"mean": round(statistics.mean(tests), 2), "stdev": round(statistics.pstdev(tests), 2), "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    import penstock

    reached = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.names or RECIPES:
            store = penstock.ingest(options.data / f"{name}.npz", Path(temporary) / name, **INGESTED.get(name, {}))
            reached.append(measure(name, store.path, options.seeds, Path(temporary))["reached"])
    sys.exit(not all(reached))


if __name__ == "__main__":
    main()
