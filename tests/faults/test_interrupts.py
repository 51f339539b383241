"""Ctrl-C, forks and threads of the user's at the worst moments: nothing hangs, nothing is counted wrong, nobody's batch is written to."""

import os
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from tests.feed.inputs import digests, homogeneous_data

import penstock
from penstock import Walks, threads
from penstock.errors import PipelineError, UsageError
from penstock.feed import NeighborLoader
from penstock.feed.buffers import BufferPool
from penstock.feed.pipeline import OrderedAhead
from penstock.sample import joint
from penstock.sample.compaction import DirectTable
from penstock.store.tiers.disk_uring import _Ring
from penstock.threads import Guard, Threads


def in_child(work):
    """Run something in a forked child that ends with what it returns; returns that."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = int(work())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_buffers_of_its_own():
    pool = BufferPool()
    kept = pool.empty(1 << 22, np.uint8)  # mapped
    kept[:] = 7

    def write():
        kept[:] = 1
        return 0

    assert in_child(write) == 0
    assert (kept == 7).all()


def test_a_lock_is_free_in_a_forked_child():
    guard, pool = Guard(), BufferPool()
    with guard.lock, pool._guard.lock:
        assert in_child(lambda: not (guard.lock.acquire(timeout=5) and pool.empty(1 << 20, np.uint8).size == 1 << 20)) == 0
        assert guard.lock.locked()


def test_a_forked_child_does_not_go_on_with_an_iterator():
    loader = NeighborLoader(homogeneous_data(), [3], batch_size=10, num_workers=2)
    iterator = iter(loader)
    next(iterator)

    def go_on():
        with pytest.raises(PipelineError, match="belongs to the process that was forked"):
            next(iterator)
        return sum(batch.batch_size for batch in loader) != 300

    assert in_child(go_on) == 0
    assert sum(batch.batch_size for batch in iterator) == 290


@pytest.mark.parametrize("seed", range(20))
def test_what_was_begun_is_made_or_skipped(seed):
    random, made, skipped = np.random.default_rng(seed), [], []

    def make(index):
        made.append(index)
        time.sleep(random.uniform(0, 2e-4))
        return index

    workers = Threads(3, "made")
    for first in range(0, 100, 20):
        ahead = OrderedAhead(make, iter(range(first, first + 20)), workers, 8, skipped=skipped.append)
        for _ in range(random.integers(1, 4)):
            next(ahead)
        del ahead
    workers.submit(lambda: None).result(10)
    for _ in range(3):
        workers.submit(partial(time.sleep, 1e-3)).result(10)
    assert sorted(made + skipped) == sorted({*made, *skipped})
    for first in range(0, 100, 20):
        seen = sorted(index for index in (*made, *skipped) if first <= index < first + 20)
        assert seen == list(range(first, first + len(seen)))
        assert len(seen) >= 8


@pytest.mark.parametrize("how", [{}, {"layer_wise": True}, {"walks": Walks(num=4, length=2)}], ids=str)
def test_an_interrupt_within_a_sample_leaves_nothing_behind(how, monkeypatch):
    """Between what is entered in a table, and what is known of it."""
    options = dict(num_neighbors=[5, 3], batch_size=32, seed=3, **how)
    expected, loader = digests(NeighborLoader(homogeneous_data(), **options)), NeighborLoader(homogeneous_data(), **options)
    digests(loader)
    original, calls = DirectTable.relabel, []

    def relabel(*arguments):
        found = original(*arguments)
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(DirectTable, "relabel", relabel)
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "batch": 0})
    assert digests(loader) == expected
    assert len(calls) > 2


def test_passes_that_are_left_half_way_block_nobody():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        loader = NeighborLoader(homogeneous_data(), [2], batch_size=4, num_workers=4, prefetch_factor=8, timeout=20)
        for _ in range(300):
            iterator = iter(loader)
            next(iterator)
            del iterator
        assert sum(batch.batch_size for batch in loader) == 300
    finally:
        sys.setswitchinterval(interval)


def test_an_interrupt_between_threads_holds_up_nobody(monkeypatch):
    """The one that reads for all is interrupted when it has taken up what others wait for: one of them reads."""

    class Slow:
        num_rows, row_bytes = 100, [4]

        def submit(self, rows, outs, places):
            outs[0].view(np.int32)[places] = rows
            return self

        def wait(self):
            return 0

    reads, waiting, read = joint.JointReads(Slow()), threading.Event(), joint.JointReads._read_together
    out, errors = np.zeros(3, np.int32), []

    def interrupt(self, wishes):
        monkeypatch.setattr(joint.JointReads, "_read_together", read)
        if not waiting.is_set():
            other.start()
            while not reads._wishes:
                time.sleep(1e-3)
            reads._taken += reads._wishes  # as if it had come before
            reads._wishes = []
            waiting.set()
        raise KeyboardInterrupt

    def ask():
        try:
            reads.read(np.arange(3), out.view(np.uint8), np.arange(3))
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=ask)
    monkeypatch.setattr(joint.JointReads, "_read_together", interrupt)
    with pytest.raises(KeyboardInterrupt):
        reads.read(np.arange(5), np.zeros(20, np.uint8), np.arange(5))
    other.join(20)
    assert not other.is_alive()
    assert not errors
    assert out.tolist() == [0, 1, 2]


def test_a_ring_is_closed_once(monkeypatch):
    closed = []
    ring = _Ring.__new__(_Ring)
    ring._ring = 1234567

    def close(number):
        closed.append(number)
        raise KeyboardInterrupt  # as soon as it is done

    monkeypatch.setattr(os, "close", close)
    with pytest.raises(KeyboardInterrupt):
        ring.close()
    ring.__del__()
    assert closed == [1234567]


def test_two_threads_do_not_ask_one_iterator_at_the_same_time():
    inside, may_end = threading.Event(), threading.Event()

    def hold(batch):
        inside.set()
        assert may_end.wait(20)
        return batch

    iterator = iter(NeighborLoader(homogeneous_data(), [2], batch_size=100, num_workers=2, transform=hold))
    other = threading.Thread(target=next, args=(iterator,))
    other.start()
    assert inside.wait(20)
    with pytest.raises(UsageError, match="another thread asks this iterator for a batch just now"):
        next(iterator)
    may_end.set()
    other.join(20)
    assert [batch.input_id[0].item() for batch in iterator] == [100, 200]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_that_was_not_received_is_not_counted(num_workers, monkeypatch):
    loader = NeighborLoader(homogeneous_data(), [2], batch_size=50, num_workers=num_workers, seed=0)
    expected = digests(loader)
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "batch": 0})
    iterator, done = iter(loader), loader.engine.huge_pages.batch_delivered
    got = [penstock.digest(next(iterator))]

    def interrupt():
        monkeypatch.setattr(loader.engine.huge_pages, "batch_delivered", done)
        raise KeyboardInterrupt

    monkeypatch.setattr(loader.engine.huge_pages, "batch_delivered", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert list(iterator) == []  # what it would give next would be counted as the one that was lost
    assert loader.state_dict()["batch"] == 1
    loader.load_state_dict(loader.state_dict())
    got += digests(loader)
    assert got == expected


def test_the_state_as_another_thread_sees_it():
    loader, seen, states, is_over = NeighborLoader(homogeneous_data(), [2], batch_size=100, seed=0), [0], [], threading.Event()

    def look():
        while not is_over.is_set():
            state = loader.state_dict()
            states.append((3 * state["epoch"] + state["batch"], seen[0]))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    other = threading.Thread(target=look)
    other.start()
    try:
        for _ in range(200):
            for _ in loader:
                seen[0] += 1
    finally:
        is_over.set()
        other.join(20)
        sys.setswitchinterval(interval)
    assert states
    assert all(delivered <= counted + 1 for delivered, counted in states)


@pytest.mark.parametrize("num_started", [0, 1])
def test_a_system_that_starts_no_more_threads(num_started, monkeypatch):
    start, started = threading.Thread.start, []

    def few(thread):
        if thread.name == "penstock" and len(started) >= num_started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    loader = NeighborLoader(homogeneous_data(), [2], batch_size=100, num_workers=2)
    monkeypatch.setattr(threading.Thread, "start", few)
    if num_started:
        assert sum(batch.batch_size for batch in loader) == 300
        return
    with pytest.raises(PipelineError, match=r"no thread can be started \(can't start new thread\): raise the limit"):
        next(iter(loader))


def test_results_and_errors_of_threads():
    workers = Threads(2, "test")
    assert [pending.result(10) for pending in [workers.submit(partial(int, text)) for text in "123"]] == [1, 2, 3]
    with pytest.raises(ValueError, match="invalid literal"):
        workers.submit(partial(int, "x")).result(10)
    with pytest.raises(SystemExit):
        workers.submit(sys.exit).result(10)
    assert not threads.are_ending()
    before = [each for each in threading.enumerate() if each.name == "test"]
    del workers
    for each in before:
        each.join(10)
    assert len(before) == 2
    assert not any(each.is_alive() for each in before)


def test_at_exit_threads_that_ask_others_get_an_answer():
    script = """
import time
from penstock.threads import Threads
one, other, third = Threads(1, "one"), Threads(1, "other"), Threads(1, "third")
def ask():
    time.sleep(0.5)  # the others are told to end meanwhile
    print(sum(threads.submit(lambda: 1).result() for threads in (other, third) for _ in range(3)), flush=True)
other.submit(lambda: 1).result()
one.submit(ask)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("6\n", "")


SCRIPT = """
import numpy, os, threading, torch, time, penstock
from torch_geometric.data import Data
data = Data(x=torch.zeros(4000, 8), edge_index=torch.randint(0, 4000, (2, 40000)))
def slow(output):
    os.write(1, b".")
    time.sleep(0.05)
    return output
loader = penstock.NeighborLoader(data, [3], batch_size=10, num_workers=3, prefetch_factor=50, transform_sampler_output=slow{more})
iterator = iter(loader)
next(iterator)
threading._register_atexit(os.write, 1, b"over")  # the last one to register is the first one to be called
"""


@pytest.mark.parametrize("more", ["", ", plan=penstock.Plan(policy='belady', cache='10%', window=20)"])
def test_at_exit_what_has_not_begun_is_not_done(more):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore::FutureWarning", "-c", SCRIPT.format(more=more)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ""
    assert done.stdout.split("over")[1].count(".") < 30  # of the 150 asked for
