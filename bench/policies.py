"""Speed of the cache policies, on one core: nanoseconds per distinct id of a batch, look-up and update together.

    python -m bench.policies

A cache of 10 million rows over 30 million nodes; batches of about 200,000 distinct ids that follow Zipf's law; each policy is played until
its cache is full, then batches are timed one by one. Processor time counts, since other processes may use the machine, and time on the
clock is given beside it. They also take their share of the memory's speed: so next to every tenth batch the same ids are looked up in an
array as large as the directory by a loop that does nothing else, `ns_per_read`. That is one prefetched read at random, the unit of all
these costs. (Next to every batch, that array would take the directory's place in the processor's last cache where that is large.)
On a shared machine the same code takes half as long again in some minutes, so every policy is measured in several processes, in turn with
the others; the figures are of all their batches, and `runs` has the median of each process.
Also how fast static caches are simulated, and what LRU's batches take while its log is squeezed, which hits alone bring about.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.common import foreign_load, spread, write_result
from penstock.cache import CLOCK, FIFO, LFU, LRU, S3FIFO, SIEVE, Belady, Static, static_hits
from penstock.kernels.cache_lookup.cpu import lookup

NUM_NODES, CAPACITY, DRAWS = 30_000_000, 10_000_000, 250_000
"""Of the nodes drawn, repetitions within a batch are dropped."""

ZIPF, WINDOW, WARM_UP, ROUNDS, RUNS, READ_EVERY = 0.8, 50, 160, 30, 5, 10
"""Exponent; batches that Belady knows in advance; played before the clock starts; timed; processes; batches to a timed read."""

TARGETS = {"fifo": 15, "clock": 15, "sieve": 15, "s3-fifo": 30, "lru": 30, "belady": 40}


def draw_batches(count: int, seed: int) -> list[np.ndarray]:
    """Return int32[about 200,000] each: distinct ids in random order. The law's distribution function is inverted."""
    random = np.random.default_rng(seed)
    nodes, top = random.permutation(NUM_NODES).astype(np.int32), float(NUM_NODES) ** (1 - ZIPF)
    batches = []
    for _ in range(count):
        ranks = ((top - 1) * random.random(DRAWS) + 1) ** (1 / (1 - ZIPF)) - 1
        ranks = np.unique(np.minimum(ranks, NUM_NODES - 1).astype(np.int64))
        batches.append(random.permutation(nodes[ranks]))
    return batches


def make(name: str) -> Any:
    """Make a policy by name."""
    if name == "belady":
        return Belady(NUM_NODES, CAPACITY, WINDOW)
    kinds = {"static": Static, "fifo": FIFO, "clock": CLOCK, "sieve": SIEVE, "s3-fifo": S3FIFO, "lru": LRU, "lfu": LFU}
    policy = kinds[name](NUM_NODES, CAPACITY)
    if name == "static":
        policy.fill(np.arange(CAPACITY))
    return policy


class Clocks:
    """Nanoseconds per id of what runs inside: of the processor, and on the clock."""

    def __init__(self) -> None:
        self.processor: list[float] = []
        self.wall: list[float] = []

    def time(self, num_ids: int, call: Any, *arguments: Any) -> Any:
        """Call and return what comes back."""
        wall, processor = time.perf_counter(), time.thread_time()
        result = call(*arguments)
        self.processor.append((time.thread_time() - processor) / num_ids * 1e9)
        self.wall.append((time.perf_counter() - wall) / num_ids * 1e9)
        return result


@dataclass
class Run:
    """What one process found of a policy: nanoseconds an id and a read, and what came of it."""

    clocks: Clocks
    reads: Clocks
    hit_rate: float
    rows_in_use: int
    state_bytes: int


def play(name: str, batches: list[np.ndarray]) -> Run:
    """Warm a policy up and time it, on one core. Announcing a batch counts with the access of another."""
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    policy, played = make(name), len(batches) - WINDOW
    if hasattr(policy, "announce"):
        for ids in batches[: WINDOW - 1]:
            policy.announce(ids)

    def step(ids: np.ndarray, coming: np.ndarray) -> Any:
        if hasattr(policy, "announce"):
            policy.announce(coming)
        return policy.access(ids)

    table, found = np.full(NUM_NODES, -1, np.int32), np.zeros(DRAWS, np.int32)
    lookup(batches[0].astype(np.int64), table, found)
    clocks, reads, hits, asked = Clocks(), Clocks(), 0, 0
    for number in range(played):
        ids, coming = batches[number].astype(np.int64), batches[number + WINDOW - 1].astype(np.int64)
        if number < played - ROUNDS:
            step(ids, coming)
            continue
        change = clocks.time(ids.size, step, ids, coming)
        if number % READ_EVERY == 0:
            reads.time(ids.size, lookup, ids, table, found)
        hits, asked = hits + np.count_nonzero(change.hit_slots >= 0), asked + ids.size
    return Run(clocks, reads, float(hits / asked), int(np.count_nonzero(policy.slots >= 0)), policy.state_bytes)


def summarize(name: str, runs: list[Run]) -> dict[str, Any]:
    """Put the runs of a policy together."""
    times, reads = ([ns for run in runs for ns in getattr(run, key).processor] for key in ("clocks", "reads"))
    return {
        "ns_per_id": spread(times),
        "target_ns": TARGETS.get(name),
        "runs": [round(float(np.median(run.clocks.processor)), 2) for run in runs],
        "ns_per_read": spread(reads),
        "reads_per_id": round(float(np.median(times) / np.median(reads)), 3),
        "ns_per_id_on_the_clock": spread([ns for run in runs for ns in run.clocks.wall]),
        "hit_rate": round(runs[0].hit_rate, 4),
        "rows_in_use": runs[0].rows_in_use,
        "state_gb": round(runs[0].state_bytes / 1e9, 3),
    }


def measure_simulation(batches: list[np.ndarray]) -> dict[str, Any]:
    """Million accesses per second of `static_hits`, ten capacities in one pass, less the time it takes for no batch."""
    batches, ranking = [ids.astype(np.int64) for ids in batches[:50]], np.arange(NUM_NODES)
    capacities, rates = np.linspace(0, NUM_NODES, 10).astype(int), []
    static_hits(ranking[:0], [], capacities, NUM_NODES)
    for _ in range(7):
        none, all_of_them = Clocks(), Clocks()
        none.time(1, static_hits, ranking[:0], [], capacities, NUM_NODES)
        _, asked = all_of_them.time(1, static_hits, ranking[:0], batches, capacities, NUM_NODES)
        rates.append(int(asked.sum()) / (all_of_them.processor[0] - none.processor[0]) * 1e3)
    return {"m_accesses_per_s": spread(rates), "capacities": int(capacities.size)}


def measure_squeezing() -> dict[str, Any]:
    """Milliseconds of LRU's batches where all ids hit, six times all rows: the log is squeezed several times meanwhile."""
    policy, nodes, usual, squeezing = LRU(CAPACITY, CAPACITY), np.random.default_rng(0).permutation(CAPACITY), Clocks(), Clocks()
    policy.fill(nodes)
    for _ in range(6):
        for ids in np.array_split(nodes, max(CAPACITY // DRAWS, 1)):
            is_squeezed = policy.is_squeezed
            (squeezing if is_squeezed or policy.is_squeezed else usual).time(DRAWS, policy.access, ids)
    to_ms = DRAWS / 1e6
    return {
        "batches": len(usual.wall),
        "ms": spread([each * to_ms for each in usual.processor]),
        "squeezing_batches": len(squeezing.wall),
        "squeezing_ms": spread([each * to_ms for each in squeezing.processor]),
    }


def main() -> None:
    """Measure all policies and write the result."""
    values: dict[str, Any] = {
        "command": "python -m bench.policies",
        "num_nodes": NUM_NODES,
        "capacity": CAPACITY,
        "zipf": ZIPF,
        "window": WINDOW,
        "timed_batches": RUNS * ROUNDS,
        "foreign_load_percent": round(foreign_load(), 1),
        "policies": {},
    }
    batches = draw_batches(WARM_UP + ROUNDS + WINDOW, 0)
    values["ids_per_batch"] = round(float(np.mean([ids.size for ids in batches])))
    names = ("static", "fifo", "clock", "sieve", "s3-fifo", "lru", "lfu", "belady")
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for _ in range(RUNS):
        for name in names:
            with multiprocessing.get_context("fork").Pool(1) as process:
                runs[name].append(process.apply(play, (name, batches)))
    for name in names:
        values["policies"][name] = summarize(name, runs[name])
        print(f"{name:<8} {values['policies'][name]}", flush=True)
    values["static_simulation"] = measure_simulation(batches)
    print(f"static simulation {values['static_simulation']}", flush=True)
    values["lru_squeezing"] = measure_squeezing()
    print(f"lru, all hits {values['lru_squeezing']}", flush=True)
    values["foreign_load_percent_after"] = round(foreign_load(), 1)
    print(write_result("policies", values))


if __name__ == "__main__":
    main()
