"""A disk that is full, or becomes read-only, under a training: one clear line, exit code 2, and the last checkpoint kept."""

import json
import os
import subprocess
from contextlib import ExitStack

import pytest
import torch
from tests.faults import disturbed
from tests.mounts import mounted
from tests.refusals import assert_in_table, call, refused, said
from tests.train.stores import make_store

from penstock.cli.console import as_typed
from penstock.errors import StoreError
from penstock.inference.shelves import FileShelf
from penstock.train import TrainConfig, checkpoint, finished, train
from penstock.train.tables import write_table

SETTINGS = dict(
    num_neighbors=(4, 3), batch_size=32, hidden=8, epochs=3, num_workers=2, lr=0.01, torch_threads=1, recipe="ginex", window=3
)  # fmt: skip
COMMAND = ("--num-neighbors", "3,2", "--batch-size", "32", "--epochs", "1", "--num-workers", "0", "--hidden", "8", "--recipe", "ginex")


@pytest.fixture
def disk(tmp_path):
    """A disk of 1 MiB."""
    with mounted(tmp_path / "disk") as folder:
        yield folder


def fill(disk, leave=0):
    """Nothing but some bytes is free from here on."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
    (disk / "filler").write_bytes(bytes(free - leave))


def free(disk):
    (disk / "filler").unlink()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "store").path


@pytest.fixture(scope="module")
def expected(store, tmp_path_factory):
    """The weights of a training that nothing happens to."""
    return train(TrainConfig(store=str(store), **SETTINGS), tmp_path_factory.mktemp("whole")).weights_digest


def run(store, folder, deed=lambda: None, **settings):
    return disturbed.run(store, folder, deed, **{**SETTINGS, **settings})


@pytest.mark.parametrize("leave", [0, 8192])
def test_a_disk_that_fills_up(leave, store, expected, disk):
    folder, seen = disk / "run", []

    def deed():
        seen.append((folder / "checkpoint.pt").read_bytes())
        fill(disk, leave)

    with pytest.raises(StoreError, match=r"cannot write the checkpoint .*No space left on device") as caught:
        run(store, folder, deed, checkpoint_every_s=0)
    assert_in_table(caught.value.spelled(as_typed))
    assert (folder / "checkpoint.pt").read_bytes() == seen[0]
    assert not list(folder.glob(".*.partial"))
    free(disk)
    assert run(store, folder).weights_digest == expected


def test_a_disk_that_is_full_from_the_start(store, disk, capfd):
    fill(disk)
    assert "config.json" in said(capfd, "train", store, "--out", disk / "run", *COMMAND)
    assert not list((disk / "run").glob(".*.partial"))
    free(disk)
    assert call(capfd, "train", store, "--out", disk / "run", *COMMAND)[0] == 0


def test_a_disk_that_is_full_at_the_first_checkpoint(store, disk, capfd):
    fill(disk, leave=8192)
    assert "No space left on device: nothing is saved yet" in said(capfd, "train", store, "--out", disk / "run", *COMMAND)
    free(disk)
    assert call(capfd, "train", store, "--out", disk / "run", *COMMAND)[0] == 0


def test_a_full_disk_is_named_though_torch_does_not(disk):
    fill(disk, leave=4096)
    message = refused(StoreError, checkpoint.save, disk / "checkpoint.pt", {"model": torch.ones(100_000)})
    assert "No space left on device: nothing is saved yet" in message


def test_a_disk_that_is_full_at_the_report(store, disk, capfd):
    command = ("train", store, "--out", disk / "run", *COMMAND)
    assert call(capfd, *command)[0] == 0
    before = {path.name: path.read_bytes() for path in (disk / "run").glob("*.*")}
    (disk / "run" / "report.html").unlink()
    fill(disk, leave=4096)
    assert "report" in said(capfd, *command, "--resume")
    assert not list((disk / "run").glob(".*.partial"))
    assert (disk / "run" / "checkpoint.pt").read_bytes() == before["checkpoint.pt"]
    free(disk)
    code, _ = call(capfd, *command, "--resume")
    assert code == 0
    assert json.loads((disk / "run" / "report.json").read_text())["weights_digest"] == json.loads(before["report.json"])["weights_digest"]
    assert (disk / "run" / "report.html").exists()


def test_a_disk_that_is_full_at_the_predictions(store, disk, tmp_path, capfd):
    command, classes = ("train", store, "--out", tmp_path / "run", *COMMAND), disk / "classes.csv"
    assert call(capfd, *command)[0] == 0
    fill(disk)
    assert "classes.csv" in said(capfd, *command, "--resume", "--predictions", classes)
    assert not [path for path in disk.iterdir() if "classes" in path.name]
    free(disk)
    assert call(capfd, *command, "--resume", "--predictions", classes)[0] == 0
    assert classes.read_text().startswith("id,")


def test_a_disk_that_is_full_at_the_table_of_rows(store, disk, tmp_path, capfd, monkeypatch):
    assert call(capfd, "train", store, "--out", tmp_path / "run", *COMMAND)[0] == 0
    command = ("infer", tmp_path / "run", "--out", disk / "rows.parquet")

    def write(*arguments):
        fill(disk)
        write_table(*arguments)

    monkeypatch.setattr(finished, "write_table", write)
    assert "rows.parquet" in said(capfd, *command)
    assert sorted(os.listdir(disk)) == ["filler", "rows.parquet.unfinished"]
    monkeypatch.undo()
    free(disk)
    monkeypatch.setattr(FileShelf, "append", None)  # no row is computed again
    assert call(capfd, *command)[0] == 0
    assert os.listdir(disk) == ["rows.parquet"]


def test_a_folder_that_becomes_read_only(store, expected, tmp_path):
    """The folder's place is taken by a file system that has the checkpoint and cannot be written."""
    folder, seen = tmp_path / "run", []

    def deed():
        seen.append((folder / "checkpoint.pt").read_bytes())
        stack.enter_context(mounted(folder))
        (folder / "checkpoint.pt").write_bytes(seen[0])
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)

    with ExitStack() as stack:
        message = refused(StoreError, run, store, folder, deed, checkpoint_every_s=0)
    assert "Read-only file system" in message
    assert "the one before it is untouched" in message
    assert (folder / "checkpoint.pt").read_bytes() == seen[0]
    assert run(store, folder).weights_digest == expected
