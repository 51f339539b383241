"""A run of `bench.beyond_worker` in a control group of its own, with an empty page cache."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from bench.common import ROOT
from bench.memory_group import drop_from_page_cache, run_limited

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
    drop_from_page_cache(store)
    command = [sys.executable, "-m", "bench.beyond_worker", str(store), json.dumps({**settings, "limit_bytes": limit_bytes})]
    environment = {**os.environ, **MALLOC, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    ended = run_limited(command, int(SET_UP * limit_bytes), timeout_s=timeout_s, env=environment)
    if ended.exit_code != 0:
        said = ended.err.strip().splitlines()[-1:]  # not the places in the files of this machine
        return {"error": f"exit code {ended.exit_code}: {' '.join(said)}", "limit_bytes": limit_bytes, **ended.usage}
    return {**json.loads(ended.out.strip().splitlines()[-1]), "limit_bytes": limit_bytes, **ended.usage}
