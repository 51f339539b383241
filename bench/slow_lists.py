"""Training from a slow topology: a device that serves requests of one block of 4 KiB in 100 us each, at 1 GB/s; `indptr` in memory.

    python -m bench.slow_lists FOLDER [--part lists|budget] [--rounds 1] [--budget 100MiB]

lists: only the neighbour lists are slow, 10 requests under way (100k a second); which of them a cache keeps, how many, and how they
are found.
budget: lists and features are on one device, 32 requests under way, and one budget is divided between them: all to one of them, by fixed
shares (Ali+PG, as tuned in Ginex 5.1), by what a byte saves (DUCATI).

Takes FOLDER/small (`bench.graphs`: 1M nodes, 16M edges, 128 features, a tenth of the nodes to train on), or makes it. Every run trains a
2-layer GraphSAGE through `penstock.train`; settings alternate; the last epoch of a run counts: the second of `lists`, the only one of
`budget`, before which an epoch is trained from memory. Weights of all runs must be the same, bit for bit, or it exits with 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.common import foreign_load, spread, write_result
from bench.graphs import make
from penstock.store.budget import parse_bytes
from penstock.train import TrainConfig, train

SETTINGS: dict[str, Any] = dict(num_neighbors=(10, 5), hidden=32, eval_every=10**6, torch_threads=1, num_workers=2)
SLOW = "1GB/s,100us,4KiB blocks,depth 10"
SLOW_FOR_BOTH = "1GB/s,100us,4KiB blocks,depth 32"
LISTS: dict[str, dict[str, Any]] = {
    "in memory": dict(topology="memory"),
    "slow, no cache": dict(slow_topology=SLOW),
    **{
        f"{policy}, {share}": dict(slow_topology=SLOW, neighbor_policy=policy, neighbor_cache=share)
        for share in ("10%", "30%")
        for policy in ("random", "degree", "ratio", "presample")
    },
    "presample, 30%, prefix": dict(slow_topology=SLOW, neighbor_policy="presample", neighbor_cache="30%", neighbor_layout="prefix"),
}


def divided(budget: str) -> dict[str, dict[str, Any]]:
    """The ways to divide a budget."""
    slow, total = dict(slow=SLOW_FOR_BOTH, slow_topology="same"), parse_bytes(budget)
    shares = {
        f"ali+pg, {share} % for lists": dict(
            recipe="ali+pg", cache=str(total * (100 - share) // 100), neighbor_cache=str(total * share // 100)
        )
        for share in (25, 50, 75)
    }
    return {
        "no cache": slow,
        "rows only (presample)": dict(**slow, policy="presample", cache=budget),
        "lists only (presample)": dict(**slow, neighbor_policy="presample", neighbor_cache=budget),
        **{name: {**slow, **each} for name, each in shares.items()},
        "ducati": dict(**slow, recipe="ducati", cache=budget),
    }


def run(store: Path, plan: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Train once; returns what the last epoch took."""
    with tempfile.TemporaryDirectory() as out:
        result = train(TrainConfig(store=str(store), epochs=epochs, **SETTINGS, **plan), out)
    record, description = result.history[-1], result.description
    missed = {
        kind: sum(counts[name] for tier, counts in getattr(record, kind).items() if "slow" in tier)
        for kind, name in (("tiers", "num_rows"), ("lists", "num_lists"))
    }
    return {
        "epoch_s": record.train_s,
        "list_hit_rate": record.list_hit_rate or 0.0,
        "row_hit_rate": record.hit_rate or 0.0,
        "missed_lists_per_epoch": missed["lists"],
        "missed_rows_per_epoch": missed["tiers"],
        **{f"{name}_ms": 1e3 * record.stage_s.get(name, 0.0) / max(record.num_batches, 1) for name in ("sample", "gather")},
        "list_mib": description["list_bytes"] / 2**20,
        "row_mib": (description["cache_bytes"] - description["list_bytes"]) / 2**20,
        "weights": result.weights_digest,
    }


def compare(store: Path, plans: dict[str, dict[str, Any]], rounds: int, epochs: int, slowest: str) -> dict[str, Any]:
    """Alternate the plans; returns medians and ratios to the slowest."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in plans}
    for number in range(rounds):
        for name, plan in plans.items():
            last = run(store, plan, epochs)
            runs[name].append(last)
            print(
                f"round {number}  {name:<24} {last['epoch_s']:7.2f} s/epoch  hits: lists {100 * last['list_hit_rate']:5.1f} %, "
                f"rows {100 * last['row_hit_rate']:5.1f} %  kept: {last['list_mib']:.1f} + {last['row_mib']:.1f} MiB",
                flush=True,
            )
    table = {}
    for name, each in runs.items():
        table[name] = {key: spread([one[key] for one in each]) for key in each[0] if key != "weights"}
        table[name]["weights"] = sorted({one["weights"] for one in each})
    whole = table[slowest]["epoch_s"]["median"]
    return {"plans": table, "faster_by": {name: round(whole / row["epoch_s"]["median"], 2) for name, row in table.items()}}


def main() -> int:
    """Measure and write the result; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=("lists", "budget"), default="lists")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--budget", default="100MiB")
    options = parser.parse_args()
    store = make("small", options.folder)
    is_lists = options.part == "lists"
    plans, slowest = (LISTS, "slow, no cache") if is_lists else (divided(options.budget), "no cache")
    more = "" if is_lists else f" --budget {options.budget}"
    values: dict[str, Any] = {"command": f"python -m bench.slow_lists FOLDER --part {options.part} --rounds {options.rounds}{more}"}
    values |= {"slow": SLOW if is_lists else SLOW_FOR_BOTH, "foreign_load_percent": round(foreign_load(), 1)} | (
        {} if is_lists else {"budget": options.budget}
    )
    if not is_lists:
        run(store, dict(topology="memory"), 1)
    values |= compare(store, plans, options.rounds, 2 if is_lists else 1, slowest)
    for name, ratio in values["faster_by"].items():
        print(f"{ratio:6.2f} x  {name}")
    print(write_result(f"slow_{options.part}", values))
    return int(len({digest for row in values["plans"].values() for digest in row["weights"]}) > 1)


if __name__ == "__main__":
    sys.exit(main())
