"""A run of `bench.beyond_worker` in a control group of its own, with an empty page cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.common import ROOT
from bench.ingest_bounded import MemoryGroup, drop_from_page_cache

TIMEOUT_S = 400.0
SET_UP = 3.0
MALLOC = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": str(4 << 20)}
"""What is freed goes back to the system, so that many threads and large arrays leave no holes that count against the limit."""


def run_in_group(store: Path, settings: dict[str, Any], limit_bytes: int, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Run once.

    Args:
        store: its files are dropped from the page cache before.
        settings: of `bench.beyond_worker.Settings`.
        limit_bytes: of the group from the first batch on, page cache included. Before, where nodes are ranked, it has `SET_UP` times that.
    Returns:
        what the worker printed, with peak and kills of the group; or {"error": ...}.
    """
    for file in store.rglob("*.npy"):
        drop_from_page_cache(file)
    group = MemoryGroup(int(SET_UP * limit_bytes))
    command = [sys.executable, "-m", "bench.beyond_worker", str(store), json.dumps({**settings, "limit_bytes": limit_bytes})]
    environment = {**os.environ, **MALLOC, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=group.enter, env=environment, cwd=ROOT
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\nstopped after {timeout_s:.0f} s"
        usage = group.usage()
    finally:
        group.remove()
    if process.returncode != 0:
        said = err.strip().splitlines()[-1:]  # not the places in the files of this machine
        return {"error": f"exit code {process.returncode}: {' '.join(said)}", "limit_bytes": limit_bytes, **usage}
    return {**json.loads(out.strip().splitlines()[-1]), "limit_bytes": limit_bytes, **usage}
