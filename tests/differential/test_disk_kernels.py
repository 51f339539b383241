"""Kernels of the disk against their definitions: plans of reads, what is done about what came, and whole reads."""

import errno
import os
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.plan_reads import reference as plans
from penstock.kernels.read_pages import reference, rules
from penstock.store.tiers.disk_plan import plan_reads
from tests.disks import DEVICES, make_tier, read
from tests.graphs import assert_same_bytes

rows = st.lists(st.integers(0, 400), max_size=60)
widths = st.one_of(st.sampled_from([1, 4, 8, 512, 4096]), st.integers(1, 700), st.integers(3000, 9000))


@st.composite
def layouts(draw):
    block = draw(st.sampled_from([512, 4096]))
    most = block * draw(st.integers(1, 20))
    return dict(block_bytes=block, gap_bytes=draw(st.sampled_from([0, 1, 511, 512, 4096, 10_000])), max_bytes=most)


@given(rows, widths, st.sampled_from([0, 1, 128, 4096, 5000]), layouts())
def test_plans_equal_their_definition(rows, row_bytes, offset, layout):
    rows = np.array(rows, np.int64)
    plan = plan_reads(rows, row_bytes, offset, **layout)
    assert_same_bytes(plan.rows, np.sort(rows))
    assert_same_bytes(plan.rows, rows[plan.order])
    expected = plans.plan_reads(plan.rows, row_bytes, offset, *layout.values())
    for ours, theirs in zip((plan.starts, plan.lengths, plan.firsts, plan.lasts), expected[:4], strict=True):
        assert_same_bytes(ours, np.ascontiguousarray(theirs))
    assert plan.num_pages == expected[4]


@given(rows, widths, st.sampled_from([0, 4096, 77]), layouts())
def test_plans_keep_their_promises(rows, row_bytes, offset, layout):
    plan = plan_reads(np.array(rows, np.int64), row_bytes, offset, **layout)
    block, ends = layout["block_bytes"], plan.starts + plan.lengths
    assert (plan.starts % block == 0).all()
    assert (plan.lengths % block == 0).all()
    assert (plan.lengths <= layout["max_bytes"]).all()
    assert (plan.starts[1:] >= ends[:-1]).all()  # nothing twice
    pieces = np.zeros(len(rows), np.int64)
    for start, end, first, last in zip(plan.starts, ends, plan.firsts, plan.lasts, strict=True):
        begins = offset + plan.rows[first:last] * row_bytes
        inside = np.minimum(begins + row_bytes, end) - np.maximum(begins, start)
        assert (inside > 0).all()
        pieces[first:last] += inside
    assert (pieces == row_bytes).all()  # every byte of every row
    needed = {b for r in rows for b in range((offset + r * row_bytes) // block, (offset + (r + 1) * row_bytes - 1) // block + 1)}
    if layout["gap_bytes"] < block:
        assert plan.num_bytes == len(needed) * block  # and nothing else


@given(
    st.lists(st.one_of(st.integers(0, 3000), st.sampled_from([-errno.EINTR, -errno.EAGAIN, -errno.EIO])), max_size=40),
    st.integers(1, 4096),
)
def test_one_rule_for_what_came(results, needed):
    """The compiled rule decides as the definition does, along any story of results."""
    story = iter(results)

    def read_at(offset, length):
        result = next(story, 0)
        if result < 0:
            raise OSError(-result, "made up")
        return bytes(min(result, length))

    page, expected = reference.read_one(read_at, 0, 4096, needed, 512)
    story, got, tries, verdict = iter(results), 0, 0, rules.RUNNING
    while verdict == rules.RUNNING:
        result = min(next(story, 0), 4096 - got)
        verdict, got, tries = rules.judge(result, got, tries, needed, 512)
    assert verdict == expected
    if verdict == rules.FAILED:
        assert -result == page
    else:
        assert got == (len(page) if verdict == rules.DONE else page)


@pytest.mark.parametrize(
    ("device", "row_bytes", "is_streamed"),
    [*((device, None, False) for device in DEVICES), ("io_uring", None, True), *(("io_uring", width, True) for width in (512, 4096, 760))],
)
@pytest.mark.parametrize("seed", range(3))
def test_devices_read_what_the_definition_reads(device, row_bytes, is_streamed, seed, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.store.tiers.disk_uring.STREAMED_BYTES", 0 if is_streamed else 1 << 60)
    random = np.random.default_rng(seed)
    row_bytes, num_rows = row_bytes or int(random.integers(1, 6000)), 300
    array = random.integers(0, 256, (num_rows, row_bytes), np.uint8)
    tier = make_tier(tmp_path, [array], offset=int(random.integers(0, 5000)), device=device, depth=5, max_read_bytes=8192)
    wanted, places = random.integers(0, num_rows, 200), random.permutation(250)[:200]
    (out,) = read(tier, wanted, places, 250)
    file, block = tier._files[0], tier._files[0].block_bytes
    plan = plan_reads(wanted, row_bytes, file.file.data_offset, block_bytes=block, gap_bytes=0, max_bytes=8192)
    expected = np.full(250 * row_bytes, 0xAB, np.uint8)
    with open(file.file.path, "rb") as plain:
        reads = (plan.starts, plan.lengths, plan.firsts, plan.lasts)
        layout = (file.end, block, plan.rows, places[plan.order], row_bytes, file.file.data_offset)
        done = reference.read_pages(lambda at, length: os.pread(plain.fileno(), length, at), reads, *layout, expected)
    assert done == (rules.DONE, 0, 0)
    assert_same_bytes(out, expected)
    assert tier.stats.num_requests == plan.starts.size
    assert tier.stats.num_pages == plan.num_pages
    assert tier.stats.read_bytes == plan.num_bytes


@pytest.mark.parametrize("device", DEVICES)
def test_a_read_that_is_over_holds_nothing_of_its_caller(device, tmp_path):
    tier = make_tier(tmp_path, [np.ones((50, 600), np.uint8)], device=device)
    out = np.zeros(50 * 600, np.uint8)
    memory = weakref.ref(out)
    assert tier.submit(np.arange(50), [out], np.arange(50)).wait() == out.sum() == 50 * 600
    del out
    assert memory() is None
