"""Training killed with SIGKILL at random moments and resumed ends with the weights of a run that was never stopped."""

import functools
import json

import pytest
from tests.faults.starting import start
from tests.train.stores import make_store


def run(store, folder, *, model, seed, kills, within=0.0, **settings):
    """Train with up to so many kills; returns what the script prints."""
    process = start("tests.faults.killed_training", store, folder, model, seed, kills, within, json.dumps(settings))
    try:
        output, errors = process.communicate(timeout=1800)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(make_store(tmp_path_factory.mktemp("killed") / "store").path)


@pytest.fixture(scope="module")
def undisturbed(store, tmp_path_factory):
    """Model -> what a run of it says that was left alone and kept nothing in tiers; run once."""
    folder = tmp_path_factory.mktemp("whole")

    @functools.cache
    def of(model):
        return run(store, folder / model, model=model, seed=0, kills=0)

    return of


def kill_until(store, tmp_path, whole, *, model, kills, **settings):
    """Runs with random kills until there were that many; every one must end like the one that was left alone."""
    assert whole["killed"] == 0
    killed = after_a_checkpoint = attempt = 0
    while killed < kills or after_a_checkpoint == 0:
        attempt += 1
        options = dict(model=model, seed=attempt, kills=max(kills - killed, 1), within=whole["seconds"], **settings)
        stopped = run(store, tmp_path / f"run-{attempt}", **options)
        assert stopped["digest"] == whole["digest"]
        assert stopped["losses"] == whole["losses"]
        assert not list((tmp_path / f"run-{attempt}").glob(".*.partial"))
        killed += stopped["killed"]
        after_a_checkpoint += stopped["after_a_checkpoint"]
    return killed


def test_killed_and_resumed(store, undisturbed, tmp_path):
    assert kill_until(store, tmp_path, undisturbed("sage"), model="sage", kills=4) >= 4


def test_killed_in_the_middle_of_a_window(store, undisturbed, tmp_path):
    """13 batches an epoch, 8 of them held ahead: wherever it is killed, samples, reads and rows on their way into the cache are lost."""
    settings = dict(recipe="ginex", window=8, cache="20%")
    assert kill_until(store, tmp_path, undisturbed("sage"), model="sage", kills=3, **settings) >= 3


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_many_kills_in_the_middle_of_a_window(num_workers, store, undisturbed, tmp_path):
    settings = dict(recipe="ginex", window=8, cache="20%", num_workers=num_workers)
    assert kill_until(store, tmp_path, undisturbed("sage"), model="sage", kills=30, **settings) >= 30


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "gin"])
def test_fifty_kills(model, store, undisturbed, tmp_path):
    assert kill_until(store, tmp_path, undisturbed(model), model=model, kills=50) >= 50
