"""`penstock.infer` into a file, ended at any moment and called again: the bits of a call that nothing happens to, and nothing left over."""

import json
import os
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.endings import is_killed_at
from tests.mounts import mounted
from tests.train.stores import make_data
from torch_geometric.nn import GCN

import penstock
from penstock.errors import StoreError
from penstock.inference import shelves

BATCHES = 3 * 8  # of three layers


def make_model(seed=0, **options):
    torch.manual_seed(seed)
    return GCN(4, 16, 3, 5, **options)


def infer(folder, *, model=None, data=None, progress=None, **options):
    options = {"batch_size": 50, "num_workers": 0, **options}
    return penstock.infer(model or make_model(), data or make_data(), out=folder / "rows.npy", progress=progress, **options)


@pytest.fixture(scope="module")
def expected():
    return penstock.infer(make_model(), make_data(), batch_size=50)


class Stopped(Exception):
    pass


def stop_after(count):
    told = []

    def progress(done, total):
        told.append(done)
        if len(told) == count:
            raise Stopped

    progress.told = told
    return progress


@pytest.mark.parametrize("count", [1, 3, 8, 9, 17, BATCHES])
@pytest.mark.parametrize("is_store", [False, True])
def test_stopped_after_any_batch(count, is_store, expected, tmp_path):
    data = penstock.ingest(make_data(), tmp_path / "store") if is_store else make_data()
    with pytest.raises(Stopped):
        infer(tmp_path, data=data, progress=stop_after(count))
    assert not (tmp_path / "rows.npy").exists()
    again, model, computed = stop_after(-1), make_model(), []
    for conv in model.convs:
        conv.lin.register_forward_hook(lambda *_: computed.append(1))
    rows = infer(tmp_path, data=data, model=model, progress=again)
    assert np.array_equal(rows, expected)
    assert again.told[-1] == 1200
    assert len(computed) == BATCHES - count, "what was there is not computed again"
    assert not (tmp_path / "rows.npy.unfinished").exists()


def test_killed_at_any_moment(expected, tmp_path, monkeypatch):
    monkeypatch.setattr(shelves, "SAVE_EVERY_S", 0.0)

    def slowly(done, total):
        time.sleep(0.01)

    was_killed = 0
    for delay_s in (0.1, 0.2, 0.3, 0.35):
        was_killed += is_killed_at(lambda: infer(tmp_path, progress=slowly), delay_s)
    assert was_killed
    assert np.array_equal(infer(tmp_path), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]


def test_two_layers_at_most_are_on_the_disk(tmp_path):
    seen = set()

    def progress(done, total):
        seen.add(tuple(sorted(path.name for path in (tmp_path / "rows.npy.unfinished").glob("*.npy"))))

    infer(tmp_path, progress=progress)
    assert seen == {("layer-0-0.npy",), ("layer-0-0.npy", "layer-1-0.npy"), ("layer-1-0.npy", "layer-2-0.npy")}


def test_a_disk_that_fills_up(expected, tmp_path):
    with mounted(tmp_path / "disk", "size=256k") as disk:

        def progress(done, total):
            if done == 450:
                free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
                (disk / "filler").write_bytes(bytes(free - 4096))

        with pytest.raises(StoreError, match="the disk is full"):
            infer(disk, progress=progress)
        assert not (disk / "rows.npy").exists()
        (disk / "filler").unlink()
        assert np.array_equal(infer(disk), expected)


def test_ended_while_the_result_takes_its_place(expected, tmp_path, monkeypatch):
    """The same call finds what it needs, whether or not the result is there."""

    def stop(folder):
        raise Stopped

    monkeypatch.setattr(shelves, "sync_folder", stop)
    with pytest.raises(Stopped):
        infer(tmp_path)
    assert np.array_equal(np.load(tmp_path / "rows.npy"), expected)
    monkeypatch.undo()
    assert np.array_equal(infer(tmp_path), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]


def test_rows_that_could_not_be_flushed_are_not_counted(expected, tmp_path, monkeypatch):
    fsync = os.fsync
    monkeypatch.setattr(shelves, "SAVE_EVERY_S", 0.0)
    flushes = []

    def fail(descriptor):
        flushes.append(descriptor)
        if len(flushes) == 3:
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        infer(tmp_path)
    state = json.loads((tmp_path / "rows.npy.unfinished" / "state.json").read_text())
    assert state["files"]["0-0"]["rows"] == 100
    monkeypatch.undo()
    assert np.array_equal(infer(tmp_path), expected)


def test_nothing_is_left_where_nothing_was_computed(tmp_path):
    def fail(batch):
        raise Stopped

    with pytest.raises(Stopped):
        infer(tmp_path, model=torch.nn.Identity(), layers=[fail])
    assert not list(tmp_path.iterdir())


def test_a_result_that_was_there_is_replaced_in_the_end(expected, tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros(3))
    with pytest.raises(Stopped):
        infer(tmp_path, progress=stop_after(BATCHES - 1))
    assert np.array_equal(np.load(tmp_path / "rows.npy"), np.zeros(3))
    infer(tmp_path)
    assert np.array_equal(np.load(tmp_path / "rows.npy"), expected)


def test_what_is_counted_is_on_the_disk(tmp_path, monkeypatch):
    """Rows are flushed before they are counted."""
    monkeypatch.setattr(shelves, "SAVE_EVERY_S", 0.0)
    flushed, fsync = [], os.fsync

    def watched(descriptor):
        fsync(descriptor)
        flushed.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", watched)
    counts = []

    def progress(done, total):
        state = json.loads((tmp_path / "rows.npy.unfinished" / "state.json").read_text())
        counts.append((len(flushed), sum(each["rows"] for each in state["files"].values())))

    infer(tmp_path, progress=progress)
    assert [rows for _, rows in counts[:8]] == list(range(50, 401, 50))
    assert all(later > before for (before, _), (later, _) in pairwise(counts))
