"""Small parts on their own: reading ahead, budgets, histograms, buckets."""

import threading
import time
import tracemalloc
from contextlib import nullcontext

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BudgetError, UsageError
from penstock.store import process_memory
from penstock.store.budget import LEAST_BYTES, MIB, default_bound, format_bytes, parse_bytes, plan_budget
from penstock.store.ingestion.build import PLAN_CELL_BYTES
from penstock.store.ingestion.histogram import DegreeHistogram
from penstock.store.ingestion.prefetch import prefetch
from penstock.store.ingestion.spill import plan_buckets
from penstock.store.process_memory import free_bytes


def test_prefetch_keeps_order_and_reads_little_ahead():
    made = []
    items = prefetch(made.append(i) or i for i in range(100))
    for expected in range(100):
        assert next(items) == expected
        assert len(made) <= expected + 4
    assert list(items) == []


def test_prefetch_brings_errors_to_the_consumer():
    def broken():
        yield 1
        raise InterruptedError("disk on fire")

    items = prefetch(broken())
    assert next(items) == 1
    with pytest.raises(InterruptedError, match="disk on fire"):
        next(items)


def test_prefetch_that_is_left_early_leaves_no_thread():
    before = threading.active_count()
    for _ in range(10):
        items = prefetch(iter(range(1000)))
        next(items)
        items.close()
    deadline = time.monotonic() + 2
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("text", "count"),
    [("1024", 1024), (512, 512), ("768MiB", 768 * MIB), ("16GiB", 16 << 30), ("2GB", 2 * 10**9), ("1.5 KiB", 1536), ("4g", 4 * 10**9)],
)
def test_parse_bytes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "1XB", "1e3", "-5", "9" * 400, None])
def test_parse_bytes_refuses(text):
    with pytest.raises(UsageError, match="as a number of bytes"):
        parse_bytes(text)


def test_format_bytes():
    assert [format_bytes(n) for n in (0, 1023, 1536, 5 * MIB, 3 << 30, 1 << 50)] == [
        "0 B",
        "1023 B",
        "2 KiB",
        "5.0 MiB",
        "3.0 GiB",
        "1024.0 TiB",
    ]


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_shares_add_up_to_no_more_than_the_bound(bound, baseline):
    try:
        budget = plan_budget(bound, baseline)
    except BudgetError:
        assert bound < baseline + LEAST_BYTES
        return
    assert budget.chunk_bytes >= MIB
    assert budget.baseline_bytes + budget.stream_bytes + budget.work_bytes < bound
    assert format_bytes(bound) in budget.describe()


@given(st.integers(0, 1 << 34), st.integers(0, 1 << 34), st.integers(0, 1 << 34), st.integers(0, 1 << 34))
def test_what_is_asked_for_is_enough(free, files, baseline, readers):
    plan_budget(baseline + readers + LEAST_BYTES, baseline, readers)
    bound, least = default_bound(baseline, free, files, readers), LEAST_BYTES + readers
    assert bound == baseline + max(max(0, free - files) // 2, min(free, least))
    with nullcontext() if free >= least else pytest.raises(BudgetError, match=r" at least, and .* are free$"):
        plan_budget(bound, baseline, readers, free)


def test_free_bytes_is_a_sane_number():
    assert 0 < free_bytes() < 1 << 50


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_containers_are_those_of_the_groups_around(version, monkeypatch):
    """A job's limit, say, around the group of the process; and a file in memory is no cache that gives way."""
    base, limit, used, cache, shared = (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem")
        if version == 1
        else ("/sys/fs/cgroup", "memory.max", "memory.current", "file", "shmem")
    )
    files = {"/proc/self/cgroup": ["4:memory:/job/step"] if version == 1 else ["0::/job/step"]}
    for group, most in (("/job/step", str(1 << 63) if version == 1 else "max"), ("/job", str(700 << 20))):
        files |= {f"{base}{group}/{limit}": [most], f"{base}{group}/{used}": [str(500 << 20)]}
        files[f"{base}{group}/memory.stat"] = [f"{cache} {300 << 20}", f"{shared} {50 << 20}", "anon 7", f"slab_reclaimable {20 << 20}"]
    monkeypatch.setattr(process_memory, "_read_lines", lambda path: files.get(str(path), []))
    assert process_memory.free_in_container() == ((700 - 500 + 300 - 50) << 20) + (version == 2) * (20 << 20) + psutil.swap_memory().free
    files["/proc/self/cgroup"] = []
    assert process_memory.free_in_container() is None


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("quota", "cores"), [(150000, 2), (50000, 1), (800000, 8), (6400000, 16), (None, 16)])
def test_cores_are_those_that_the_time_of_a_container_comes_to(version, quota, cores, monkeypatch):
    """A pod's limit, say, on a machine of which it sees all cores."""
    folder = "/sys/fs/cgroup/cpu/pod" if version == 1 else "/sys/fs/cgroup/pod"
    files = {"/proc/self/cgroup": ["2:cpu,cpuacct:/pod/container"] if version == 1 else ["0::/pod/container"]}
    if version == 1:
        files |= {f"{folder}/cpu.cfs_quota_us": [str(quota or -1)], f"{folder}/cpu.cfs_period_us": ["100000"]}
    else:
        files |= {f"{folder}/cpu.max": [f"{quota or 'max'} 100000"], f"{folder}/container/cpu.max": ["max 100000"]}
    monkeypatch.setattr(process_memory, "_read_lines", lambda path: files.get(str(path), []))
    monkeypatch.setattr(process_memory.os, "sched_getaffinity", lambda process: set(range(16)))
    assert process_memory.usable_cores() == cores
    files.clear()
    assert process_memory.usable_cores() == 16


@given(st.lists(st.lists(st.integers(0, 500), max_size=20), max_size=10), st.sampled_from([2, 3, 16, 1000]), st.booleans())
def test_histogram_folds_as_ids_grow(batches, max_cells, knows_keys):
    histogram = DegreeHistogram(501 if knows_keys else None, max_cells)
    for batch in batches:
        histogram.add(np.array(batch, np.int64), max(batch, default=0))
    histogram.finish()
    keys = np.array([key for batch in batches for key in batch], np.int64)
    num_keys = 501 if knows_keys else int(keys.max(initial=-1)) + 1
    assert (histogram.num_keys, histogram.num_records) == (num_keys, keys.size)
    assert histogram.counts.size <= max_cells
    np.testing.assert_array_equal(histogram.counts, np.bincount(keys >> histogram.shift, minlength=-(-num_keys >> histogram.shift)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([2, 7, 1000]), st.sampled_from([30, 100, 1000, 10**6]))
def test_buckets_cover_and_fit(seed, num_keys, max_cells, bucket_bytes):
    keys = np.random.default_rng(seed).integers(0, num_keys, 200) ** 2 // num_keys
    histogram = DegreeHistogram(num_keys, max_cells)
    histogram.add(keys, num_keys - 1)
    histogram.coarsen(max_cells // 2)
    assert histogram.counts.size <= max(2, max_cells // 2)
    buckets = plan_buckets(histogram, 12, bucket_bytes)
    assert (buckets.bounds[0], buckets.bounds[-1], buckets.starts[0], buckets.starts[-1]) == (0, num_keys, 0, 200)
    for low, high, first, end in zip(buckets.bounds, buckets.bounds[1:], buckets.starts, buckets.starts[1:], strict=False):
        assert low < high
        assert end - first == np.count_nonzero((keys >= low) & (keys < high))
        is_one_cell = high - low <= 1 << histogram.shift
        assert is_one_cell or 8 * (high - low) + 12 * (end - first) <= bucket_bytes


def test_planning_buckets_takes_the_memory_that_limits_count_on():
    num_cells = 1 << 16
    tracemalloc.start()
    histogram = DegreeHistogram(num_cells, num_cells)
    histogram.add(np.arange(num_cells), num_cells - 1)
    plan_buckets(histogram, 12, 1 << 20)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1.1 * PLAN_CELL_BYTES * num_cells
