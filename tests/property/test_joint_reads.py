"""Reads of several threads made one: each gets what it would have read alone, whoever reads, fails or never comes again."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TierError
from penstock.sample import joint
from penstock.store.tiers import Deferred, HostTier

ELEMENTS = np.arange(5000, dtype=np.int32) * 7


class Counted:
    """Elements of an array, slowly; says how many were read at once."""

    name, device, num_rows, row_bytes = "counted", "cpu", ELEMENTS.size, (4,)

    def __init__(self, delay_s=0.0, fails=()):
        self.tier, self.delay_s, self.fails, self.sizes = HostTier([ELEMENTS]), delay_s, set(fails), []

    def submit(self, rows, outs, places):
        read, number = self.tier.submit(rows, outs, places), len(self.sizes)
        self.sizes.append(rows.size)

        def work():
            time.sleep(self.delay_s)
            if number in self.fails:
                raise TierError(f"read {number} failed")
            return read.wait()

        return Deferred(work)


def read(reads, positions):
    out = np.full(positions.size, -1, np.int32)
    order = np.random.default_rng(positions.size).permutation(positions.size)
    num_bytes = reads.read(positions[order], out.view(np.uint8), order)
    assert num_bytes == 4 * positions.size
    return out


@settings(max_examples=30)
@given(st.integers(1, 6), st.lists(st.integers(0, 300), min_size=1, max_size=12), st.sampled_from([0, 1, 200, 1 << 20]), st.integers(0, 99))
def test_each_thread_gets_its_own(num_threads, sizes, most, seed):
    wanted = [np.random.default_rng(seed + i).integers(0, ELEMENTS.size, size) for i, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(num_threads) as threads:
        patched.setattr(joint, "MOST_AT_ONCE", most)
        patched.setattr(joint, "LINGER_S", (0.001, 0.002))
        tier = Counted()
        reads = joint.JointReads(tier)
        for positions, found in zip(wanted, threads.map(lambda p: read(reads, p), wanted), strict=True):
            assert (found == ELEMENTS[positions]).all()
    assert sum(tier.sizes) == sum(sizes)
    assert max(tier.sizes) <= max(most, *sizes)


def test_threads_keep_in_step():
    tier, barrier = Counted(delay_s=0.005), threading.Barrier(4)
    reads, positions = joint.JointReads(tier), np.arange(10)

    def hops(number):
        barrier.wait()
        for _ in range(10):
            assert (read(reads, positions + 10 * number) == ELEMENTS[positions + 10 * number]).all()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(hops, range(4)))
    assert tier.sizes.count(40) >= 7  # all four together, but at the beginning and the end
    assert sum(tier.sizes) == 400


def test_nobody_waits_for_a_thread_that_does_not_come():
    tier = Counted(delay_s=0.01)
    reads = joint.JointReads(tier)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: read(reads, np.arange(3)), range(3)))
    started = time.perf_counter()
    for _ in range(20):  # one thread is left
        read(reads, np.arange(3))
    assert time.perf_counter() - started < 20 * 0.01 + 2 * joint.LINGER_S[1] + 1


def test_threads_that_are_elsewhere_are_waited_for_less_and_less():
    """As where each edge type is read by itself: whoever took part before is at the lists of another by now."""
    all_reads = [joint.JointReads(Counted()) for _ in range(12)]

    def work(number):
        for i in range(240):
            read(all_reads[(i * (number + 1)) % 12], np.arange(3))

    started = time.perf_counter()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert time.perf_counter() - started < 240 * joint.LINGER_S[0] / 4


def test_an_error_is_raised_in_all_that_took_part_and_in_no_other():
    tier = Counted(delay_s=0.02, fails=[1])
    reads, barrier = joint.JointReads(tier), threading.Barrier(3)
    errors = []

    def attempt(number):
        barrier.wait()
        try:
            read(reads, np.arange(5) + number)
        except TierError as error:
            errors.append(error)

    read(reads, np.arange(5))
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(attempt, range(3)))
    assert 1 <= len(errors) == tier.sizes[1] // 5
    assert all(str(error) == "read 1 failed" for error in errors)
    assert len({id(error) for error in errors}) == len(errors)  # each says of its own where it happened
    assert (read(reads, np.arange(5)) == ELEMENTS[:5]).all()


def test_an_interrupted_thread_leaves_no_wish_behind(monkeypatch):
    tier = Counted()
    reads = joint.JointReads(tier)
    out = np.zeros(2, np.int32)
    with monkeypatch.context() as patched:
        patched.setattr(reads._changed, "wait_for", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            reads.read(np.arange(1, 3), out.view(np.uint8), np.arange(2))
    assert (read(reads, np.arange(4)) == ELEMENTS[:4]).all()
    assert tier.sizes == [4]
    assert not out.any()


def test_a_forked_child_reads_for_itself():
    reads = joint.JointReads(Counted(delay_s=0.3))
    with ThreadPoolExecutor(1) as threads:
        busy = threads.submit(read, reads, np.arange(3))
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            os._exit(0 if (read(reads, np.arange(9)) == ELEMENTS[:9]).all() else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert (busy.result() == ELEMENTS[:3]).all()
