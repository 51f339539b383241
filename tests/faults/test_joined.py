"""Processes that share a partition, as torchrun starts them: the same batches, training together, one that is killed, one that leaves."""

import json
import signal
import socket

import pytest
from tests.faults.starting import start
from tests.feed.inputs import homogeneous_data
from tests.partitions import cut

import penstock
from penstock import LinkNeighborLoader, NeighborLoader

NUM_PARTS = 2


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "store"
    penstock.ingest(homogeneous_data(), path)
    return penstock.open(path)


@pytest.fixture(scope="module")
def parts(store, tmp_path_factory):
    return cut(store, tmp_path_factory.mktemp("parts") / "parts", NUM_PARTS)


def start_all(parts, *whats):
    """Start the processes; of each its standard output and exit code."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(NUM_PARTS)}
    processes = [start("tests.faults.joined", parts, *whats, environment=known | {"RANK": str(rank)}) for rank in range(NUM_PARTS)]
    try:
        return [(process.communicate(timeout=90)[0], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def ended_well(parts):
    """What each of the processes printed, who joined several times, by what they did."""
    whats = "digests", "links", "train", "leave_early"
    ended = start_all(parts, *whats)
    assert [code for _, code in ended] == [0] * NUM_PARTS
    said = [[json.loads(line) for line in output.splitlines() if line.startswith("{")] for output, _ in ended]
    return {what: [lines[number] for lines in said] for number, what in enumerate(whats)}


def test_the_same_batches(store, ended_well):
    whole = NeighborLoader(store, [4, 3], "train", batch_size=16, shuffle=True, seed=5)
    expected = [penstock.digest(batch) for batch in whole]
    for process, one in enumerate(ended_well["digests"]):
        assert one == {"rank": process, "part": process, "digests": expected[process::NUM_PARTS]}


def test_the_same_links(store, ended_well):
    whole = LinkNeighborLoader(store, [4, 3], batch_size=100, shuffle=True, seed=5, neg_sampling="binary", exclude_links="reverse")
    expected = [penstock.digest(batch) for batch in whole]
    assert [one["digests"] for one in ended_well["links"]] == [expected[process::NUM_PARTS] for process in range(NUM_PARTS)]


def test_training_together(ended_well):
    first, second = ended_well["train"]
    assert first == second


def test_one_that_leaves_early_goes_on_giving(ended_well):
    assert [one["batches"] for one in ended_well["leave_early"]] == [1, 1 + 3]


@pytest.mark.parametrize("what", ["be_killed", "be_killed_among_links"])
def test_one_that_is_killed(what, parts):
    (output, code), (_, killed) = start_all(parts, what)
    assert (code, killed) == (0, -signal.SIGKILL)
    error = json.loads(output.splitlines()[-1])["error"]
    assert error.startswith("rank 1 (127.0.0.1:")
    assert "has ended: its part is gone; start all processes again, and resume" in error or "is gone: " in error
