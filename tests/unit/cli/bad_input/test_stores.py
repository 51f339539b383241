"""Paths and stores that are not what a command needs; disks that are full or cannot be written."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from penstock.cli import run
from penstock.errors import StoreError
from penstock.store import Store, hold_out
from tests.mounts import mounted
from tests.refusals import TRAIN, assert_in_table, call, refused, said
from tests.train.stores import make_store


@pytest.mark.parametrize("command", ["info", "check", "train"])
def test_wrong_path(command, tmp_path, capfd):
    assert "does not exist" in said(capfd, command, tmp_path / "nowhere")
    assert not list(tmp_path.iterdir()), "a refused command left something behind"


@pytest.mark.parametrize("command", ["info", "check", "train"])
def test_not_a_store(command, tmp_path, capfd):
    (tmp_path / "notes.txt").write_text("hello")
    assert "is a file" in said(capfd, command, tmp_path / "notes.txt")
    assert "has no manifest.json" in said(capfd, command, tmp_path)


def test_truncated_file(tmp_path, capfd):
    make_store(tmp_path / "store")
    indices = next((tmp_path / "store").rglob("indices.npy"))
    os.truncate(indices, 5000)
    line = said(capfd, "train", tmp_path / "store")
    assert "indices.npy is truncated: 5000 bytes, the manifest says" in line
    assert "put the file back or make the store again" in line


@pytest.mark.parametrize(
    ("name", "value", "arguments"),
    [
        ("edges/node__to__node/indices.npy", -5, ("train", "--order", "community")),
        ("edges/node__to__node/indices.npy", 1 << 20, ("train", "--order", "proximity")),
        ("edges/node__to__node/indptr.npy", 1 << 40, ("train", "--order", "proximity")),
        ("edges/node__to__node/indptr.npy", -1, ("train", "--neighbor-policy", "degree", "--neighbor-cache", "50%")),
        ("edges/node__to__node/indptr.npy", 1 << 40, ("train", "--neighbor-policy", "degree", "--neighbor-cache", "50%")),
        ("edges/node__to__node/indices.npy", -5, ("layout", "--by", "community")),
        ("edges/node__to__node/indptr.npy", -1, ("generate", "kronecker", "grown", "--base")),
        ("nodes/node/splits/default/train.npy", -3, ("train",)),
        ("nodes/node/splits/default/val.npy", 400, ("train",)),
    ],
)
def test_arrays_whose_values_lead_nowhere(name, value, arguments, tmp_path, capfd):
    array = np.load(make_store(tmp_path / "store").path / name, mmap_mode="r+")
    array[array.size // 2] = value
    array.flush()
    command, *options = arguments
    options += ["store"] if command == "generate" else ["--num-neighbors", "3,2", "--batch-size", "32", "store"]
    line = said(capfd, command, *options)
    assert "are damaged: " in line
    assert name.split("/")[1].replace("__", "/") in line or "splits of" in line


@pytest.mark.parametrize("value", [-5, 1 << 20])
@pytest.mark.parametrize("name", ["val/src", "test/dst"])
def test_links_whose_ends_lead_nowhere(name, value, tmp_path, capfd):
    hold_out(make_store(tmp_path / "whole"), tmp_path / "store")
    array = np.load(tmp_path / f"store/edges/node__to__node/links/{name}.npy", mmap_mode="r+")
    array[array.size // 2] = value
    array.flush()
    line = said(capfd, "train", "store", *TRAIN)
    assert f"part '{name.split('/')[0]}' of node/to/node has ends outside the 400 nodes of 'node'" in line


def test_a_label_that_is_no_class(tmp_path, capfd):
    labels = np.load(make_store(tmp_path / "store").path / "nodes/node/y.npy", mmap_mode="r+")
    labels[Store("store").split("train")[3]] = 1 << 40
    labels.flush()
    line = said(capfd, "train", "store", *TRAIN)
    assert "have a label that is none of" in line
    assert_in_table(line)


@pytest.mark.parametrize("name", ["manifest.json", "nodes/node/x.npy"])
def test_a_folder_in_place_of_a_file(name, tmp_path, capfd):
    path = make_store(tmp_path / "store").path / name
    path.unlink()
    path.mkdir()
    for command in ("info", "train"):
        assert f"store: {name} is a folder" in said(capfd, command, "store")
    assert run(["check", "store"]) == 2
    out, _ = capfd.readouterr()
    assert f"{name}: is a folder" in out or f"store: {name} is a folder" in out


@pytest.fixture
def closed(tmp_path):
    """Call it for the path of a folder that may not be looked into, by a user for whom that holds."""
    folder, me = tmp_path / "closed", os.geteuid()
    folder.mkdir()

    def close():
        folder.chmod(0)
        if me == 0:
            os.seteuid(65534)
        return folder

    yield close
    os.seteuid(me)
    folder.chmod(0o700)


def test_a_destination_in_a_folder_that_may_not_be_looked_into(closed, tmp_path, capfd):
    command = ["generate", "communities", "--num-nodes", "50"]
    assert call(capfd, *command, tmp_path / "store")[0] == 0  # loads what that user cannot
    assert "no permission: choose another folder" in said(capfd, *command, closed() / "store")


def test_a_source_in_a_folder_that_may_not_be_looked_into(closed, tmp_path, capfd):
    (tmp_path / "closed" / "edges.csv").write_text("src,dst\n0,1\n")
    assert call(capfd, "ingest", tmp_path / "closed", "store")[0] == 0
    assert "edges.csv: cannot be read (Permission denied)" in said(capfd, "ingest", closed() / "edges.csv", "other")


def test_a_current_folder_that_was_deleted(tmp_path, monkeypatch, capfd):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    said(capfd, "generate", "communities", "store", "--num-nodes", "50")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(number, store, tmp_path, monkeypatch, capfd):
    def no_locks(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert "has no locks" in said(capfd, "generate", "communities", "store", "--num-nodes", "50")
    assert "has no locks" in said(capfd, "train", store, *TRAIN)
    assert "has no locks" in said(capfd, "train", store, *TRAIN, "--out", "new/run")
    assert not list(tmp_path.iterdir()), "a refused command left something behind"


@pytest.mark.parametrize("spare", [0, 1])
def test_too_many_open_files(spare, store, capfd):
    assert call(capfd, "info", store)[0] == 0
    lowest, limits = os.dup(0), resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
    try:
        code, error = call(capfd, "info", store)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert code == 2, error
    assert f"Too many open files (this process may have {lowest + spare}: raise the limit by `ulimit -n`)" in error
    assert_in_table(error.strip())


def test_a_file_system_that_maps_no_files(store, monkeypatch):
    def no_maps(*_, **__):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr("penstock.store.arrays.MappedPages", no_maps)
    refused(StoreError, Store.open(store).graph)


def test_a_destination_that_is_there(store, tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    before = sorted(path.name for path in store.iterdir())
    assert "is a store already" in said(capfd, "ingest", tmp_path / "edges.csv", store)
    assert sorted(path.name for path in store.iterdir()) == before
    assert Store.open(store).num_nodes["node"] == 400


def test_a_destination_that_holds_something_else(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    assert call(capfd, "ingest", "edges.csv", "store")[0] == 0
    (tmp_path / "store" / "notes.txt").write_text("precious")
    assert "'notes.txt'" in said(capfd, "ingest", "edges.csv", "store", "--overwrite")
    assert (tmp_path / "store" / "notes.txt").read_text() == "precious"


def test_a_destination_within_a_store(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,0\n")
    assert call(capfd, "ingest", "edges.csv", "store")[0] == 0
    for command in (("ingest", "edges.csv"), ("generate", "rmat", "--scale", "4"), ("partition", "store", "--num-parts", "2")):
        line = said(capfd, command[0], *command[1:2], "store/inner", *command[2:])
        assert line.endswith("store is a store: choose another path"), line
    assert "is in the store" in said(capfd, "ingest", "edges.csv", "store/edges/inner")
    assert call(capfd, "ingest", "edges.csv", "store", "--overwrite")[0] == 0


def test_a_destination_beside_a_manifest_of_another_program(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,0\n")
    (tmp_path / "manifest.json").write_text('// of an extension\n{"name": "x"}')
    assert call(capfd, "ingest", "edges.csv", "store")[0] == 0
    (tmp_path / "store" / "manifest.json").write_text("damaged")
    assert "store is a store" in said(capfd, "ingest", "edges.csv", "store/inner")


def test_two_ingestions_at_one_place(tmp_path, capfd):
    from penstock.store.writer import StoreWriter

    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    with StoreWriter(tmp_path / "store"):
        said(capfd, "ingest", tmp_path / "edges.csv", tmp_path / "store")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 KiB."""
    with mounted(tmp_path / "small", "size=200k") as folder:
        yield folder


def test_disk_full(store, small_disk, tmp_path, capfd):
    said(capfd, "ingest", tmp_path.parent / "nothing.csv", small_disk / "store")
    (tmp_path / "edges.csv").write_text("src,dst\n" + "".join(f"{i},{i + 1}\n" for i in range(60_000)))
    said(capfd, "ingest", tmp_path / "edges.csv", small_disk / "store")
    assert not (small_disk / "store").exists()
    code, _ = call(capfd, "train", store, "--out", small_disk / "run", *TRAIN, "--hidden", "8")
    assert code == 0
    before = (small_disk / "run" / "checkpoint.pt").read_bytes()
    (small_disk / "filler").write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize))
    said(capfd, "train", store, "--out", small_disk / "run", *TRAIN, "--hidden", "8", "--resume", "--epochs", "2")
    assert (small_disk / "run" / "checkpoint.pt").read_bytes() == before


@pytest.fixture
def read_only(tmp_path):
    """A file system that cannot be written."""
    with mounted(tmp_path / "read-only", "ro") as folder:
        yield folder


def test_read_only_folder(store, read_only, tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    said(capfd, "ingest", tmp_path / "edges.csv", read_only / "store")
    said(capfd, "train", store, "--out", read_only / "run", *TRAIN)


def compile_a_kernel(before="", **environment):
    """Use a kernel in a new process, without what the tests have in their environment unless it is given; returns what it said."""
    code = "from penstock.order import RandomOrder; print(sorted(RandomOrder(5, 0).batch(0, 0, 5).tolist()))"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run([sys.executable, "-c", f"{before}\n{code}"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[0, 1, 2, 3, 4]", done.stderr
    return done.stderr.strip()


def test_no_place_for_compiled_kernels(read_only):
    assert_in_table(compile_a_kernel(PENSTOCK_CACHE_DIR=str(read_only / "cache")))


def test_a_user_without_a_home():
    nobody = "import pwd\ndef unknown(uid): raise KeyError(uid)\npwd.getpwuid = unknown"
    message = compile_a_kernel(nobody)
    assert message.startswith("cannot write compiled kernels to ~/.cache/penstock (HOME is not set)")
    assert_in_table(message)


def test_a_disk_of_compiled_kernels_that_is_full(tmp_path):
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    _, message = compile_a_kernel(full, PENSTOCK_CACHE_DIR=str(tmp_path)).splitlines()
    assert message.startswith(f"cannot write compiled kernels to {tmp_path}")
    assert_in_table(message)


def test_kernels_that_were_never_compiled(tmp_path):
    """The first run says what it does meanwhile, once; the next one is silent."""
    message = compile_a_kernel(PENSTOCK_CACHE_DIR=str(tmp_path))
    assert message.startswith("compiling kernels")
    assert_in_table(message)
    assert not compile_a_kernel(PENSTOCK_CACHE_DIR=str(tmp_path))


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_compiled_kernels_that_are_damaged_are_compiled_again(kind, tmp_path):
    compile_a_kernel(PENSTOCK_CACHE_DIR=str(tmp_path))
    saved = {path: path.read_bytes() for path in tmp_path.rglob(f"*.{kind}")}
    assert saved
    for path in saved:
        path.write_bytes(b"")
    assert not compile_a_kernel(PENSTOCK_CACHE_DIR=str(tmp_path))
    assert all(path.stat().st_size for path in saved)


def test_predictions_into_a_folder_that_cannot_be_written(read_only, store, tmp_path, capfd):
    said(capfd, "train", store, *TRAIN, "--predictions", read_only / "classes.csv")
    assert not (tmp_path / "runs").exists(), "it was trained first"


def test_json_says_the_same(tmp_path, capfd):
    assert run(["info", str(tmp_path / "nowhere"), "--json"]) == 2
    out, _ = capfd.readouterr()
    assert json.loads(out)["error"]["exit_code"] == 2


def test_a_pipe_in_place_of_a_file(tmp_path, capfd):
    path = make_store(tmp_path / "store").path / "nodes" / "node" / "x.npy"
    path.unlink()
    os.mkfifo(path)
    assert "cannot read nodes/node/x.npy: it is not a regular file" in said(capfd, "train", "store", *TRAIN)


def test_links_in_the_folder_of_a_run_are_not_written_through(finished, store, tmp_path, capfd):
    folder, precious = shutil.copytree(finished, tmp_path / "run"), tmp_path / "precious"
    precious.write_text("diary")
    for name in ("checkpoint.pt", "config.json", "report.html", "report.json", "report.trace.json"):
        (folder / f".{name}.partial").symlink_to(precious)
    assert run(["train", str(store), "--out", str(folder), "--resume", "--epochs", "2"]) == 0
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(precious)
    capfd.readouterr()
    assert "cannot write in" in said(capfd, "train", store, "--out", folder, "--resume")
    assert precious.read_text() == "diary"


def test_links_beside_a_store_and_in_it_are_not_followed(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "precious").write_text("diary")
    (tmp_path / ".new.lock").symlink_to(tmp_path / "precious")
    assert "cannot write" in said(capfd, "ingest", "edges.csv", "new")
    assert (tmp_path / "precious").read_text() == "diary"
    make_store(tmp_path / "theirs")
    kept = make_store(tmp_path / "mine").path / "nodes" / "node"
    (kept / "x.packed.npy").write_text("mine")
    shutil.rmtree(tmp_path / "theirs" / "nodes" / "node")
    (tmp_path / "theirs" / "nodes" / "node").symlink_to(kept)
    assert run(["layout", "theirs", "--drop"]) == 0
    assert (kept / "x.packed.npy").exists()


@pytest.fixture(scope="module")
def finished(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run(["train", str(store), *TRAIN, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    "settings",
    [
        {"torch_threads": ".."},
        {"target": [[]]},
        {"weight": [1]},
        {"map_threads": "x"},
        {"presample_batches": ["x"]},
        {"num_neighbors": None},
        {"num_neighbors": ["3"]},
        {"epochs": True},
        {"batch_size": 10**30},
        {"lr": {}},
    ],
)
def test_settings_that_say_anything(settings, finished, store, tmp_path, capfd):
    folder = shutil.copytree(finished, tmp_path / "run")
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(saved | settings))
    line = said(capfd, "train", store, "--out", folder, "--resume")
    assert f"--{next(iter(settings)).replace('_', '-')} must be of type " in line


@pytest.mark.parametrize("text", ["[3]", "[" * 100_000, "7"])
def test_settings_that_are_none(text, finished, store, tmp_path, capfd):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "config.json").write_text(text)
    assert "config.json cannot be read (" in said(capfd, "train", store, "--out", folder, "--resume")


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["history"].append(True),
        lambda state: state["history"][0].update(wait_s=torch.zeros(4)),
        lambda state: state["history"][0].update(num_nodes=None),
        lambda state: state["history"][0].update(loss=float("nan")),
        lambda state: state["history"][0].update(tiers=[]),
        lambda state: state["best"].update(test=[[]]),
        lambda state: state["best"]["model"].update(dict.fromkeys(state["best"]["model"], "")),
        lambda state: state.update(history=[]),
        lambda state: state["history"][0]["stage_s"].update(sample=None),
        lambda state: state.update(history=torch.zeros(3, 3)),
        lambda state: state.update(optimizer=1.5),
        lambda state: state["config"].update(batch_size=torch.zeros(2)),
        lambda state: state["model"].update(dict.fromkeys(state["model"], "")),
    ],
)
def test_a_checkpoint_that_says_anything(change, finished, store, tmp_path, capfd):
    folder = shutil.copytree(finished, tmp_path / "run")
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    change(state)
    torch.save(state, folder / "checkpoint.pt")
    line = said(capfd, "train", store, "--out", folder, "--resume")
    assert "cannot read the checkpoint" in line or "must be of type int" in line
