"""What overlapped with what: spans on one axis, cut at its ends, complete, bounded; and what they sum up to."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import penstock
from penstock.feed.timeline import MAX_SPANS, NUM_BATCHES, STAGES, Recording, merge
from penstock.gather import RowKind, TieredTable
from penstock.plan import Plan
from penstock.store import ingest
from penstock.store.tiers import HostTier, SlowTier
from tests.feed.inputs import homogeneous_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=4, shuffle=True, seed=3)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return ingest(homogeneous_data(), tmp_path_factory.mktemp("timeline") / "store", memory="4GiB")


def spans_of(timeline, stage):
    return [(begin, end) for name, _, begin, end, _ in timeline["spans"] if name == stage]


def check(timeline):
    """What holds of every timeline: the axis is filled, by its user and by his waiting, and nothing leaves it."""
    assert 0 < len(timeline["spans"]) <= MAX_SPANS
    for stage, _, begin, end, thread in timeline["spans"]:
        assert stage in STAGES
        assert 0 <= begin <= end <= timeline["seconds"]
        assert thread >= 0
    ends = [begin for stage in ("train", "stall") for begin, _ in spans_of(timeline, stage)]
    assert min(ends) == 0
    whole = merge([*spans_of(timeline, "train"), *spans_of(timeline, "stall"), *spans_of(timeline, "assemble")])
    assert sum(end - begin for begin, end in whole) >= 0.98 * timeline["seconds"] - 0.002
    for stage, covered in timeline["covered_s"].items():
        assert 0 <= covered <= min(timeline["seconds"], timeline["busy_s"][stage]) + 1e-4
    assert 0 <= timeline["read_hidden_s"] <= timeline["covered_s"].get("read", 0.0) + 1e-4


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_every_kind_of_work_of_a_window(num_workers, store):
    plan = Plan(features="disk", topology="disk", policy="belady", cache="30%", window=6)
    loader = penstock.NeighborLoader(store, **OPTIONS, input_nodes="train", num_workers=num_workers, plan=plan)
    assert loader.timeline() is None
    for epoch in range(2):
        for _batch in loader:
            time.sleep(1e-4)
        timeline = loader.timeline()
        check(timeline)
        assert timeline["epoch"] == epoch
        assert (timeline["first_batch"], timeline["num_batches"]) == ((len(loader) - NUM_BATCHES) // 2, NUM_BATCHES)
        assert set(timeline["busy_s"]) == set(STAGES)
        batches = {number for stage, number, *_ in timeline["spans"] if stage == "sample"}
        assert any(number >= timeline["first_batch"] + NUM_BATCHES for number in batches)  # sampled ahead, on this axis
        trained = {number for stage, number, *_ in timeline["spans"] if stage == "train"}
        assert trained == set(range(timeline["first_batch"], timeline["first_batch"] + NUM_BATCHES))
    tiers = loader.stats().tiers
    assert tiers["cache"]["decide_s"] > 0
    assert tiers["cache"]["update_s"] > 0
    assert tiers["disk"]["update_s"] == 0


@pytest.mark.parametrize("plan", [None, dict(policy="degree", cache="10%"), dict(features="disk")], ids=str)
def test_other_plans(plan, store):
    loader = penstock.NeighborLoader(store, **OPTIONS, input_nodes="train", num_workers=2, plan=plan and Plan(**plan))
    for _batch in loader:
        pass
    timeline = loader.timeline()
    check(timeline)
    assert ("read" in timeline["busy_s"]) == (plan is not None)
    assert {"sample", "gather", "stall", "train"} <= set(timeline["busy_s"])


def test_reads_are_hidden_or_not():
    """A device of 4 ms a read: nothing of it is hidden where all is made by the caller, all of it behind a slow user."""
    data = homogeneous_data()
    for num_workers, pause_s, hidden in ((0, 0.0, 0.0), (3, 0.008, 1.0)):
        table = TieredTable(SlowTier(HostTier([data.x.numpy()]), delay_s=4e-3, rows_per_request=1000), [RowKind("x", np.dtype("f4"), (2,))])
        options = dict(input_nodes=data.train_mask, tables={"node": table}, num_workers=num_workers)
        loader = penstock.NeighborLoader(data, **OPTIONS, **options)
        for _batch in loader:
            time.sleep(pause_s)
        timeline = loader.timeline()
        check(timeline)
        reading = timeline["covered_s"]["read"]
        assert reading > 0.004 * NUM_BATCHES * 0.5
        assert timeline["read_hidden_s"] / reading == pytest.approx(hidden, abs=0.5)


def test_short_epochs_and_leaving_early(store):
    loader = penstock.NeighborLoader(store, **{**OPTIONS, "batch_size": 40}, input_nodes="train", num_workers=2)
    for _batch in loader:
        pass
    whole = loader.timeline()
    assert (whole["first_batch"], whole["num_batches"]) == (0, len(loader))
    for _batch in itertools.islice(loader, 2):
        pass
    assert loader.timeline()["epoch"] == 1
    check(loader.timeline())
    state = loader.state_dict()
    loader.load_state_dict({**state, "epoch": 4, "batch": len(loader) - 1})
    for _batch in loader:
        pass
    assert (loader.timeline()["epoch"], loader.timeline()["num_batches"]) == (4, 1)


def test_what_was_done_before_and_after_the_axis_is_cut():
    recording = Recording(epoch=0, first=0, stop=3, num_batches=1)
    now = time.perf_counter()
    for number in range(3):
        at = now + 10 * number
        recording.delivered(number, at, at + 1, [("sample", at - 15, at - 11, 7), ("read", at - 5, at + 0.5, 7), ("decide", at, at, 7)])
    recording.over(3, now + 30)
    timeline = recording.as_dict()
    assert timeline["seconds"] == 10
    assert spans_of(timeline, "read") == [(0, 0.5), (5, 10)]
    assert spans_of(timeline, "sample") == []
    assert spans_of(timeline, "stall") == [(0, 1)]
    assert timeline["read_hidden_s"] == 5
    assert timeline["busy_s"]["read"] == 5.5


def test_memory_is_bounded():
    recording, now = Recording(0, 0, 100), time.perf_counter()
    for number in range(100):
        recording.delivered(number, now + number, now + number + 0.5, [("sample", now + number, now + number + 1, 1)] * 1000)
    assert len(recording.as_dict()["spans"]) <= MAX_SPANS


def test_merging():
    random = np.random.default_rng(0)
    for _ in range(50):
        begins = random.integers(0, 50, 12)
        spans = [(int(begin), int(begin + length)) for begin, length in zip(begins, random.integers(1, 6, 12), strict=True)]
        covered = {second for begin, end in spans for second in range(begin, end)}
        merged = merge(spans)
        assert {second for begin, end in merged for second in range(begin, end)} == covered
        assert all(one[1] < other[0] for one, other in itertools.pairwise(merged))


def test_threads_are_numbered(store):
    loader = penstock.NeighborLoader(store, **OPTIONS, input_nodes="train", num_workers=3, plan=Plan(features="disk"))
    with ThreadPoolExecutor(1) as pool:  # whoever iterates need not be the main thread
        pool.submit(lambda: [time.sleep(1e-3) for _ in loader]).result()
    threads = {thread for *_, thread in loader.timeline()["spans"]}
    assert threads == set(range(len(threads)))
    assert 2 <= len(threads) <= 4
