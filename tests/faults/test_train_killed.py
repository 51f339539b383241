"""Training killed with SIGKILL at random moments and resumed ends with the weights of a run that was never stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.train.stores import make_store


def run(store, folder, *, model, seed, kills, within=0.0, **settings):
    """Train with up to so many kills; returns what the script prints."""
    process = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("killed_training.py")),
            store,
            str(folder),
            model,
            str(seed),
            str(kills),
            str(within),
            json.dumps(settings),
        ],
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def kill_until(store, tmp_path, *, model, kills, **settings):
    """Runs with random kills until there were that many; every one must end like the first, which was left alone and kept nothing."""
    whole = run(store, tmp_path / "whole", model=model, seed=0, kills=0)
    assert whole["killed"] == 0
    within = whole["seconds"]
    if kills > 5:  # the first one may have compiled kernels
        within = run(store, tmp_path / "again", model=model, seed=0, kills=0, **settings)["seconds"]
    killed = after_a_checkpoint = attempt = 0
    while killed < kills or after_a_checkpoint == 0:
        attempt += 1
        stopped = run(
            store, tmp_path / f"run-{attempt}", model=model, seed=attempt, kills=max(kills - killed, 1), within=within, **settings
        )
        assert stopped["digest"] == whole["digest"]
        assert stopped["losses"] == whole["losses"]
        assert not list((tmp_path / f"run-{attempt}").glob(".*.partial"))
        killed += stopped["killed"]
        after_a_checkpoint += stopped["after_a_checkpoint"]
    return killed


def test_killed_and_resumed(tmp_path):
    store = make_store(tmp_path / "store")
    assert kill_until(str(store.path), tmp_path, model="sage", kills=10) >= 10


def test_killed_in_the_middle_of_a_window(tmp_path):
    """13 batches an epoch, 8 of them held ahead: wherever it is killed, samples, reads and rows on their way into the cache are lost."""
    store = make_store(tmp_path / "store")
    assert kill_until(str(store.path), tmp_path, model="sage", kills=3, recipe="ginex", window=8, cache="20%") >= 3


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_many_kills_in_the_middle_of_a_window(num_workers, tmp_path):
    store = make_store(tmp_path / "store")
    settings = dict(recipe="ginex", window=8, cache="20%", num_workers=num_workers)
    assert kill_until(str(store.path), tmp_path, model="sage", kills=30, **settings) >= 30


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "gin"])
def test_fifty_kills(model, tmp_path):
    store = make_store(tmp_path / "store")
    assert kill_until(str(store.path), tmp_path, model=model, kills=50) >= 50
