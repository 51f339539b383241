"""Speed of the cache policies, on one core: nanoseconds per distinct id of a batch, look-up and update together.

    python -m bench.policies

A cache of 10 million rows over 30 million nodes, batches of about 200,000 distinct ids that follow Zipf's law, played until the cache is
full and content has settled; then batches are timed one by one, policies in alternation. Also how fast static caches are simulated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.common import foreign_load, spread, write_result
from penstock.cache import CLOCK, FIFO, LFU, LRU, S3FIFO, SIEVE, Belady, Static, static_hits

NUM_NODES, CAPACITY, BATCH_SIZE = 30_000_000, 10_000_000, 200_000
ZIPF, WINDOW, ROUNDS, WARM_UP = 0.8, 50, 40, 300
"""Exponent; batches that Belady knows in advance; batches timed; batches played before, at least (and until the cache is full)."""


class Batches:
    """Distinct ids, drawn from a Zipf law over a random permutation of the nodes."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes = self._random.permutation(NUM_NODES).astype(np.int32)

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            yield self.draw()

    def draw(self) -> np.ndarray:
        """Return int64[about BATCH_SIZE], distinct, in random order. The law's distribution function is inverted."""
        uniform = self._random.random(BATCH_SIZE * 5 // 4)
        top = float(NUM_NODES) ** (1 - ZIPF)
        ranks = np.minimum(((top - 1) * uniform + 1) ** (1 / (1 - ZIPF)) - 1, NUM_NODES - 1).astype(np.int64)
        return self._random.permutation(self._nodes[np.unique(ranks)].astype(np.int64))


def make(name: str) -> Any:
    """Make a policy by name."""
    if name == "belady":
        return Belady(NUM_NODES, CAPACITY, WINDOW)
    if name == "static":
        policy = Static(NUM_NODES, CAPACITY)
        policy.fill(np.arange(CAPACITY))
        return policy
    return {"fifo": FIFO, "clock": CLOCK, "sieve": SIEVE, "s3-fifo": S3FIFO, "lru": LRU, "lfu": LFU}[name](NUM_NODES, CAPACITY)


def play(policy: Any, ids: np.ndarray, coming: list[np.ndarray]) -> tuple[float, int]:
    """One batch through a policy; returns (seconds, hits). Looking ahead counts, for as many ids."""
    started = time.perf_counter()
    if hasattr(policy, "announce"):
        policy.announce(coming[-1])
    change = policy.access(ids)
    return time.perf_counter() - started, int(np.count_nonzero(change.hit_slots >= 0))


def measure(name: str) -> dict[str, Any]:
    """Warm a policy up and time it. Every policy sees the same batches."""
    policy, batches = make(name), iter(Batches())
    window = [next(batches) for _ in range(WINDOW - 1)]
    if hasattr(policy, "announce"):
        for ids in window:
            policy.announce(ids)
    nanoseconds, hits, asked = [], 0, 0
    for number in range(WARM_UP + ROUNDS):
        window.append(next(batches))
        ids = window.pop(0)
        seconds, hit = play(policy, ids, window)
        if number >= WARM_UP:
            nanoseconds.append(seconds / ids.size * 1e9)
            hits, asked = hits + hit, asked + ids.size
    return {
        "ns_per_id": spread(nanoseconds),
        "hit_rate": round(hits / asked, 4),
        "rows_in_use": int(np.count_nonzero(policy.slots >= 0)),
        "state_gb": round(policy.state_bytes / 1e9, 3),
    }


def measure_simulation() -> dict[str, Any]:
    """Accesses per second of `static_hits`, ten capacities in one pass."""
    source = Batches(1)
    batches, ranking = [source.draw() for _ in range(20)], np.random.default_rng(2).permutation(NUM_NODES)
    capacities = np.linspace(0, NUM_NODES, 10).astype(int)
    rates = []
    for _ in range(7):
        started = time.perf_counter()
        static_hits(ranking[:0], [], capacities, NUM_NODES)
        middle = time.perf_counter()
        _, asked = static_hits(ranking[:0], batches, capacities, NUM_NODES)
        rates.append(asked.sum() / (time.perf_counter() - middle - (middle - started)) / 1e6)
    return {"m_accesses_per_s": spread(rates), "capacities": capacities.size}


def main() -> None:
    """Measure all policies and write the result."""
    values: dict[str, Any] = {
        "command": "python -m bench.policies",
        "num_nodes": NUM_NODES,
        "capacity": CAPACITY,
        "zipf": ZIPF,
        "window": WINDOW,
        "timed_batches": ROUNDS,
        "foreign_load_percent": round(foreign_load(), 1),
        "policies": {},
    }
    for name in ("static", "fifo", "clock", "sieve", "s3-fifo", "lru", "lfu", "belady"):
        values["policies"][name] = measure(name)
        print(f"{name:<8} {values['policies'][name]}", flush=True)
    values["static_simulation"] = measure_simulation()
    print(f"static simulation {values['static_simulation']}", flush=True)
    print(write_result("policies", values))


if __name__ == "__main__":
    main()
