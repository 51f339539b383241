"""Ingest again and again, each time in a child that is killed at a random moment; then run again and look at what is there.

Run as a script with a folder, a number of trials, a seed and "fresh" or "overwrite"; prints one JSON object per trial. The parent loads
everything once and forks, so that a trial takes a fraction of a second.

The trials take turns: all in memory; edges through the disk; and edges through the disk whose nodes no table lists, so that their ids are
gathered, sorted in runs on disk, and looked up in several parts.
"""

import json
import mmap
import random
import shutil
import sys
import time
from pathlib import Path

import numpy as np
from tests.endings import is_killed_at
from tests.stores import ROOMY, budget, build, homogeneous, litter

from penstock.records import EDGE
from penstock.store import Quiet, Store, check
from penstock.store.ingestion.build import Limits

SPILLING = Limits(in_memory_bytes=0, bucket_bytes=200_000, piece_bytes=20_000, histogram_cells=64)
VARIANTS = {"memory": ROOMY, "spill": SPILLING, "gather": SPILLING}


class Stages(Quiet):
    """Writes the stage at work where the parent still sees it when the child is dead."""

    def __init__(self):
        self._shared = mmap.mmap(-1, 64)

    def begin(self, stage, total, unit):
        self._shared[:] = stage.encode().ljust(64)

    def end(self):
        self._shared[:] = b"between stages".ljust(64)

    def last(self):
        return self._shared[:].decode().strip(" \0")


def make_source(variant, seed):
    rng = np.random.default_rng(seed)
    num_nodes, num_edges = 10_000, 100_000
    ids = rng.permutation(10 * num_nodes)[:num_nodes]
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    nodes = {"id": ids, "x": rng.random((num_nodes, 20)), "y": rng.integers(0, 5, num_nodes)}
    return homogeneous(
        {"src": ids[src], "dst": ids[dst // (1 + dst % 7)], "weight": rng.random(num_edges)},
        node_columns=None if variant == "gather" else nodes,
        node_chunk_rows=1 << 7,
        mapped=True,
        splits={"default": {"train": np.arange(100), "val": np.arange(100, 300)}},
        chunk_rows=1 << 11,
    )


def ingest(path, variant, seed, overwrite, progress=None):
    the_budget = budget(work_bytes=1 << 17) if variant == "gather" else None
    source = make_source(variant, seed)
    store, paths = build(source, path, VARIANTS[variant], overwrite=overwrite, the_budget=the_budget, progress=progress)
    assert paths[EDGE] == {"memory" if variant == "memory" else "spill"}
    return store


def kill_one(path, variant, overwrite, delay_s):
    """Returns (whether the child was still at work when it was killed, at what)."""
    stages = Stages()
    return is_killed_at(lambda: ingest(path, variant, 2, overwrite, stages), delay_s), stages.last()


def main(folder, num_trials, seed, mode):
    dice, overwrite = random.Random(seed), mode == "overwrite"
    old, new, durations_s = {}, {}, {}
    for variant in VARIANTS:
        old[variant] = ingest(folder / f"old-{variant}", variant, 1, False).digest
        new[variant] = ingest(folder / f"new-{variant}", variant, 2, False).digest
        start = time.perf_counter()
        ingest(folder / f"new-{variant}", variant, 2, True)
        durations_s[variant] = time.perf_counter() - start
    for trial in range(num_trials):
        path = folder / f"trial-{trial}" / "store"
        path.parent.mkdir()
        variant = list(VARIANTS)[trial % len(VARIANTS)]
        if overwrite:
            shutil.copytree(folder / f"old-{variant}", path)
        was_killed, stage = kill_one(path, variant, overwrite, dice.random() * durations_s[variant] * 1.1)
        after_kill = Store(path).digest if path.exists() else None
        left = litter(path.parent, besides=("store",))
        store = ingest(path, variant, 2, overwrite=True)
        result = {
            "killed": was_killed,
            "variant": variant,
            "stage": stage,
            "after_kill": {None: "nothing", old[variant]: "old", new[variant]: "new"}.get(after_kill, "half"),
            "left": left,
            "same": store.digest == new[variant],
            "sound": check(path, deep=True).is_ok,
            "litter": litter(path.parent, besides=("store",)),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
