"""Pack a store again and again, each time in a child that is killed at a random moment; then look at what is there, and pack again.

Run as a script with a folder, a number of trials and a seed; prints one JSON object per trial. The parent loads everything once and forks.
Half the trials begin with a packed copy; copies are small enough to kill anywhere, and written through the disk in every other trial.
"""

import json
import random
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from tests.endings import is_killed_at
from tests.stores import build, homogeneous, litter

from penstock.records import NODE
from penstock.store import Store, check
from penstock.store.change import StoreChange
from penstock.store.packing import pack, packed_of, rows_of

NUM_NODES = 10_000


def pack_by(path, seed, work_bytes):
    order = np.random.default_rng(seed).permutation(NUM_NODES)
    with StoreChange(path) as change:
        pack(change, NODE, rows_of(order, NUM_NODES), ["x", "y"], made={"seed": seed}, work_bytes=work_bytes)


def state_of(path):
    """The seed of the packed copy, 0 for none, or "half" where anything is not as it should be."""
    store = Store(path)
    packed = packed_of(store, NODE, ["x", "y"])
    if packed is None:
        return 0
    for name, copy in zip(("x", "y"), packed.arrays, strict=True):
        if not np.array_equal(copy[packed.rows], store.node_field(name, NODE)):
            return "half"
    return packed.made["seed"]


def main(folder, num_trials, seed):
    dice, values = random.Random(seed), np.random.default_rng(seed)
    columns = {"x": values.random((NUM_NODES, 32), np.float32), "y": values.integers(0, 9, NUM_NODES)}
    path = folder / "store"
    source = homogeneous({"src": np.arange(NUM_NODES), "dst": np.arange(NUM_NODES)[::-1]}, node_columns=columns, chunk_rows=1 << 12)
    digest = build(source, path)[0].digest
    durations_s = {}
    for work_bytes in (1 << 30, 1 << 19):
        ends = [time.perf_counter()]
        for _ in range(5):
            pack_by(path, 1 + len(ends) % 2, work_bytes)
            ends.append(time.perf_counter())
        durations_s[work_bytes] = min(np.diff(ends))  # on a busy machine some take long
    for trial in range(num_trials):
        before, work_bytes = state_of(path), list(durations_s)[trial % 2]
        delay_s = 1.3 * dice.random() * durations_s[work_bytes]
        was_killed = is_killed_at(partial(pack_by, path, 100 + trial, work_bytes), delay_s)
        after = state_of(path)
        sound = check(path, deep=True).is_ok
        pack_by(path, trial, 1 << 30)
        result = {
            "killed": was_killed,
            "state": {before: "old", 100 + trial: "new"}.get(after, "half"),
            "sound": sound and check(path, deep=True).is_ok,
            "same": Store(path).digest == digest,
            "litter": litter(folder, besides=("store",)) + litter(path, besides=("manifest.json", "nodes", "edges")),
            "num_files": len(list((path / "nodes" / "node").iterdir())),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
