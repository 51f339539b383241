"""Whose cores: BGL's division among stages (3.4), against threads that make whole batches and share all cores with the model.

    OMP_WAIT_POLICY=PASSIVE python -m bench.cores [FOLDER]    (as `penstock train` has it; see "beside other programs" in docs/tuning.md)

The store small is made in FOLDER (default: a temporary one) if it is not there.

Where each stage has cores of its own, the slowest of them is the rate: max{T/c1, a/c2 + d} for c1 that make batches and c2 that train,
found as BGL does, by T and a step's seconds on one core and on all, and by trying every c1 + c2 <= C. Here c1 is threads of the loader and
c2 those of torch, and nothing keeps their sum within C: all pairs are timed, in turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from bench.common import begin, in_turns, spread, write_result
from bench.graphs import small_store
from penstock import NeighborLoader
from penstock.store import Store
from penstock.store.process_memory import usable_cores
from penstock.train import TrainConfig, keep_freed_memory
from penstock.train.data import read_training_data
from penstock.train.learner import Learner

MODELS = {
    "GCN of 8 hidden": dict(model="gcn", num_neighbors=(15, 10, 5), hidden=8),
    "GraphSAGE of 32 hidden": dict(model="sage", num_neighbors=(15, 10, 5), hidden=32),
    "GraphSAGE of 128 hidden": dict(model="sage", num_neighbors=(15, 10, 5), hidden=128),
}
ROUNDS, SECONDS, NUM_STEPS = 5, 3.0, 8


class Training:
    """Batches of a loader that are learnt from, by so many threads each."""

    def __init__(self, store: Store, config: TrainConfig, num_workers: int, num_threads: int) -> None:
        self._num_threads = num_threads
        self._learner = Learner(config, read_training_data(store, config), torch.device("cpu"))
        self.loader = NeighborLoader(
            store, list(config.num_neighbors), "train", batch_size=1024, shuffle=True, drop_last=True, num_workers=num_workers, seed=0
        )

    def __iter__(self) -> Iterator[Any]:
        torch.set_num_threads(self._num_threads)
        for number, batch in enumerate(self.loader):
            self._learner.step(number, batch, 0)
            yield batch


def profile(training: Training, cores: int) -> dict[str, float]:
    """Seconds a batch of each stage: on one thread each stage of the loader, a step as a / cores + d."""
    batches = list(itertools.islice(training.loader, NUM_STEPS))  # each in memory of its own, which costs: not counted
    later, before = iter(training.loader), training.loader.stats().as_dict()
    for _ in itertools.islice(later, 3 * NUM_STEPS):
        if training.loader.stats().num_batches == 2 * NUM_STEPS:  # maps have moved into huge pages, and memory is recycled
            before = training.loader.stats().as_dict()
    after = training.loader.stats().as_dict()
    count = after["num_batches"] - before["num_batches"]
    stages = {name: (seconds - before["stage_s"].get(name, 0.0)) / count for name, seconds in after["stage_s"].items()}
    steps = in_turns(
        {str(count): _Steps(training._learner, batches, count) for count in (1, cores)}, lambda _: 1, rounds=3, seconds=SECONDS
    )
    one, all_of_them = (1 / spread(rates)["median"] for rates in steps.values())
    a = (one - all_of_them) / (1 - 1 / cores)
    return {**stages, "batch": sum(stages.values()), "step on one": one, "step on all": all_of_them, "a": a, "d": one - a}


class _Steps:
    """The same batches, learnt from again and again."""

    def __init__(self, learner: Learner, batches: list[Any], num_threads: int) -> None:
        self._learner, self._batches, self._num_threads = learner, batches, num_threads

    def __iter__(self) -> Iterator[Any]:
        torch.set_num_threads(self._num_threads)
        for number, batch in enumerate(itertools.cycle(self._batches)):
            self._learner.step(number, batch, 0)
            yield batch


def divide(found: dict[str, float], cores: int) -> tuple[float, int, int]:
    """BGL's choice: (seconds a batch, cores that make batches, cores that train)."""
    pairs = [(c1, c2) for c1 in range(1, cores) for c2 in range(1, cores + 1 - c1)]
    return min((max(found["batch"] / c1, found["a"] / c2 + found["d"]), c1, c2) for c1, c2 in pairs)


def main() -> None:
    """Measure and write the result."""
    keep_freed_memory()  # as `penstock train` does
    cores = usable_cores()
    with small_store() as store:
        values = begin("OMP_WAIT_POLICY=PASSIVE python -m bench.cores FOLDER")
        for name, settings in MODELS.items():
            config = TrainConfig(store=str(store.path), **settings)
            found = profile(Training(store, config, 1, 1), cores)
            took, *chosen = divide(found, cores)
            pairs = list(itertools.product(range(1, cores + 1), repeat=2))
            trainings = {f"{c1} + {c2}": Training(store, config, c1, c2) for c1, c2 in pairs}
            rates = in_turns(trainings, lambda batch: batch.batch_size, rounds=ROUNDS, seconds=SECONDS)
            divided, shared = rates["{} + {}".format(*chosen)], rates[f"{cores} + {cores}"]
            values[name] = {
                "seconds_a_batch": {stage: float(f"{seconds:.4g}") for stage, seconds in found.items()},
                "divided": {"cores": chosen, "seeds_per_s_expected": round(1024 / took)},
                "seeds_per_s": {pair: spread(each) for pair, each in rates.items()},
                "shared_over_divided": spread([one / other for one, other in zip(shared, divided, strict=True)]),
            }
            print(f"{name:<24} {values[name]}", flush=True)
    print(write_result("cores", values))


if __name__ == "__main__":
    main()
