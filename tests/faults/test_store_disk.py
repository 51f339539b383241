"""A full disk, a read-only folder, another process at the same place: one clear line, nothing left behind, nothing lost."""

import errno
import multiprocessing
import os
from contextlib import nullcontext

import numpy as np
import pytest
from tests.mounts import mounted
from tests.stores import build, homogeneous, litter

from penstock.errors import StoreBusyError, StoreError, UsageError
from penstock.store import Store, files, ingest
from penstock.store.change import StoreChange
from penstock.store.format import MANIFEST
from penstock.store.writer import PARTIAL, StoreWriter


def make_source(num_edges=200_000, **options):
    rng = np.random.default_rng(0)
    return homogeneous(
        {"src": rng.integers(0, 1000, num_edges), "dst": rng.integers(0, 1000, num_edges)}, 1000, chunk_rows=1 << 14, **options
    )


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB of its own."""
    with mounted(tmp_path / "disk") as folder:
        yield folder


def test_full_disk_is_foreseen(small_disk):
    with pytest.raises(StoreError, match=r"the disk has .* free: free some space"):
        ingest(make_source(1_000_000), small_disk / "store")
    assert litter(small_disk) == []


def test_full_disk_on_the_way(small_disk):
    with pytest.raises(StoreError, match=r"cannot write .*store: the disk is full: free some space"):
        ingest(make_source(1_000_000, knows_length=False), small_disk / "store")
    assert litter(small_disk) == []


@pytest.mark.parametrize("after_writes", [0, 1, 2, 3, 4])
def test_full_disk_anywhere_keeps_the_old_store(tmp_path, monkeypatch, after_writes):
    path = tmp_path / "store"
    before = build(make_source(1000), path)[0].digest
    writes, pwrite = [0], os.pwrite

    def fill_up(descriptor, data, offset):
        writes[0] += 1
        if writes[0] > after_writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(files.os, "pwrite", fill_up)
    with pytest.raises(StoreError, match="the disk is full"):
        build(make_source(), path, overwrite=True)
    monkeypatch.undo()
    assert Store(path).digest == before
    assert litter(tmp_path, besides=("store",)) == []


def test_short_writes_are_continued(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(files.os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:1000], offset))
    store, _ = build(make_source(5000), tmp_path / "short")
    monkeypatch.undo()
    assert store.digest == build(make_source(5000), tmp_path / "whole")[0].digest


def test_read_only_folder(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o555)  # root may write anywhere
    refusal = r"cannot write .*store: (the file system is read-only|no permission): choose another folder"
    with mounted(folder, "ro") if os.geteuid() == 0 else nullcontext(), pytest.raises(StoreError, match=refusal):
        ingest(make_source(10), folder / "store")


def test_second_writer_is_refused_and_the_first_unharmed(tmp_path):
    path = tmp_path / "store"
    with StoreWriter(path) as writer:
        array = writer.array("nodes/node/x.npy", "int64")
        with pytest.raises(StoreBusyError, match=rf"another process \(pid {os.getpid()}\) is writing .*store: wait for it"):
            build(make_source(10), path)
        array.append(np.arange(5))
        assert array.finish().shape == (5,)
    assert litter(tmp_path) == []


def _ingest_here(path, barrier, results):
    barrier.wait()
    try:
        build(make_source(), path)
        results.put("written")
    except (StoreBusyError, UsageError) as error:
        results.put(type(error).__name__)


def test_processes_at_one_path(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results, path = context.Barrier(3), context.Queue(), tmp_path / "store"
    processes = [context.Process(target=_ingest_here, args=(path, barrier, results)) for _ in range(3)]
    for process in processes:
        process.start()
    outcomes = sorted(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    assert outcomes.count("written") == 1, outcomes
    assert set(outcomes) <= {"written", "StoreBusyError", "UsageError"}
    assert litter(tmp_path, besides=("store",)) == []
    assert Store(path).num_edges["node", "to", "node"] == 200_000


def test_litter_of_the_dead_is_removed_and_nothing_else(tmp_path):
    for name in (".store.partial-12345", ".store.partial-notes", ".other.partial-1", "store.partial-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    (tmp_path / ".store.lock").write_text("12345")
    build(make_source(10), tmp_path / "store")
    assert litter(tmp_path) == [".other.partial-1", ".store.partial-notes", "store", "store.partial-1"]


def test_destination_that_is_something_else(tmp_path):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    file.write_text("precious")
    for path in (folder, file):
        with pytest.raises(UsageError, match="exists and is not a Penstock store: choose another path"):
            build(make_source(10), path, overwrite=True)
    assert (folder / "thesis.txt").read_text() == file.read_text() == "precious"
    with pytest.raises(UsageError, match=r"the folder .*missing does not exist"):
        build(make_source(10), tmp_path / "missing" / "store")
    (tmp_path / "empty").mkdir()
    assert build(make_source(10), tmp_path / "empty")[0].num_nodes == {"node": 1000}
    with pytest.raises(UsageError, match="is a store already: choose another path, or say overwrite=True"):
        build(make_source(10), tmp_path / "empty")


@pytest.mark.parametrize("name", ["notes.txt", "runs", "runs/1/checkpoint.pt", "nodes/node/mine.npy", "edges/list.csv", "nodes/link"])
def test_what_is_not_of_the_store_is_not_overwritten(name, tmp_path):
    path = tmp_path / "store"
    before = build(make_source(10), path)[0].digest
    mine = path / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    if name == "runs":
        mine.mkdir()
    elif name == "nodes/link":
        mine.symlink_to(tmp_path)
    else:
        mine.write_text("precious")
    with pytest.raises(UsageError, match=rf"store holds '{name.split('/1')[0]}', which is not of the store and would be lost: move it"):
        build(make_source(20), path, overwrite=True)
    assert mine.exists()
    assert Store(path).digest == before
    assert litter(tmp_path, besides=("store",)) == []


def test_a_damaged_store_and_what_killed_changes_left_are_overwritten(tmp_path):
    path = tmp_path / "store"
    build(make_source(10), path)
    edges = next(path.glob("edges/*"))
    for left in (path / PARTIAL, path / "nodes/node/x.packed-2.npy", path / "nodes/node/packed_rows.npy"):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.touch()
    build(make_source(20), path, overwrite=True)
    for content in ("{", (path / MANIFEST).read_text().replace("1000", "1001")):
        (path / MANIFEST).write_text(content)
        (edges / "notes.txt").touch()
        with pytest.raises(UsageError, match=r"notes\.txt', which is not of the store"):
            build(make_source(20), path, overwrite=True)
        (edges / "notes.txt").unlink()
        build(make_source(20), path, overwrite=True)
    (path / MANIFEST).write_text('{"format": "of something else"}')
    with pytest.raises(UsageError, match="exists and is not a Penstock store"):
        build(make_source(20), path, overwrite=True)


def test_a_link_as_destination_stays_one(tmp_path):
    (tmp_path / "disk").mkdir()
    link, path = tmp_path / "link", tmp_path / "disk" / "store"
    link.symlink_to(path)
    for number in (10, 20):  # the first where there is nothing yet
        store, _ = build(make_source(number), link, overwrite=True)
        assert link.is_symlink()
        assert store.digest == Store(path).digest
    with StoreWriter(path, overwrite=True), pytest.raises(StoreBusyError):
        StoreChange(link).__enter__()
    (tmp_path / "disk" / ".store.partial-123").symlink_to(path)  # as earlier versions left them
    build(make_source(30), link, overwrite=True)
    assert litter(tmp_path / "disk") == ["store"]
    assert litter(tmp_path) == ["disk", "link"]


def test_open_store_survives_being_replaced(tmp_path):
    path = tmp_path / "store"
    old, _ = build(homogeneous({"src": np.array([0]), "dst": np.array([1])}, 2), path)
    indices = old.csc().indices
    build(make_source(10), path, overwrite=True)
    assert indices.tolist() == [0]
    fresh_view = Store(path)
    build(make_source(20), path, overwrite=True)
    with pytest.raises(StoreError, match="is missing: the store is damaged, or was replaced since it was opened"):
        fresh_view.csc()
