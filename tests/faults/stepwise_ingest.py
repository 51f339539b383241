"""Ingest a small graph in children that die at their first, second, third ... touch of the file system; then run again.

Run as a script with a folder and "swap" (two folders change places in one step) or "rename" (a file system that cannot do that).
Prints one JSON object per step, until a child survives.
"""

import json
import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

import numpy as np
from tests.stores import build, homogeneous, litter

from penstock.store import Store, writer

TOUCHES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree", "test.exchange"}


def ingest(path, seed):
    rng = np.random.default_rng(seed)
    source = homogeneous(
        {"src": rng.integers(0, 50, 200), "dst": rng.integers(0, 50, 200)}, 50, splits={"default": {"train": np.arange(5)}}
    )
    return build(source, path, overwrite=True)[0]


def die_at(step):
    """Kill this process at its touch number `step`."""
    touches = count()

    def hook(event, _):
        if event in TOUCHES and next(touches) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main(folder, mode):
    exchange = writer.exchange

    def audited_exchange(one, other):
        sys.audit("test.exchange")
        done = exchange(one, other) if mode == "swap" else False
        sys.audit("test.exchange")
        return done

    writer.exchange = audited_exchange
    old, new = ingest(folder / "old", 1).digest, ingest(folder / "new", 2).digest
    path = folder / "trial" / "store"
    for step in count():
        shutil.rmtree(path.parent, ignore_errors=True)
        shutil.copytree(folder / "old", path)
        pid = os.fork()
        if pid == 0:
            die_at(step)
            ingest(path, 2)
            os._exit(0)
        was_killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        after_kill = Store(path).digest if path.exists() else None
        result = {
            "killed": was_killed,
            "after_kill": {None: "nothing", old: "old", new: "new"}.get(after_kill, "half"),
            "same": ingest(path, 2).digest == new,
            "litter": litter(path.parent, besides=("store",)),
        }
        print(json.dumps(result), flush=True)
        if not was_killed:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
