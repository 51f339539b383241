"""A store that is deleted, moved, replaced, written to or truncated under a training: a clear line, and what was trained is not lost."""

import faulthandler
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
import torch
from tests.faults import disturbed
from tests.refusals import assert_in_table, refused, said
from tests.train.stores import make_data, make_store

from penstock.errors import CorruptStoreError, StateError, StoreError, TierError
from penstock.kernels import bus_error
from penstock.store import Store, ingest
from penstock.store.change import StoreChange
from penstock.store.packing import pack
from penstock.train import TrainConfig, train

SETTINGS = dict(num_neighbors=(4, 3), batch_size=32, hidden=8, epochs=3, num_workers=2, lr=0.01, torch_threads=1)
RECIPES = {"mapped": {}, "ginex": dict(recipe="ginex", window=3)}


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A store that stays, and the digest of the weights that a training on it ends with."""
    folder = tmp_path_factory.mktemp("origin")
    path = make_store(folder / "store").path
    return path, train(TrainConfig(store=str(path), **SETTINGS), folder / "run").weights_digest


@pytest.fixture
def store(origin, tmp_path):
    """A copy of it, to be maltreated."""
    return shutil.copytree(origin[0], tmp_path / "store")


def run(store, folder, deed=lambda: None, **settings):
    return disturbed.run(store, folder, deed, **{**SETTINGS, **settings})


def replace(store):
    """Another graph takes its place."""
    ingest(make_data(num_nodes=300), store, overwrite=True, memory="4GiB")


def put_back(origin, store):
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(origin, store)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (shutil.rmtree, "was deleted or moved"),
        (lambda store: store.rename(store.with_name("elsewhere")), "was deleted or moved"),
        (replace, "was replaced by something else"),
        (lambda store: (store.rename(store.with_name("elsewhere")), store.mkdir()), "was replaced by something else"),
        (lambda store: (store / "nodes" / "node" / "x.npy").unlink(), r"x.npy was deleted"),
        (lambda store: os.replace(shutil.copy(store / "nodes" / "node" / "x.npy", store / "x"), store / "nodes" / "node" / "x.npy"),
         r"x.npy was replaced"),
    ],
    ids=["deleted", "moved", "replaced by a store", "replaced by a folder", "a file deleted", "a file replaced"],
)  # fmt: skip
def test_a_store_that_is_gone(deed, said, recipe, origin, store, tmp_path):
    message = refused(StoreError, run, store, tmp_path / "run", lambda: deed(store), **RECIPES[recipe])
    assert re.search(rf"{said} .*while it was in use: saved at epoch 2, batch 7; put the store back, and resume=True", message)
    if deed is replace:
        message = refused(StateError, run, store, tmp_path / "run", **RECIPES[recipe])
        assert re.search(r"was trained on a store of digest \w+, .*/store has \w+: put that one back, or take a new out", message)
    put_back(origin[0], store)
    assert run(store, tmp_path / "run", **RECIPES[recipe]).weights_digest == origin[1]


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_equal_store_may_take_its_place(recipe, origin, store, tmp_path):
    before = os.stat(store).st_ino
    result = run(store, tmp_path / "run", lambda: ingest(make_data(), store, overwrite=True, memory="4GiB"), **RECIPES[recipe])
    assert os.stat(store).st_ino != before
    assert result.weights_digest == origin[1]


@pytest.mark.parametrize("features", ["given", "disk"])
def test_packed_copies_may_come_and_go(features, origin, store, tmp_path):
    def pack_again():
        with StoreChange(store) as change:
            pack(change, "node", np.arange(400)[::-1].copy(), ["x"], made={}, work_bytes=1 << 20)

    pack_again()
    before = set(store.rglob("*packed*"))
    assert run(store, tmp_path / "run", pack_again, features=features).weights_digest == origin[1]
    assert before.isdisjoint(store.rglob("*packed*"))


def test_other_features_on_the_same_graph_are_another_store(store, tmp_path):
    """The loader's own state would not notice: it knows the graph only."""
    run(store, tmp_path / "run", epochs=1)
    data = make_data()
    data.x = data.x + 1
    ingest(data, store, overwrite=True, memory="4GiB")
    with pytest.raises(StateError, match="was trained on a store of digest"):
        run(store, tmp_path / "run")


def overwrite(path):
    """Other bytes in the same file."""
    with open(path, "r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(bytes(64))
    time.sleep(0.01)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", ["nodes/node/x.npy", "edges/node__to__node/indices.npy"])
def test_a_file_that_is_written_to_is_not_trusted(name, recipe, origin, store, tmp_path):
    checkpoint, seen = tmp_path / "run" / "checkpoint.pt", []
    deed = lambda: (seen.append(checkpoint.read_bytes()), overwrite(store / name))  # noqa: E731
    assert "npy was written to" in refused(CorruptStoreError, run, store, tmp_path / "run", deed, **RECIPES[recipe])
    assert checkpoint.read_bytes() == seen[0]
    put_back(origin[0], store)
    assert run(store, tmp_path / "run", **RECIPES[recipe]).weights_digest == origin[1]


def test_a_file_truncated_under_a_map_is_seen_at_the_next_look(origin, store, tmp_path):
    """Ids that were read in whole at the start, so that nobody goes beyond the new end meanwhile."""
    message = refused(CorruptStoreError, run, store, tmp_path / "run", lambda: os.truncate(next(store.rglob("train.npy")), 4096))
    assert "train.npy was truncated while it was in use: 4096 bytes are left of" in message
    put_back(origin[0], store)
    assert run(store, tmp_path / "run").weights_digest == origin[1]


def test_a_file_truncated_under_the_disk_tier(origin, store, tmp_path):
    file = store / "nodes" / "node" / "x.npy"
    message = refused(TierError, run, store, tmp_path / "run", lambda: os.truncate(file, 4200), **RECIPES["ginex"])
    assert re.search(r"x.npy ends at byte 4200, .*truncated since it was opened.*stage gather, batch", message)
    put_back(origin[0], store)
    assert run(store, tmp_path / "run", **RECIPES["ginex"]).weights_digest == origin[1]


def begin(store, folder, *more):
    """A training as a command, of more epochs than anybody waits for; returns once its first checkpoint is there."""
    options = ["--num-neighbors", "4,3", "--batch-size", "32", "--hidden", "8", "--epochs", "100000", "--eval-every", "1000000",
               "--num-workers", "2", "--torch-threads", "1", "--checkpoint-every-s", "0.05", *more]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "train", str(store), "--out", str(folder), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (folder / "checkpoint.pt").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    return process


def last_line(process):
    """(exit code, what was said at the end of standard error); the command ends by itself."""
    _, error = process.communicate(timeout=120)
    lines = [line for line in error.splitlines() if line.startswith("penstock: ")]
    assert len(lines) == 1, error
    assert "Traceback" not in error
    assert_in_table(lines[0].removeprefix("penstock: "))
    return process.returncode, lines[0]


def test_the_command_ends_with_one_line(store, tmp_path, capfd, monkeypatch):
    explained = []
    monkeypatch.setattr("penstock.kernels.bus_error.explain_bus_errors", lambda: explained.append(True))
    monkeypatch.setattr("penstock.report.live.choose_observer", lambda: disturbed.AtBatch(lambda: shutil.rmtree(store)))
    options = ["--num-neighbors", "4,3", "--batch-size", "32", "--hidden", "8", "--epochs", "3", "--torch-threads", "1"]
    line = said(capfd, "train", store, "--out", tmp_path / "run", *options, "--recipe", "ginex", "--window", "3")
    assert line.startswith(f"penstock: {store} was deleted or moved while it was in use: saved at epoch 2, batch 7")
    assert line.endswith("; put the store back, and --resume goes on")
    assert explained


MAP = """
import mmap, sys, threading
from penstock.kernels.bus_error import explain_bus_errors
assert explain_bus_errors() and explain_bus_errors()
with open(sys.argv[1], "r+b") as file:
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    file.truncate(100)
thread = threading.Thread(target=lambda: print(pages[5000]))
thread.start()
thread.join()
print("still here")
"""


def test_bus_errors_are_explained_whatever_thread_meets_them(tmp_path):
    (tmp_path / "file").write_bytes(bytes(10_000))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MAP, str(tmp_path / "file")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == bus_error.LINE + "\n"


def test_a_handler_that_is_there_stays():
    """As under pytest, which has one of its own."""
    with tempfile.TemporaryFile() as file:
        faulthandler.enable(file)
        try:
            assert not bus_error.explain_bus_errors()
        finally:
            faulthandler.disable()
            faulthandler.enable(sys.__stderr__)


MET_BY_TWO = """
import os, signal, threading, time
from penstock.kernels.bus_error import explain_bus_errors
assert explain_bus_errors()
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(2, True)
threads = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for _ in range(2)]
for each in threads:
    each.start()
for each in threads:
    signal.pthread_kill(each.ident, signal.SIGBUS)
print("met", flush=True)
time.sleep(60)
"""


def test_a_bus_error_that_two_threads_meet_is_said_once():
    """Nobody reads what is said until both are at it."""
    with subprocess.Popen([sys.executable, "-c", MET_BY_TWO], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"met\n"
        time.sleep(0.3)
        assert process.stderr.read().count(b"penstock: ") == 1
    assert process.returncode == 2


@pytest.mark.deep
@pytest.mark.parametrize("name", ["nodes/node/x.npy", "edges/node__to__node/indices.npy", "edges/node__to__node/indptr.npy"])
def test_a_map_beyond_the_end_of_its_file_has_a_last_word(name, origin, store, tmp_path):
    """Of the step that reads there, or of a look at the files, whichever comes first."""
    process = begin(store, tmp_path / "run")
    os.truncate(store / name, 100)
    code, line = last_line(process)
    assert code == 2
    assert "was truncated while it was" in line
    assert "run this again (train: with --resume)" in line or "go on from the last checkpoint by --resume" in line
    put_back(origin[0], store)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["store"] == Store(store).digest
