"""Caches on a device keep the contract of tiers, count what caches of the host count, and give the same rows."""

import numpy as np
import pytest
import torch

from penstock.cache import FIFO, LRU, Static
from penstock.cache.policy import Policy
from penstock.errors import BudgetError, InputError, NodeIdError
from penstock.gather import CachedTier, DeviceTable, FusedCache, RowKind, TieredTable, fused
from penstock.kernels.cache_fifo import gpu as cache_fifo
from penstock.kernels.gather_cached import gpu as gather_cached
from penstock.store.tiers import HostTier, PinnedTier, SlowTier, UploadTier, pinned
from tests.contract.test_device_tiers import OnDevice

POLICIES = {"static": Static, "fifo": FIFO, "lru": LRU}
"""A content that stays, one that the device decides about, and one that the host does."""


class TestUploadTier(OnDevice):
    def make(self, arrays):
        return UploadTier(SlowTier(HostTier(arrays), delay_s=1e-4), self.reader)


class Cached(OnDevice):
    capacity = 17

    @pytest.fixture(autouse=True)
    def _large(self, monkeypatch):
        """Rows are read as those of a large table, region by region; small ones are everywhere else."""
        monkeypatch.setattr(pinned, "REACH_BYTES", 0)
        monkeypatch.setattr(pinned, "LEAST_ROWS", 2)

    @pytest.fixture(autouse=True, params=POLICIES)
    def _policy(self, request, _reader):
        self.policy = POLICIES[request.param]
        self.rows_are_on = str(self.reader)

    def slow(self, arrays):
        return PinnedTier(arrays, self.reader)

    def cache(self, slow):
        return FusedCache(lambda: self.policy(50, self.capacity), slow, np.arange(49, 10, -1))

    def make(self, arrays):
        return self.cache(self.slow(arrays))

    def rows_counted(self, tier):
        filled = min(self.capacity, 39)
        return tier.stats.num_rows + tier.slow.stats.num_rows - filled

    def test_it_counts_as_a_cache_of_the_host(self, arrays):
        random = np.random.default_rng(5)
        ours = self.make(arrays)
        theirs = CachedTier(lambda: self.policy(50, self.capacity), HostTier(arrays), np.arange(49, 10, -1))
        for _ in range(8):
            rows = random.permutation(50)[: random.integers(0, 40)]
            self.read(ours, arrays, rows, random.permutation(60)[: rows.size], 60)
            theirs.submit(rows, [np.empty(rows.size * width, np.uint8) for width in theirs.row_bytes], np.arange(rows.size)).wait()
            for left, right in ((ours.stats, theirs.stats), (ours.slow.stats, theirs.slow.stats)):
                assert (left.num_rows, left.num_bytes) == (right.num_rows, right.num_bytes)
        assert ours.stats.num_rows > 0

    def test_memory_is_counted_where_it_is(self, arrays):
        tier = self.make(arrays)
        looked_up_there = 4 * 50 if isinstance(tier, FusedCache) and self.policy is not LRU else 0
        assert tier.device_bytes == self.capacity * 28 + looked_up_there
        assert tier.resident_bytes == tier.policy.state_bytes
        assert (tier.resident_bytes > 0) == (not looked_up_there or tier.is_static)


class TestFusedCache(Cached):
    @pytest.mark.parametrize("capacity", [0, 1, 50, 99])
    def test_any_capacity(self, arrays, capacity):
        self.capacity, random = capacity, np.random.default_rng(6)
        tier = self.make(arrays)
        for _ in range(2):
            rows = random.permutation(50)[:30]
            self.read(tier, arrays, rows, np.arange(30), 30)
        filled = min(capacity, 39)
        assert tier.stats.num_rows + tier.slow.stats.num_rows - filled == 60
        assert tier.stats.num_rows <= 60 * min(capacity, 50) / 30

    def test_hits_are_counted_beside_a_field_without_bytes(self, arrays):
        tier = self.make([np.empty((50, 0)), *arrays])
        for _ in range(2):
            tier.submit(np.arange(40, 49), [self.empty(9 * width) for width in tier.row_bytes], np.arange(9)).wait()
        assert (tier.stats.num_rows, self.rows_counted(tier)) == (18, 18)

    def test_reads_under_way_are_counted(self, arrays):
        tier = self.make(arrays)
        outs = [self.empty(40 * width) for width in tier.row_bytes]
        with self.submitting():
            read = tier.submit(np.arange(5, 45), outs, np.arange(40))
        assert self.rows_counted(tier) == 40
        assert read.wait() == 40 * 28

    def test_more_programs_read_where_fewer_rows_come_over_the_link(self, arrays, monkeypatch):
        asked, ordered, gather = [], [], gather_cached.gather_cached

        def note(*arguments, max_programs, order, **others):
            asked.append(max_programs)
            ordered.append(order is not None)
            gather(*arguments, max_programs=max_programs, order=order, **others)

        monkeypatch.setattr(gather_cached, "gather_cached", note)
        self.capacity = 50
        tier = FusedCache(lambda: self.policy(50, self.capacity), PinnedTier(arrays, self.reader, max_programs=3), np.arange(49, 10, -1))
        rows = np.r_[11:43, 0:8]  # 32 hits of 40, then 40 where misses are kept
        for _ in range(2):
            self.read(tier, arrays, rows, np.arange(40), 40)
            if self.reader.type == "cuda":
                torch.cuda.synchronize(self.reader)  # else the count of hits may come a batch later
        shares = [15, 120] if self.policy is LRU else [3, 15]  # by what was counted before, where nobody decides on the host
        assert asked == [share for share in shares for _ in tier.row_bytes]
        assert ordered == [share != 120 for share in shares for _ in tier.row_bytes], "where all rows hit, no order is worth it"

    def test_rows_may_be_on_the_device(self, arrays):
        """Where nobody decides on the host; then what comes twice is looked at by the host where a decision is about distinct ids."""
        random, (tier, theirs) = np.random.default_rng(7), (self.make(arrays) for _ in range(2))
        assert tier.takes_device_rows == (self.policy is not LRU)
        kinds = [RowKind(name, array.dtype, array.shape[1:]) for name, array in zip("abc", arrays, strict=True)]
        tables = [DeviceTable(one, kinds) for one in (tier, theirs)]
        assert tables[0].is_asked_by_device == tier.takes_device_rows
        for number in range(6):
            are_distinct = number < 3
            rows = random.permutation(50)[:30] if are_distinct else random.integers(0, 50, 40)
            ours, expected = (
                table.submit(ids, are_distinct=are_distinct).wait()
                for table, ids in zip(tables, (torch.from_numpy(rows).to(self.reader), rows), strict=True)
            )
            for left, right, array in zip(ours, expected, arrays, strict=True):
                assert left.cpu().numpy().tobytes() == array[rows].tobytes() == right.cpu().numpy().tobytes()
        assert (tier.policy.slots == theirs.policy.slots).all()
        if not tier.is_static:
            assert tier.stats.num_rows == theirs.stats.num_rows

    def test_the_host_decides_nothing_of_what_the_device_can(self, arrays, monkeypatch):
        def refuse(*given):
            raise AssertionError("the host decides")

        tier = self.make(arrays)
        monkeypatch.setattr(Policy, "access", refuse)
        if self.policy is LRU:
            with pytest.raises(AssertionError, match="the host decides"):
                tier.submit(np.arange(5), [self.empty(5 * width) for width in tier.row_bytes], np.arange(5))
        else:
            self.read(tier, arrays, np.arange(30), np.arange(30), 30)


class TestCacheOverUploads(Cached):
    """A cache on the device over a tier that it cannot read, by the general path."""

    def slow(self, arrays):
        return UploadTier(HostTier(arrays), self.reader)

    def test_rows_out_of_range_are_refused(self, arrays):
        tier = self.make(arrays)
        for row in (-1, 50):
            with pytest.raises(NodeIdError, match=rf"ids\[0\] = {row}"):
                tier.submit(np.array([row]), [self.empty(width) for width in tier.row_bytes], np.zeros(1, np.int64))

    def cache(self, slow):
        return CachedTier(lambda: self.policy(50, self.capacity), slow, np.arange(49, 10, -1), reader=self.reader)


class TestDeviceTable(OnDevice):
    def make(self, arrays):
        return PinnedTier(arrays, self.reader)

    @pytest.mark.parametrize("are_distinct", [True, False])
    def test_rows_come_as_tensors_of_their_fields(self, arrays, are_distinct):
        kinds = [RowKind(name, array.dtype, array.shape[1:]) for name, array in zip("abc", arrays, strict=True)]
        table, host = DeviceTable(self.make(arrays), kinds), TieredTable(HostTier(arrays), kinds)
        ids = np.array([3, 9, 49, 0]) if are_distinct else np.array([3, 9, 3, 49, 0, 0])
        for ours, theirs in zip(
            table.submit(ids, are_distinct=are_distinct).wait(), host.submit(ids, are_distinct=False).wait(), strict=True
        ):
            assert ours.device == self.reader
            assert torch.equal(ours.cpu(), torch.from_numpy(theirs))
        table.settle()

    def test_tiers_of_the_host_are_refused(self, arrays):
        with pytest.raises(InputError, match="tier host delivers to the host: put an UploadTier over it"):
            DeviceTable(HostTier(arrays), [RowKind(name, array.dtype, array.shape[1:]) for name, array in zip("abc", arrays, strict=True)])


def tensors_of(policy):
    return [policy._numbers, *policy._state]


def test_hits_are_right_after_a_field_that_fails(reader, monkeypatch):
    """The first one's are counted, and that batch with them."""
    arrays, read, num_read = [np.arange(100.0).reshape(50, 2), np.arange(50.0)], gather_cached.gather_cached, []
    tier = FusedCache(lambda: FIFO(50, 40), PinnedTier(arrays, reader), np.arange(40))
    before = tier.slow.stats.num_rows

    def fail(*given, **options):
        num_read.append(1)
        if len(num_read) == 2:
            raise RuntimeError("launch failed")
        read(*given, **options)

    monkeypatch.setattr(gather_cached, "gather_cached", fail)
    outs = [torch.zeros(30 * width, dtype=torch.uint8, device=reader) for width in tier.row_bytes]
    with pytest.raises(RuntimeError, match="launch failed"):
        tier.submit(np.arange(30), outs, None)
    tier.submit(np.arange(5), outs, None).wait()  # of an empty cache
    assert (tier.stats.num_rows, tier.slow.stats.num_rows - before) == (30, 5)


@pytest.mark.parametrize("policy", [FIFO, Static])
def test_a_device_without_room_for_where_rows_are(policy, reader, monkeypatch):
    def full(*given, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    tier = PinnedTier([np.arange(50.0)], reader)
    monkeypatch.setattr(torch, "full", full)
    monkeypatch.setattr(fused, "to_device", full)
    with pytest.raises(BudgetError, match=r"a table with the place of each of 50 rows does not fit on .*; give a smaller device_cache"):
        FusedCache(lambda: policy(50, 17), tier)


@pytest.mark.parametrize("number", range(3))
def test_a_decision_that_fails_leaves_an_empty_cache(number, reader, monkeypatch):
    """At any of its launches."""
    array, launch, launched = np.arange(100.0).reshape(50, 2), cache_fifo.launch, []
    tier = FusedCache(lambda: FIFO(50, 17), PinnedTier([array], reader), np.arange(20))

    def fail(kernel, *given, **constants):
        launched.append(kernel)
        if len(launched) == number + 1:
            raise RuntimeError("launch failed")
        launch(kernel, *given, **constants)

    def read(rows):
        out = torch.zeros(rows.size * 16, dtype=torch.uint8, device=reader)
        tier.submit(rows, [out], None).wait()
        return out.cpu().numpy().tobytes()

    assert read(np.arange(30)) == array[:30].tobytes()
    memory = [each.data_ptr() for each in tensors_of(tier.policy)]
    with monkeypatch.context() as patch:
        patch.setattr(cache_fifo, "launch", fail)
        with pytest.raises(RuntimeError, match="launch failed"):
            read(np.arange(5, 45))
    assert (tier.policy.slots < 0).all()
    assert [each.data_ptr() for each in tensors_of(tier.policy)] == memory, "there may be no room for more"
    before = tier.stats.num_rows
    for rows in (np.arange(30), np.r_[29:20:-1, 0:9]):
        assert read(rows) == array[rows].tobytes()
    assert tier.stats.num_rows == before + 9
