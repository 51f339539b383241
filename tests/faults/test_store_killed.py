"""kill -9 at any moment leaves the old state or the new one, and nothing that the next run does not clear up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_script(name, *arguments, timeout_s=250):
    """Run a script of this folder; returns the objects it prints."""
    command = [sys.executable, "-m", f"tests.faults.{name}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("mode", "states"), [("fresh", {"nothing", "new"}), ("overwrite", {"old", "new"})])
def test_killed_ingest_leaves_the_old_state_or_the_new(tmp_path, mode, states):
    results = run_script("killed_ingests", tmp_path, 12, 0, mode)
    assert len(results) == 12
    assert {result["after_kill"] for result in results} <= states
    assert all(result["same"] and result["sound"] and result["litter"] == [] for result in results)
    assert sum(result["killed"] for result in results) >= 3, "too many finished before they were killed: the test checks little"


@pytest.mark.parametrize(("mode", "states"), [("swap", {"old", "new"}), ("rename", {"old", "nothing", "new"})])
def test_dying_at_every_touch_of_the_file_system(tmp_path, mode, states):
    results = run_script("stepwise_ingest", tmp_path, mode)
    assert len(results) > 20
    assert {result["after_kill"] for result in results} <= states
    assert all(result["same"] and result["litter"] == [] for result in results)
    assert {"old", "new"} <= {result["after_kill"] for result in results}


@pytest.mark.deep
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("mode", ["fresh", "overwrite"])
def test_many_kills(tmp_path, mode):
    results = run_script("killed_ingests", tmp_path, 200, 1, mode, timeout_s=900)
    assert all(result["after_kill"] != "half" and result["same"] and result["sound"] and result["litter"] == [] for result in results)
    stages = {result["stage"] for result in results if result["killed"]}
    assert {"write nodes", "gather ids", "map ids", "place edges"} <= {" ".join(stage.split()[:2]) for stage in stages}


def test_killed_layouts_leave_the_old_copy_or_the_new(tmp_path):
    results = run_script("killed_layouts", tmp_path, 10, 0)
    assert len(results) == 10
    assert {result["state"] for result in results} <= {"old", "new"}
    assert all(result["sound"] and result["same"] and result["litter"] == [] and result["num_files"] == 5 for result in results)
    assert sum(result["killed"] for result in results) >= 3, "too many finished before they were killed: the test checks little"
