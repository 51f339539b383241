"""A long training under a bound on memory: memory, threads and file handles stay what they are once every part of an epoch has been met.

    PENSTOCK_SOAK_MINUTES=60 pytest -m soak -s        or: make soak MINUTES=60

Trains within a budget of memory (`--host-memory`, which is the bound) on a store that is larger than what this leaves for it,
evaluations included, and looks at the process every minute (more often in a short run). The bound is a memory cgroup's, where this
machine lets us have one; it is said where not.
"""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

import pytest

from penstock.store import generate

MINUTES = float(os.environ.get("PENSTOCK_SOAK_MINUTES", "60"))
LIMIT_BYTES = int(os.environ.get("PENSTOCK_SOAK_LIMIT_MIB", "900")) << 20
GRAPH = dict(num_nodes=800_000, num_edges=8_000_000, feature_dim=256, num_classes=16, train=0.1, val=0.02, test=0.02)
COMMAND = [
    "--host-memory", str(LIMIT_BYTES), "--num-neighbors", "5,5", "--hidden", "32", "--epochs", "1000000", "--checkpoint-every-s", "10",
]  # fmt: skip
SLACK_BYTES = 24 << 20
"""What a later look may find more than an earlier one: allocators and threads that meet each other in another way."""


@dataclass(frozen=True)
class Look:
    """One look at a process; `own_bytes`: all but pages of files."""

    seconds: float
    own_bytes: int
    resident_bytes: int
    threads: int
    handles: int
    maps: int
    group_bytes: int

    HEADS = ("s", "own MiB", "resident MiB", "threads", "handles", "maps", "group MiB")

    def __str__(self):
        shown = [value >> 20 if head.endswith("MiB") else round(value) for head, value in zip(self.HEADS, astuple(self), strict=True)]
        return "".join(f"{value:>14}" for value in shown)


class Group:
    """A memory cgroup, version 1 or 2."""

    def __init__(self, folder, limit, usage):
        self.folder, self._limit, self._usage = folder, limit, usage

    def limit(self, num_bytes):
        (self.folder / self._limit).write_text(str(num_bytes))

    def usage(self):
        return int((self.folder / self._usage).read_text())

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def memory_group():
    """A group with a limit, or None where we may not make one."""
    root, name = Path("/sys/fs/cgroup"), f"penstock-soak-{os.getpid()}"
    for parent, limit, usage in (
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        (root, "memory.max", "memory.current"),
    ):
        group = Group(parent / name, limit, usage)
        try:
            group.folder.mkdir()
        except OSError:
            continue
        try:
            try:
                group.limit(LIMIT_BYTES)
            except OSError:
                continue
            yield group
            return
        finally:
            deadline = time.monotonic() + 10
            while group.folder.exists() and time.monotonic() < deadline:
                try:
                    group.folder.rmdir()
                except OSError:  # the kernel is not done with the process yet
                    time.sleep(0.1)
    yield None


def look_at(pid, seconds, group):
    status = Path(f"/proc/{pid}/status").read_text()
    kib = {name: int(value) for name, value in re.findall(r"^(RssAnon|RssShmem|VmRSS|Threads):\s+(\d+)", status, flags=re.MULTILINE)}
    maps = Path(f"/proc/{pid}/maps").read_text().count("\n")
    handles = len(os.listdir(f"/proc/{pid}/fd"))
    return Look(
        seconds, (kib["RssAnon"] + kib["RssShmem"]) << 10, kib["VmRSS"] << 10, kib["Threads"], handles, maps, group.usage() if group else 0
    )


def watch(process, group, progress):
    """Look until the time is over or the process ends; time in which this machine stood still with all that runs here does not count."""
    every_s, started, looks = min(60.0, MINUTES * 60 / 30), time.monotonic(), []
    print(f"\n{'':4}" + "".join(f"{head:>14}" for head in Look.HEADS) + "   last line of progress")
    for _ in range(round(MINUTES * 60 / every_s)):
        time.sleep(every_s)
        if process.poll() is not None:
            break
        looks.append(look_at(process.pid, time.monotonic() - started, group))
        lines = progress.read_text().splitlines()
        print(f"{len(looks):>4}{looks[-1]}   {lines[-1][:60] if lines else ''}", flush=True)
    return looks


def most(looks, name):
    return max(getattr(look, name) for look in looks)


def middle(looks, name):
    return median(getattr(look, name) for look in looks)


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 3600)
def test_memory_threads_and_handles_stay_flat(tmp_path):
    store, progress = generate("communities", tmp_path / "store", **GRAPH).path, tmp_path / "progress"
    with memory_group() as group, open(progress, "w") as stream:
        print(f"\n{LIMIT_BYTES >> 20} MiB for the process and its page cache" if group else "\nno memory cgroup here: without a bound")
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "train", str(store), "--out", str(tmp_path / "run"), *COMMAND],
            stdout=subprocess.DEVNULL, stderr=stream, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            preexec_fn=group.enter if group else None,
        )  # fmt: skip
        try:
            looks = watch(process, group, progress)
            assert process.poll() is None, f"it ended by itself, {process.returncode}: {progress.read_text()[-2000:]}"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=300) == 130, progress.read_text()[-2000:]
        finally:
            process.kill()
            process.wait()
    said = progress.read_text()
    assert said.count("\nepoch") >= 2, f"too short to meet every part of an epoch twice: {said[-2000:]}"
    assert "--resume goes on from there" in said or "interrupted" in said
    third = len(looks) // 3
    before, after = looks[: 2 * third], looks[2 * third :]  # evaluations are short: any third alone may have seen none
    assert most(after, "own_bytes") <= 1.03 * most(before, "own_bytes") + SLACK_BYTES
    for name in ("threads", "handles", "maps"):  # not the most: a look may fall on a checkpoint that is just being written
        assert middle(after, name) <= middle(before, name) + (8 if name == "maps" else 0), name
    if group:
        assert most(looks, "group_bytes") <= LIMIT_BYTES
