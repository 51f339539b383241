"""Reads through any stack of tiers equal the plain arrays: random stacks, policies, capacities, overlaps, failures and thread counts."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.cache import FIFO, LRU, Belady, Static
from penstock.cache.choose import DYNAMIC
from penstock.errors import TierError
from penstock.feed.turns import Turns
from penstock.gather import CachedTier, RowKind, SpooledTier, TieredTable
from penstock.store.tiers import HostTier, PackedTier, SlowTier
from tests.contract.tiers import FailingTier

NUM_ROWS = 40
capacities = st.one_of(st.integers(0, 2), st.integers(3, NUM_ROWS + 5))


@pytest.fixture(scope="module", autouse=True)
def _few_hits_are_copied_by_another_thread_too():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("penstock.gather.cached._BESIDE_BYTES", 0)
        yield


def make_arrays():
    """Rows that say which they are, of several dtypes and widths."""
    ids = np.arange(NUM_ROWS)
    return [
        np.stack([ids, -ids, ids * 7], 1).astype(np.float32),
        ids.astype(np.int64) * 3,
        (ids[:, None, None] + np.zeros((1, 2, 3))).astype(np.int16),
    ]


def kinds_of(arrays):
    return [RowKind(f"field{i}", array.dtype, array.shape[1:]) for i, array in enumerate(arrays)]


@st.composite
def stacks(draw, arrays):
    """One to three caches over an array that is slow or not. Returns (table, the fault switch)."""
    fault = {"on": False}
    tier = HostTier(arrays)
    if draw(st.booleans()):
        order = np.array(draw(st.permutations(range(NUM_ROWS))))
        tier = PackedTier(HostTier([array[order] for array in arrays]), np.argsort(order))
    if draw(st.booleans()):
        tier = SlowTier(FailingTier(tier, lambda number: OSError("torn") if fault["on"] else None), delay_s=1e-5)
    for level in range(draw(st.integers(0, 3))):
        capacity = draw(capacities)
        content = np.array(draw(st.permutations(range(NUM_ROWS))), np.int64)[: draw(st.integers(0, NUM_ROWS))]
        if draw(st.booleans()):
            tier = CachedTier(lambda c=capacity: Static(NUM_ROWS, c), tier, content, name=f"static{level}")
        else:
            policy = draw(st.sampled_from([*DYNAMIC.values()]))
            tier = CachedTier(lambda c=capacity, p=policy: p(NUM_ROWS, c), tier, content, name=f"{policy.name}{level}")
    return TieredTable(tier, kinds_of(arrays)), fault


def batch_of(data, most=NUM_ROWS):
    return np.array(data.draw(st.lists(st.integers(0, NUM_ROWS - 1), max_size=most)), np.int64)


def assert_rows(rows, ids, arrays):
    for values, array in zip(rows, arrays, strict=True):
        assert values.dtype == array.dtype
        assert values.shape == (ids.size, *array.shape[1:])
        assert values.tobytes() == array[ids].tobytes()


class Stack(RuleBasedStateMachine):
    """Reads that overlap in every way, some of which fail."""

    @initialize(data=st.data())
    def build(self, data):
        self.arrays = make_arrays()
        self.table, self.fault = data.draw(stacks(self.arrays))
        self.under_way = []

    @rule(data=st.data())
    def submit(self, data):
        ids = batch_of(data)
        if len(self.under_way) < 4:
            self.under_way.append((ids, self.table.submit(ids, are_distinct=False)))

    @rule()
    def end_the_first(self):
        if self.under_way:
            ids, read = self.under_way.pop(0)
            assert_rows(read.wait(), ids, self.arrays)

    @rule(data=st.data())
    def read_at_once(self, data):
        while self.under_way:
            self.end_the_first()
        ids = np.unique(batch_of(data))
        assert_rows(self.table.submit(ids).wait(), ids, self.arrays)

    @rule(data=st.data())
    def a_read_fails(self, data):
        while self.under_way:
            self.end_the_first()
        ids = np.unique(batch_of(data))
        self.fault["on"] = True
        try:
            assert_rows(self.table.submit(ids).wait(), ids, self.arrays)
        except TierError:  # or nothing was read from the tier that fails
            pass
        finally:
            self.fault["on"] = False

    @invariant()
    def counts_agree(self):
        for stats in (getattr(self, "table", None) and self.table.stats().values()) or ():
            assert stats.num_bytes == stats.num_rows * sum(self.table.tier.row_bytes)

    def teardown(self):
        while getattr(self, "under_way", None):
            self.end_the_first()


Stack.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestStack = Stack.TestCase


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_many_threads_share_a_stack(data):
    arrays = make_arrays()
    table, _ = data.draw(stacks(arrays))
    batches = [np.unique(batch_of(data)) for _ in range(data.draw(st.integers(1, 12)))]
    num_threads, turns, results, errors = data.draw(st.integers(1, 4)), Turns(), {}, []

    def work(first):
        try:
            for number in range(first, len(batches), num_threads):
                with turns.of(number):
                    read = table.submit(batches[number])
                results[number] = read.wait()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(first,), daemon=True) for first in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not errors
    for number, ids in enumerate(batches):
        assert_rows(results[number], ids, arrays)


@pytest.mark.parametrize("policy", DYNAMIC.values(), ids=DYNAMIC)
def test_hits_do_not_depend_on_the_threads(policy):
    arrays, random = make_arrays(), np.random.default_rng(0)
    batches = [np.unique(random.zipf(1.5, 12) % NUM_ROWS) for _ in range(60)]
    counts = []
    for num_threads in (1, 3):
        table = TieredTable(CachedTier(lambda: policy(NUM_ROWS, 10), SlowTier(HostTier(arrays), delay_s=1e-4)), kinds_of(arrays))
        turns = Turns()

        def work(first, table=table, turns=turns, num_threads=num_threads):
            for number in range(first, len(batches), num_threads):
                with turns.of(number):
                    read = table.submit(batches[number])
                assert_rows(read.wait(), batches[number], arrays)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        counts.append({name: stats.num_rows for name, stats in table.stats().items()})
    assert counts[0] == counts[1]
    assert counts[0]["cache"] > 0


def test_after_a_failure_all_is_well():
    arrays, failing = make_arrays(), {1}
    slow = SlowTier(FailingTier(HostTier(arrays), lambda number: OSError("torn") if number in failing else None))
    table = TieredTable(CachedTier(lambda: FIFO(NUM_ROWS, 20), slow), kinds_of(arrays))
    first, second, third = (table.submit(np.arange(i, i + 8)) for i in (0, 4, 8))
    assert_rows(first.wait(), np.arange(8), arrays)
    with pytest.raises(TierError, match="torn"):
        second.wait()
    assert_rows(third.wait(), np.arange(8, 16), arrays)  # it was to hit rows that never came
    for start in (4, 8, 0):
        ids = np.arange(start, start + 8)
        assert_rows(table.submit(ids).wait(), ids, arrays)


@pytest.mark.parametrize("where", ["deciding", "copying misses in"])
def test_an_interrupt_leaves_no_rows_that_never_came(where, monkeypatch):
    """As by Ctrl-C, which may come between any two steps: the directory then lists rows that the cache does not have."""
    arrays = make_arrays()
    cache = CachedTier(lambda: LRU(NUM_ROWS, 20), HostTier(arrays))
    table = TieredTable(cache, kinds_of(arrays))
    assert_rows(table.submit(np.arange(10)).wait(), np.arange(10), arrays)
    access = cache.policy.access

    def interrupt(*given):
        if where == "deciding":
            access(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*((cache.policy, "access") if where == "deciding" else (cache._fast, "write")), interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.submit(np.arange(5, 15)).wait()
    for start in (5, 3, 12):
        ids = np.arange(start, start + 9)
        assert_rows(table.submit(ids).wait(), ids, arrays)


def test_an_interrupt_while_a_batch_is_announced(monkeypatch):
    arrays = make_arrays()
    cache = CachedTier(lambda: Belady(NUM_ROWS, 12, 1), HostTier(arrays))
    announce = cache.policy.announce

    def interrupt(ids):
        announce(ids)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache.policy, "announce", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.announce(np.arange(5))
    cache.restart()
    ids = np.arange(3, 9)
    cache.announce(ids)
    assert_rows(TieredTable(cache, kinds_of(arrays)).submit(ids).wait(), ids, arrays)


def test_a_pass_that_nobody_ends_does_not_hold_up_the_next(monkeypatch):
    monkeypatch.setattr("penstock.gather.cached._DRAIN_S", 0.05)
    arrays = make_arrays()
    cache = CachedTier(lambda: LRU(NUM_ROWS, 20), HostTier(arrays))
    table = TieredTable(cache, kinds_of(arrays))
    table.submit(np.arange(10))  # as when a user interrupts: decided, never waited for
    late = table.submit(np.arange(5, 15))
    cache.restart()
    for start in (3, 5, 0):
        ids = np.arange(start, start + 9)
        assert_rows(table.submit(ids).wait(), ids, arrays)
    assert_rows(late.wait(), np.arange(5, 15), arrays)
    assert_rows(table.submit(np.arange(20)).wait(), np.arange(20), arrays)


def test_belady_is_told_ahead():
    arrays, random = make_arrays(), np.random.default_rng(1)
    batches = [np.unique(random.integers(0, NUM_ROWS, 15)) for _ in range(30)]
    cache = CachedTier(lambda: Belady(NUM_ROWS, 12, 5), HostTier(arrays))
    table, announced = TieredTable(cache, kinds_of(arrays)), 0
    for number, ids in enumerate(batches):
        while announced < min(number + 5, len(batches)):
            cache.announce(batches[announced])
            announced += 1
        assert_rows(table.submit(ids).wait(), ids, arrays)
    cache.announce(batches[0])
    cache.restart()
    cache.announce(batches[3])
    assert_rows(table.submit(batches[3]).wait(), batches[3], arrays)


def test_the_first_content_is_read_in_the_order_of_the_file(monkeypatch):
    monkeypatch.setattr("penstock.gather.cached._FILLED_AT_ONCE", 7)
    arrays, asked = make_arrays(), []
    beneath, content = HostTier(arrays), np.random.default_rng(0).permutation(NUM_ROWS)[:20]
    submit = beneath.submit
    beneath.submit = lambda rows, *where: asked.append(rows) or submit(rows, *where)
    cache = CachedTier(lambda: Belady(NUM_ROWS, 20, 2), beneath, content)
    assert np.concatenate(asked).tolist() == sorted(content)
    assert [each.size for each in asked] == [7, 7, 6]
    ids = np.arange(NUM_ROWS)
    cache.announce(ids)
    assert_rows(TieredTable(cache, kinds_of(arrays)).submit(ids).wait(), ids, arrays)
    assert cache.stats.num_rows == 20


def test_a_full_static_cache_reads_nothing_below():
    arrays = make_arrays()
    slow = HostTier(arrays)
    table = TieredTable(CachedTier(lambda: Static(NUM_ROWS, NUM_ROWS), slow, np.arange(NUM_ROWS)), kinds_of(arrays))
    assert slow.stats.num_rows == NUM_ROWS
    table.submit(np.arange(NUM_ROWS)).wait()
    assert slow.stats.num_rows == NUM_ROWS


def test_a_forked_child_has_its_own_thread_for_hits():
    arrays, ids = make_arrays(), np.arange(10)
    table = TieredTable(CachedTier(lambda: FIFO(NUM_ROWS, 12), HostTier(arrays)), kinds_of(arrays))
    table.submit(ids).wait()
    table.submit(ids + 5).wait()  # half of them hits
    begun = table.submit(ids)
    child = os.fork()
    if child == 0:
        for read, wanted in ((begun, ids), (table.submit(ids + 3), ids + 3), (table.submit(ids), ids)):
            assert_rows(read.wait(), wanted, arrays)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert_rows(begun.wait(), ids, arrays)


def test_reads_around_a_spool_share_the_thread_for_hits(tmp_path):
    arrays, ids = make_arrays(), np.arange(NUM_ROWS)
    spool = SpooledTier(HostTier(arrays), tmp_path, 64 << 20, 2)
    table = TieredTable(CachedTier(lambda: Static(NUM_ROWS, 12), spool, ids[:12]), kinds_of(arrays))
    before = sum(thread.name.startswith("penstock-hits") for thread in threading.enumerate())
    for _ in range(5):
        assert_rows(table.submit(ids, around=True).wait(), ids, arrays)
    assert sum(thread.name.startswith("penstock-hits") for thread in threading.enumerate()) == before + 1
