"""Processes in control groups that limit their memory, page cache included. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """How a process ended: its exit code, what it printed, how long it took, and what `MemoryGroup.usage` says (nothing without one)."""

    exit_code: int
    out: str
    err: str
    seconds: float
    usage: dict[str, int]


def run_limited(command: list[str], limit_bytes: int | None, *, timeout_s: float | None = None, env: dict[str, str] | None = None) -> Ended:
    """Run a command within so many bytes (None: any number), for so long at most."""
    group = None if limit_bytes is None else MemoryGroup(limit_bytes)
    try:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=group.enter if group else None, env=env
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\nstopped after {timeout_s:.0f} s"
        return Ended(process.returncode, out, err, time.perf_counter() - started, group.usage() if group else {})
    finally:
        if group:
            group.remove()


class MemoryGroup:
    """A control group that limits memory, page cache included; of either version."""

    def __init__(self, limit_bytes: int) -> None:
        root = Path("/sys/fs/cgroup")
        self._is_first = (root / "memory").is_dir()
        self._folder = root / ("memory" if self._is_first else "") / f"penstock-bench-{os.getpid()}"
        self._folder.mkdir()
        if self._is_first:
            (self._folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        else:
            (self._folder / "memory.max").write_text(str(limit_bytes))
            (self._folder / "memory.swap.max").write_text("0")

    def enter(self) -> None:
        """Put this process into the group."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def usage(self) -> dict[str, int]:
        """Return the peak, page cache included, and how many processes were killed for memory."""
        peak = self._folder / ("memory.max_usage_in_bytes" if self._is_first else "memory.peak")
        events = (self._folder / ("memory.oom_control" if self._is_first else "memory.events")).read_text().split()
        return {"group_peak_bytes": int(peak.read_text()), "killed": int(events[events.index("oom_kill") + 1])}

    def remove(self) -> None:
        """Remove the group; its last process may take a moment to be gone."""
        for _ in range(50):
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)


def drop_from_page_cache(path: Path) -> None:
    """Make the next reader of a file, or of the arrays in a folder, go to the disk."""
    for each in path.rglob("*.npy") if path.is_dir() else [path]:
        with open(each, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
