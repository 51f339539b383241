"""Trying one plan: the process that `study_plans` starts for each plan, so that none is affected by memory that another left.

In: JSON as an argument; standard input stays open as long as the parent waits for the answer. Out: JSON on standard output: the
measurements, or `failed`, the message of an error with its argument marks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from itertools import chain
from typing import Any

import torch

from penstock.errors import PenstockError
from penstock.feed import LinkNeighborLoader, NeighborLoader
from penstock.feed.stats import share_of_caches
from penstock.store import Store
from penstock.store.process_memory import resident_bytes_outside
from penstock.study.plans import make_loader, plan_of, settings_of

LEAST_BATCHES = 3
HOPELESS = 5
"""A plan is given up if another is this many times as fast, after a warm-up of this many times the seconds."""


def measure(loader: NeighborLoader | LinkNeighborLoader, seconds: float, device: str | None, to_beat: float = 0.0) -> dict[str, Any]:
    """Load batches for some time to warm up, then measure for as long, epoch after epoch. If the first batches are hopelessly slower than
    `to_beat`, in seeds per second, they are the measurement."""
    batches = chain.from_iterable(iter(lambda: loader, None))
    first = 0.0
    for is_warm in (False, True):
        before, read_before, started = loader.stats(), _read_bytes(), time.perf_counter()
        for count, _ in enumerate(batches, 1):
            took = time.perf_counter() - started
            first = took if count == 1 else first  # a loader that looks ahead is late with the first batch only
            is_slow = HOPELESS * (count - 1) * loader.batch_size < to_beat * (took - first)
            is_hopeless = is_slow and not is_warm and count >= LEAST_BATCHES and took >= HOPELESS * seconds
            is_enough = count >= LEAST_BATCHES + loader.num_workers and (is_warm or loader.is_settled)
            if is_hopeless or (is_enough and took >= seconds):
                break
        if device is not None and torch.cuda.is_available():  # not in Triton's interpreter
            torch.cuda.synchronize(device)
        took = time.perf_counter() - started
        if is_hopeless:
            break
    after, read_after = loader.stats(), _read_bytes()
    count = after.num_batches - before.num_batches
    earlier = {name: tier["num_rows"] for name, tier in before.tiers.items()}
    rows = {name: {"num_rows": tier["num_rows"] - earlier.get(name, 0)} for name, tier in after.tiers.items()}
    return {
        "seeds_per_s": (after.num_seeds - before.num_seeds) / took,
        "batch_ms": 1e3 * took / count,
        "batches": count,
        "nodes_per_batch": (after.num_nodes - before.num_nodes) / count,
        "edges_per_batch": (after.num_edges - before.num_edges) / count,
        "stage_ms": {name: 1e3 * (value - before.stage_s.get(name, 0.0)) / count for name, value in after.stage_s.items()},
        "hit_rate": share_of_caches(rows, "num_rows"),
        "read_bytes_per_batch": None if read_before is None or read_after is None else (read_after - read_before) / count,
        "memory_bytes": resident_bytes_outside(".npy"),
        "device_bytes": after.device_bytes,
        "budget": after.memory,
        "is_hopeless": is_hopeless,
    }


def _read_bytes() -> int | None:
    """Return the bytes that this process has read from disks; None if the system does not provide it."""
    try:
        with open("/proc/self/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))
    except (OSError, StopIteration):
        return None


def _end_with_who_waits() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def main() -> None:
    """Try the plan, and print the answer."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that output of libraries does not mix with the answer
    asked = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_who_waits, daemon=True).start()
    try:
        settings, started = settings_of(asked["settings"]), time.perf_counter()
        loader = make_loader(Store(asked["store"]), settings, plan_of(asked["changes"]), asked["num_workers"], asked["epoch"])
        ready_s = time.perf_counter() - started
        answer = {"ready_s": ready_s, **measure(loader, settings.seconds, settings.device, asked["to_beat"])}
    except PenstockError as error:
        answer = {"failed": error.args[0] if len(error.args) == 1 else str(error)}
    print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
