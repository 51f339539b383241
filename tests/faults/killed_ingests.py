"""Ingest again and again, each time in a child that is killed at a random moment; then run again and look at what is there.

Run as a script with a folder, a number of trials, a seed and "fresh" or "overwrite"; prints one JSON object per trial. The parent loads
everything once and forks, so that a trial takes a fraction of a second.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
from tests.stores import ROOMY, build, homogeneous, litter

from penstock.store import Store, check
from penstock.store.build import Limits

SPILLING = Limits(in_memory_bytes=0, bucket_bytes=200_000, piece_bytes=20_000, histogram_cells=64)


def make_source(seed):
    rng = np.random.default_rng(seed)
    num_nodes, num_edges = 10_000, 100_000
    ids = rng.permutation(10 * num_nodes)[:num_nodes]
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    return homogeneous(
        {"src": ids[src], "dst": ids[dst // (1 + dst % 7)], "weight": rng.random(num_edges)},
        node_columns={"id": ids, "x": rng.random((num_nodes, 20)), "y": rng.integers(0, 5, num_nodes)},
        mapped=True,
        splits={"default": {"train": np.arange(100), "val": np.arange(100, 300)}},
        chunk_rows=1 << 11,
    )


def ingest(path, seed, limits, overwrite):
    return build(make_source(seed), path, limits, overwrite=overwrite)[0]


def kill_one(path, seed, limits, overwrite, delay_s):
    """Returns whether the child was still at work when it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            ingest(path, seed, limits, overwrite)
        finally:
            os._exit(0)
    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def main(folder, num_trials, seed, mode):
    dice, overwrite = random.Random(seed), mode == "overwrite"
    old, new = ingest(folder / "old", 1, ROOMY, False).digest, ingest(folder / "new", 2, ROOMY, False).digest
    ingest(folder / "compiled", 2, SPILLING, False)
    durations_s = []
    for limits in (ROOMY, SPILLING):
        start = time.perf_counter()
        ingest(folder / "timed", 2, limits, True)
        durations_s.append(time.perf_counter() - start)
    for trial in range(num_trials):
        path = folder / f"trial-{trial}" / "store"
        path.parent.mkdir()
        limits = (ROOMY, SPILLING)[trial % 2]
        if overwrite:
            ingest(path, 1, ROOMY, False)
        was_killed = kill_one(path, 2, limits, overwrite, dice.random() * durations_s[trial % 2] * 1.1)
        after_kill = Store(path).digest if path.exists() else None
        left = litter(path.parent, besides=("store",))
        store = ingest(path, 2, limits, overwrite=True)
        result = {
            "killed": was_killed,
            "after_kill": {None: "nothing", old: "old", new: "new"}.get(after_kill, "half"),
            "left": left,
            "same": store.digest == new,
            "sound": check(path, deep=True).is_ok,
            "litter": litter(path.parent, besides=("store",)),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
