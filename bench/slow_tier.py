"""Training from a slow tier, recipe by recipe: 1 GB/s and 100 us per request, one row per request, 32 under way.

    python -m bench.slow_tier FOLDER [--cache 20%] [--rounds 3]

Makes FOLDER/small (`bench.graphs`: 1M nodes, 16M edges, 128 features, a tenth of the nodes to train on) if it is not there. Every run
trains a 2-layer GraphSAGE for some epochs through `penstock.train`; recipes alternate; the first epoch of a run fills the cache and is not
counted. Weights of all runs in the same order must be the same, bit for bit, or it exits with 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.common import foreign_load, spread, write_result
from bench.graphs import make
from penstock.train import TrainConfig, train

SETTINGS: dict[str, Any] = dict(num_neighbors=(10, 5), hidden=32, epochs=4, eval_every=10**6, torch_threads=1, num_workers=2)
SLOW = "1GB/s,100us"
RECIPES: dict[str, dict[str, Any]] = {
    "no cache": dict(recipe="mmap"),
    "pagraph": dict(recipe="pagraph"),
    "gnnlab": dict(recipe="gnnlab"),
    "bgl": dict(recipe="bgl"),
    "fifo, random order": dict(policy="fifo"),
    "s3-fifo": dict(policy="s3-fifo"),
    "belady": dict(policy="belady"),
}


def run(store: Path, cache: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Train once; returns what the epochs after the first took."""
    plan = {**settings, "slow": SLOW, **({} if settings.get("recipe") == "mmap" else {"cache": cache})}
    with tempfile.TemporaryDirectory() as out:
        result = train(TrainConfig(store=str(store), **SETTINGS, **plan), out)
    counted = result.history[1:]
    batches = sum(record.num_batches for record in counted)
    missed = sum(counts["num_rows"] for record in counted for tier, counts in record.tiers.items() if tier.endswith("mmap"))
    asked = sum(counts["num_rows"] for record in counted for counts in record.tiers.values())
    decide_s = sum(counts["decide_s"] for record in counted for counts in record.tiers.values())
    stages = {name: 1e3 * sum(record.stage_s.get(name, 0.0) for record in counted) / batches for name in ("sample", "gather", "assemble")}
    return {
        "epoch_s": statistics.median(record.train_s for record in counted),
        "order": result.description["plan"]["order"],
        "hit_rate": counted[-1].hit_rate or 0.0,
        "missed_rows_per_epoch": missed / len(counted),
        "step_ms": 1e3 * sum(record.step_s for record in counted) / batches,
        "wait_ms": 1e3 * sum(record.wait_s for record in counted) / batches,
        "decide_ms": 1e3 * decide_s / batches,
        "decide_ns_per_row": 1e9 * decide_s / max(asked, 1),
        **{f"{name}_ms": value for name, value in stages.items()},
        "cache_mib": result.description["cache_bytes"] / 2**20,
        "weights": result.weights_digest,
    }


def compare(store: Path, cache: str, rounds: int) -> dict[str, Any]:
    """Alternate the recipes; returns medians and ratios."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in RECIPES}
    for number in range(rounds):
        for name, settings in RECIPES.items():
            runs[name].append(run(store, cache, settings))
            last = runs[name][-1]
            print(
                f"round {number}  {name:<20} {last['epoch_s']:7.2f} s/epoch  hits {100 * last['hit_rate']:5.1f} %  "
                f"step {last['step_ms']:.0f} ms  wait {last['wait_ms']:.0f} ms per batch",
                flush=True,
            )
    table = {}
    for name, each in runs.items():
        table[name] = {key: spread([one[key] for one in each]) for key in each[0] if key not in ("weights", "order")}
        table[name] |= {"order": each[0]["order"], "weights": sorted({one["weights"] for one in each})}
    slowest = table["no cache"]["epoch_s"]["median"]
    faster = {name: round(slowest / row["epoch_s"]["median"], 2) for name, row in table.items()}
    return {"recipes": table, "faster_than_no_cache": faster}


def main() -> int:
    """Measure and write the result; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", default="20%")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    store = make("small", options.folder)
    values: dict[str, Any] = {"command": f"python -m bench.slow_tier FOLDER --cache {options.cache} --rounds {options.rounds}"}
    values |= {"slow": SLOW, "cache": options.cache, "foreign_load_percent": round(foreign_load(), 1)}
    values |= compare(store, options.cache, options.rounds)
    for name, ratio in values["faster_than_no_cache"].items():
        print(f"{ratio:6.2f} x  {name}")
    print(write_result("slow_tier", values))
    by_order: dict[str, set[str]] = {}
    for row in values["recipes"].values():
        by_order.setdefault(row["order"], set()).update(row["weights"])
    return int(any(len(weights) > 1 for weights in by_order.values()))


if __name__ == "__main__":
    sys.exit(main())
