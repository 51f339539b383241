"""Buffers come back by themselves, and never while anyone still looks."""

import gc
import pickle
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.feed import NeighborLoader, buffers
from penstock.feed.buffers import BufferPool
from penstock.feed.maker import BatchMaker
from penstock.plan import Plan
from penstock.store import ingest
from tests.feed.inputs import digests, homogeneous_data


@pytest.fixture
def everything_pooled(monkeypatch):
    """Recycle small arrays too, so that small tests exercise the pool."""
    monkeypatch.setattr(buffers, "SMALLEST_BYTES", 1)


def test_a_kept_epoch_stays_as_it_was(everything_pooled):
    data = homogeneous_data()
    loader = NeighborLoader(data, [5, 5], batch_size=16, shuffle=True, num_workers=3, seed=0)
    kept = list(loader)
    expected = digests(kept)
    for _ in range(3):
        for _ in loader:
            pass
    assert digests(kept) == expected
    assert loader.stats().peak_buffer_bytes > 0


def test_any_view_keeps_its_memory(everything_pooled):
    data = homogeneous_data()
    loader = NeighborLoader(data, [5], batch_size=50, num_workers=2, seed=0)
    views = []
    for batch in loader:
        ids = batch.n_id.clone()
        views.append((batch.x[3:5, 1:], data.x[ids][3:5, 1:]))
        views.append((torch.from_numpy(batch.x.numpy()[::7]), data.x[ids][::7]))
        views.append((batch.x.t().detach(), data.x[ids].t()))
        views.append((batch.edge_index[0][2:], batch.edge_index[0][2:].clone()))
    for _ in range(5):
        for batch in loader:
            batch.x.fill_(-1e9)
    for view, expected in views:
        assert torch.equal(view, expected)


def test_memory_is_used_again(everything_pooled):
    pool = BufferPool()
    for _ in range(100):
        array = pool.empty(1000, np.float32)
        array[:] = 1
        del array
    gc.collect()
    assert pool.total_bytes <= 2 * 4000 * 17 // 16


def test_what_is_needed_for_a_while_takes_no_memory_of_the_rest(monkeypatch):
    """As in bidirectional batches: the sample is made of two arrays, which are gone before the features come."""
    made = []
    monkeypatch.setattr(buffers, "_Buffer", lambda num_bytes, make=buffers._Buffer: made.append(num_bytes) or make(num_bytes))
    pool = BufferPool()
    for number in range(20):
        sample = [pool.empty(size, np.uint8) for size in (10_000_000, 5_000_000)]
        both = [pool.empty(size, np.uint8) for size in (20_000_000, 9_000_000)]
        del sample
        features = pool.empty(127_000_000, np.uint8)
        assert len(made) <= 5, f"batch {number} has new memory: {made}"
        del both, features


def test_memory_follows_batches_that_grow():
    pool = BufferPool()
    for size in range(4_000_000, 40_000_000, 1_000_000):
        array = pool.empty(size, np.uint8)
        del array
        assert pool.total_bytes <= 1.25 * size * 17 / 16


def test_large_arrays_are_page_aligned_and_reused():
    pool = BufferPool()
    first = pool.empty(3 << 20, np.uint8)
    address = first.ctypes.data
    assert address % 4096 == 0
    del first
    second = pool.empty((3 << 20) + 1000, np.uint8)
    assert second.ctypes.data == address


@given(st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=60))
def test_live_arrays_never_overlap(requests):
    before, buffers.SMALLEST_BYTES = buffers.SMALLEST_BYTES, 1
    try:
        pool, live = BufferPool(), []
        for i, (size, drop) in enumerate(requests):
            array = pool.empty(size, np.uint8)
            array[:] = i % 251
            live.append((i % 251, array))
            del array
            if drop:
                live.pop(len(live) // 2)
            for value, kept in live:
                assert (kept == value).all()
    finally:
        buffers.SMALLEST_BYTES = before


def test_pool_from_many_threads(everything_pooled):
    pool, failures = BufferPool(), []

    def work(number):
        for round_ in range(300):
            array = pool.empty(500 + round_, np.int64)
            array[:] = number
            other = array[::3]
            del array
            if not (other == number).all():
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures


def test_batches_pickle_at_their_own_size():
    data = homogeneous_data()
    batch = next(iter(NeighborLoader(data, [5], batch_size=10)))
    copy = pickle.loads(pickle.dumps(batch))
    assert penstock.digest(copy) == penstock.digest(batch)
    assert batch.n_id.untyped_storage().nbytes() == batch.n_id.numel() * 8


def take_all(loader, is_given_up):
    """Digests of a pass; each batch is given up before the next is asked for, or kept until that is there."""
    found, batches = [], iter(loader)
    while (batch := next(batches, None)) is not None:
        found.append(penstock.digest(batch))
        if is_given_up:
            del batch
    return found


@pytest.mark.parametrize("plan", [dict(hold="samples"), dict(hold="ids")], ids=str)
def test_one_more_batch_is_begun_in_the_place_of_one_given_up(plan, everything_pooled, tmp_path, monkeypatch):
    at_once, most = [0], [0]
    finish = BatchMaker.finish

    def slowly(*arguments):
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.005)
        try:
            return finish(*arguments)
        finally:
            at_once[0] -= 1

    store = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    options = dict(batch_size=16, shuffle=True, num_workers=3, seed=0, prefetch_factor=1)
    plan = Plan(features="disk", policy="belady", cache="10%", window=3, **plan)
    plain = NeighborLoader(store, [5, 5], **options)
    expected = [take_all(plain, is_given_up=False) for _ in range(2)]
    kept, given_up = (NeighborLoader(store, [5, 5], plan=plan, **options) for _ in range(2))
    monkeypatch.setattr(BatchMaker, "finish", slowly)
    assert [take_all(kept, is_given_up=False) for _ in range(2)] == expected
    assert most == [1]
    assert [take_all(given_up, is_given_up=True) for _ in range(2)] == expected
    assert most == [2]
    assert given_up.stats().peak_buffer_bytes <= 1.3 * kept.stats().peak_buffer_bytes
