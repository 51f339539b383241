"""Trainings in a container with little memory: what has no room is done otherwise, warned of or refused, and a run stays what it is."""

import copy
import mmap
import re
import sys
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch

import penstock
from penstock.errors import BudgetError
from penstock.feed.fit import memory, room
from penstock.feed.fit.memory import BatchBytes
from penstock.feed.fit.profile import take_profile
from penstock.store.files import memory_of
from penstock.store.process_memory import keeps_freed_memory
from penstock.train import Observer
from penstock.train.learner import Learner
from penstock.train.rows import RowAdam
from tests.train.stores import make_bare_store, make_store, make_typed_store
from tests.train.test_run import run

MIB = 1 << 20


class Notes(Observer):
    def __init__(self):
        self.said = []

    def note(self, message):
        self.said.append(message)


@pytest.fixture(scope="module", params=[make_store, make_typed_store], ids=["plain", "typed"])
def store(request, tmp_path_factory):
    return str(request.param(tmp_path_factory.mktemp("data") / "store").path)


@pytest.fixture
def container(monkeypatch):
    """Returns what gives the process so much memory, and says what its step takes, by whether malloc keeps what is freed."""

    def limit(left, **step_bytes):
        tried = []

        def measure(maker, caches, profile, step, use, budget, shares):
            step(maker.make(caches, maker.order.batch(0, 0, maker.batch_size), 0, 0))  # changes nothing of the run
            tried.append((max(shares), "kept" if keeps_freed_memory() else "mapped"))
            return 0, step_bytes[tried[-1][1]]

        monkeypatch.setattr("penstock.train.run.free_in_container", lambda: left)
        monkeypatch.setattr(room, "free_in_container", lambda: left)
        monkeypatch.setattr(room, "measure_step", measure)
        monkeypatch.setattr(room, "anonymous_bytes", lambda: 0)
        monkeypatch.setattr(room, "_is_said", True)
        return tried

    return limit


def seen_room(monkeypatch, *, with_step=True):
    """Returns a list of what loaders find, to come."""
    found, check = [], room.check_room

    def seen(*args, **options):
        one = check(*args, **options)
        found.extend([one] * ((options["step"] is not None) == with_step))
        return one

    monkeypatch.setattr("penstock.feed.setup.make.check_room", seen)
    return found


@pytest.mark.parametrize(
    ("step_bytes", "tries"),
    [
        (dict(kept=20 * MIB), [(0.125, "kept")]),
        (dict(kept=600 * MIB), [(0.125, "kept"), (1.0, "kept")]),
        (dict(kept=1600 * MIB, mapped=600 * MIB), [(0.125, "kept"), (1.0, "kept"), (1.0, "mapped")]),
    ],
    ids=["plenty", "enough", "where freed memory is let go"],
)
def test_a_step_is_tried(step_bytes, tries, store, tmp_path, container, monkeypatch, caplog):
    expected = run(tmp_path / "free", store, epochs=1)
    found, tried = seen_room(monkeypatch), container(1000 * MIB, **step_bytes)
    result = run(tmp_path / "bound", store, epochs=1)
    assert tried == tries
    new_bytes = {1: None, 2: 600 * MIB // 4, 3: 600 * MIB}[len(tries)]  # of the next step: all of it where freed memory is let go
    assert [each and each.bound.held_bytes for each in found] == [new_bytes and (1000 - 32) * MIB - new_bytes]
    assert result.weights_digest == expected.weights_digest
    assert not caplog.records


@pytest.mark.parametrize(
    ("step_mib", "num_threads", "num_at_once"), [(900, 3, 4), (925, 3, 3), (945, 1, 1), (985, 0, 1), (995, None, None)]
)
def test_fewer_batches_at_once_where_all_have_no_room(step_mib, num_threads, num_at_once, store, tmp_path, container, monkeypatch, caplog):
    container(1000 * MIB, kept=1600 * MIB, mapped=step_mib * MIB)
    of_batch = BatchBytes(sample=4 * MIB, rows=6 * MIB, staging=0, num_read=0, num_edges=0)
    monkeypatch.setattr(room, "measure_batch", lambda *args: of_batch)
    found = seen_room(monkeypatch)
    expected = r"^without a budget this takes about .* [MG]iB, and the container around this process has 1000.0 MiB left: "
    refused = pytest.raises(BudgetError, match=expected + "give it more memory, or take smaller batches or fanouts")
    with nullcontext() if num_at_once else refused:
        run(tmp_path / "run", store, epochs=1, num_workers=3)
    assert [(each.num_workers, each.max_in_flight) for each in found] == [(num_threads, num_at_once)] * bool(num_at_once)
    assert (tmp_path / "run" / "checkpoint.pt").exists() == bool(num_at_once)
    said = [record.getMessage() for record in caplog.records]
    ahead = {925: "3", 945: "1", 985: "0"}.get(step_mib)
    assert len(said) == (ahead is not None)
    assert all(re.match(rf"{expected}batches made ahead are {ahead}, not 4, ", one) for one in said)


@pytest.mark.parametrize(("left_mib", "num_at_once"), [(96, (3, 4)), (90, (3, 3)), (70, (1, 1)), (50, (0, 1)), (22, (0, 1)), (19, None)])
def test_batches_of_a_loader_without_a_step_have_room(left_mib, num_at_once, store, monkeypatch, caplog):
    def make():
        seeds = "train" if penstock.open(store).graph().is_homogeneous else ("paper", "train")
        return penstock.NeighborLoader(store, [4, 3], input_nodes=seeds, batch_size=8, num_workers=3, shuffle=True, seed=1)

    expected = [penstock.digest(batch) for batch in make()]
    monkeypatch.setattr(room, "free_in_container", lambda: left_mib * MIB)
    monkeypatch.setattr(room, "anonymous_bytes", lambda: 0)
    monkeypatch.setattr(room, "measure_step", None)
    monkeypatch.setattr(room, "_is_said", True)
    of_batch = BatchBytes(sample=4 * MIB, rows=6 * MIB, staging=0, num_read=0, num_edges=0)
    monkeypatch.setattr(room, "measure_batch", lambda *args: of_batch)
    found = seen_room(monkeypatch, with_step=False)
    assert [penstock.digest(batch) for batch in make()] == expected  # all that they are made from has room: nothing is looked at
    monkeypatch.setattr(room, "read_at_random", lambda plan, maker: [np.broadcast_to(np.uint8(0), 1 << 40)])
    refused = pytest.raises(BudgetError, match=r"takes about 20\.. MiB.* 19\.0 MiB left: give it more memory, or ")
    with nullcontext() if num_at_once else refused:
        assert [penstock.digest(batch) for batch in make()] == expected
    assert [each and (each.num_workers, each.max_in_flight) for each in found] == [None, num_at_once][: 1 + bool(num_at_once)]
    assert len(caplog.records) == (num_at_once not in (None, (3, 4)))


def test_without_a_container_nothing_is_tried(store, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.train.run.free_in_container", lambda: None)
    monkeypatch.setattr(room, "measure_step", None)
    run(tmp_path / "run", store, epochs=1)


def scores(result):
    return [(record.val, record.test) for record in result.history]


def test_on_a_device_no_step_is_tried_without_a_budget(store, tmp_path, container, monkeypatch):
    tried = container(100 * MIB)
    monkeypatch.setattr("penstock.train.learner.Learner.step_on_a_copy", None)  # it would take memory of the device
    run(tmp_path / "run", store, epochs=1, device="cuda")
    assert not tried


def test_evaluation_is_sampled_where_layers_have_no_room(store, tmp_path, monkeypatch):
    full, sampled = (run(tmp_path / kind, store, epochs=2, evaluation=kind) for kind in ("full", "sampled"))
    assert scores(full) != scores(sampled)
    monkeypatch.setattr("penstock.train.evaluation.free_bytes", lambda: 1000)
    notes = Notes()
    run(tmp_path / "auto", store, epochs=1, observer=notes)
    assert [note.split(":")[0] for note in notes.said] == ["val and test are computed over sampled neighbourhoods"]
    monkeypatch.undo()
    notes = Notes()
    result = run(tmp_path / "auto", store, epochs=2, resume=True, observer=notes)  # as it began
    assert scores(result) == scores(sampled)
    assert not any("sampled" in note for note in notes.said)
    monkeypatch.setattr("penstock.train.evaluation.free_bytes", lambda: 1000)
    monkeypatch.setattr("penstock.inference.shelves.free_bytes", lambda: 1000)
    result = run(tmp_path / "files", store, epochs=2, evaluation="full")
    assert scores(result) == scores(full)


def test_processes_share_what_is_left(store, tmp_path, container, monkeypatch):
    container(2000 * MIB, kept=1100 * MIB, mapped=1100 * MIB)
    run(tmp_path / "alone", store, epochs=1)
    monkeypatch.setattr("penstock.feed.setup.make.processes_here", lambda num_ranks: 2)
    with pytest.raises(BudgetError, match=r"has 1000\.0 MiB left for each of 2 processes: "):
        run(tmp_path / "together", store, epochs=1)
    tried = container(2000 * MIB, kept=1100 * MIB, mapped=600 * MIB)
    run(tmp_path / "with less", store, epochs=1)
    assert tried == [(0.125, "kept"), (0.125, "kept"), (0.125, "mapped"), (1.0, "mapped")]  # no more at once than there is room for


def test_rows_that_are_learnt_have_room_for_what_training_keeps_of_them(tmp_path, monkeypatch):
    store = make_bare_store(tmp_path / "store")
    expected = run(tmp_path / "free", str(store.path), epochs=3)
    monkeypatch.setattr("penstock.train.run.free_in_container", lambda: 64 * MIB)
    monkeypatch.setattr("penstock.store.budget.free_in_container", lambda: 64 * MIB)
    with pytest.raises(
        BudgetError, match=r"^what training keeps of rows that are learnt .* 64\.0 MiB left: give it more memory, features, "
    ):
        run(tmp_path / "refused", str(store.path), epochs=1)
    monkeypatch.setattr("penstock.store.budget.free_in_container", lambda: 65 * MIB)
    assert run(tmp_path / "room", str(store.path), epochs=3).weights_digest == expected.weights_digest


def test_learnt_rows_of_a_step_that_is_tried_leave_no_hole_in_the_heap(tmp_path, monkeypatch):
    """Their copy and their moments are made while large pieces are mapped, and go back to the system by themselves."""
    copied, stepped, depth, seen = copy.deepcopy, RowAdam.step, [0], {}

    @contextmanager
    def letting_go():
        depth[0] += 1
        yield
        depth[0] -= 1

    def deepcopy(value, *memo):
        if isinstance(value, torch.nn.Module):
            seen.setdefault("copy", depth[0])
        return copied(value, *memo)

    def step(adam, gradients):
        seen.setdefault("moments", depth[0])
        stepped(adam, gradients)

    for limit in ("penstock.train.run.free_in_container", "penstock.feed.fit.room.free_in_container"):
        monkeypatch.setattr(limit, lambda: 1 << 40)
    for where in ("penstock.train.learner", "penstock.feed.fit.memory"):
        monkeypatch.setattr(f"{where}.letting_freed_memory_go", letting_go)
    monkeypatch.setattr(copy, "deepcopy", deepcopy)
    monkeypatch.setattr(RowAdam, "step", step)
    run(tmp_path / "run", str(make_bare_store(tmp_path / "store").path), epochs=1)
    assert seen == {"copy": 1, "moments": 1}


def test_the_first_copy_of_the_best_weights_has_the_room_of_what_was_freed(tmp_path, monkeypatch):
    done, weights = [], Learner.weights
    monkeypatch.setattr("penstock.train.run.give_back_freed_memory", lambda: done.append("give back"))
    monkeypatch.setattr(Learner, "weights", lambda learner, into: done.append("again" if into else "copy") or weights(learner, into))
    result = run(tmp_path / "run", str(make_bare_store(tmp_path / "store").path), epochs=3)
    scores = [record.val for record in result.history]
    num_best = sum(score > max(scores[:epoch], default=-1) for epoch, score in enumerate(scores))
    assert done[-num_best - 1 :] == ["give back", "copy", *["again"] * (num_best - 1)]


def test_maps_are_read_apart_where_they_do_not_fit(tmp_path, monkeypatch, caplog):
    advised = []
    monkeypatch.setattr(room, "advise_random", advised.append)
    monkeypatch.setattr(room, "_is_said", False)
    maps = [np.memmap(tmp_path / str(count), np.uint8, "w+", shape=count) for count in (100, 50)]
    files = [*maps, np.zeros(1000, np.uint8)]  # the last one is in memory already
    room.read_apart(files, 150)
    assert not advised
    room.read_apart(files, 149, is_certain=False)
    assert [id(each) for each in advised] == [id(each) for each in maps]
    assert not caplog.records
    for _ in range(2):
        room.read_apart(files, 149)
    (record,) = caplog.records
    assert record.getMessage().startswith("batches read files of 150 B row by row, for which the page cache has 149 B in the container")


def test_a_trial_reads_apart_and_what_reads_from_disks_take_is_counted(store, tmp_path, container, monkeypatch, caplog):
    container(1000 * MIB, kept=900 * MIB, mapped=900 * MIB)
    advised, found = [], seen_room(monkeypatch)
    monkeypatch.setattr(room, "advise_random", advised.append)
    monkeypatch.setattr(room, "reading_bytes", lambda plan, reads, batch, num_threads, in_flight: num_threads * 40 * MIB)
    run(tmp_path / "maps", store, epochs=1, num_workers=2)
    run(tmp_path / "disk", store, epochs=1, num_workers=2, features="disk", topology="disk")
    assert [each.num_workers for each in found] == [2, 1]
    assert not advised
    container(1000 * MIB, kept=1001 * MIB, mapped=1001 * MIB)
    monkeypatch.setattr(room, "read_at_random", lambda plan, maker: [np.memmap(tmp_path / "map", np.uint8, "w+", shape=(2 * MIB,))])
    with pytest.raises(BudgetError):
        run(tmp_path / "none", store, epochs=1, features="disk")
    assert len(advised) == 1
    assert all("batches made ahead" in record.getMessage() for record in caplog.records)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone says what memory a process has")
def test_a_step_takes_as_much_where_pages_of_arrays_are_dropped_meanwhile(store, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(32 * MIB, np.uint8))
    pages = np.load(tmp_path / "x.npy", mmap_mode="r")

    def step(batch):
        memory_of(pages).madvise(mmap.MADV_DONTNEED)  # as the system does where memory is short
        np.ones(32 * MIB, np.uint8)
        pages.sum()

    seeds = "train" if penstock.open(store).graph().is_homogeneous else ("paper", "train")
    loader = penstock.NeighborLoader(store, [4, 3], input_nodes=seeds, batch_size=8)
    pages.sum()
    _, step_bytes = memory.measure_step(
        loader.engine.maker, loader.engine.caches, take_profile(loader.engine.maker, (), 1), step, None, 1 << 40
    )
    assert step_bytes >= 32 * MIB


def test_pages_of_libraries_that_are_let_go_are_no_room(store, tmp_path, container, monkeypatch):
    held = [700 * MIB]  # with libraries
    container(1000 * MIB, kept=20 * MIB)
    measure, seen = room.measure_step, []
    monkeypatch.setattr(room, "let_go_of_libraries", lambda: held.append(500 * MIB))
    monkeypatch.setattr(room, "resident_bytes_outside", lambda suffix: held[-1])
    monkeypatch.setattr(room, "measure_step", lambda *arguments: seen.append(arguments[5]) or measure(*arguments))
    run(tmp_path / "run", store, epochs=1)
    assert seen == [1500 * MIB]
