"""Short epochs, one after the other, by loaders that stop between them and by loaders that do not.

    python -m bench.non_stop [FOLDER]    the store small is made in FOLDER (default: a temporary one) if it is not there

Epochs of 8 and of 32 batches of 512 seeds, fanouts 15, 10, 5, two threads; seeds a second over turns of some epochs, alternating. Where
batches come from memory also with a user who waits as long as a batch takes, as for a device; from the disk below Belady's policy, whose
window of 16 batches an epoch that ends drains, and below a spool of 16 batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.common import begin, spread, write_result
from bench.graphs import small_store
from penstock import NeighborLoader
from penstock.plan import Plan
from penstock.store import Store

PLANS = {
    "memory": None,
    "Belady over the disk": Plan(features="disk", policy="belady", cache="10%", window=16),
    "a spool on the disk": Plan(features="disk", policy="presample", cache="10%", presample_batches=64, spool="2GiB", window=16),
}
BATCHES = (8, 32)
BATCH_SIZE = 512
TURNS, TURN_S = 7, 3.0


def run_epochs(loader: NeighborLoader, seconds: float, use: Callable[[Any], object]) -> float:
    """Whole epochs for some seconds. Returns seeds a second."""
    started, seeds = time.perf_counter(), 0
    while (spent := time.perf_counter() - started) < seconds:
        for batch in loader:
            use(batch)
            seeds += batch.batch_size
            del batch
    return seeds / spent


def compare(store: Store, plan: Plan | None, num_batches: int, wait_s: float = 0.0) -> dict[str, Any]:
    """Seeds a second of both, and their ratio, turn by turn."""
    nodes = store.split("train")[: num_batches * BATCH_SIZE]
    how = dict(num_neighbors=[15, 10, 5], input_nodes=nodes, batch_size=BATCH_SIZE, shuffle=True, num_workers=2, seed=0, plan=plan)
    loaders = {"stops": NeighborLoader(store, **how), "non-stop": NeighborLoader(store, **how, non_stop=True)}
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(TURNS + 1):  # the first one warms up
        for name in sorted(loaders, reverse=bool(turn % 2)):
            rate = run_epochs(loaders[name], TURN_S, lambda batch: time.sleep(wait_s))
            rates[name] += [rate] if turn else []
    ratios = [ours / theirs for ours, theirs in zip(rates["non-stop"], rates["stops"], strict=True)]
    return {"seeds_per_s": {name: spread(each) for name, each in rates.items()}, "ratio": spread(ratios)}


def main() -> None:
    """Measure and write the result."""
    with small_store() as store:
        values = begin("python -m bench.non_stop FOLDER")
        for num_batches in BATCHES:
            for name, plan in PLANS.items():
                label = f"{name}, {num_batches} batches an epoch"
                found = values[label] = compare(store, plan, num_batches)
                print(f"{label:<50} {found}", flush=True)
            batch_s = BATCH_SIZE / values[f"memory, {num_batches} batches an epoch"]["seeds_per_s"]["stops"]["median"]
            label = f"memory, and a user who waits {1e3 * batch_s:.0f} ms a batch, {num_batches} batches an epoch"
            found = values[label] = compare(store, None, num_batches, batch_s)
            print(f"{label:<50} {found}", flush=True)
    print(write_result("non_stop", values))


if __name__ == "__main__":
    main()
