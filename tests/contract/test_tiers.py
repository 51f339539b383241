"""Tiers of the host: the contract, and what is their own."""

import time
from typing import ClassVar

import numpy as np
import pytest

from penstock.errors import InputError, TierError, UsageError
from penstock.store.tiers import HostTier, Link, MappedTier, PackedTier, SlowTier
from penstock.store.tiers.slow import count_blocks
from tests.contract.tiers import TierContract


class TestHostTier(TierContract):
    def make(self, arrays):
        return HostTier(arrays)

    def test_fields_must_fit_together(self):
        with pytest.raises(InputError, match=r"equally many rows, got \[3, 4\]"):
            HostTier([np.zeros(3), np.zeros(4)])
        with pytest.raises(InputError, match="contiguous"):
            HostTier([np.zeros((4, 4))[:, ::2]])

    def test_write(self, arrays):
        tier = HostTier([array.copy() for array in arrays])
        tier.write(np.array([7, 3]), [array.reshape(-1).view(np.uint8) for array in arrays], np.array([20, 21]))
        expected = [array.copy() for array in arrays]
        for array in expected:
            array[[7, 3]] = array[[20, 21]]
        self.read(tier, expected, np.arange(50), np.arange(50), 50)
        for row in (-1, 50):
            with pytest.raises(TierError, match=f"host: row {row} was asked for, it has 50"):
                tier.write(np.array([row]), tier.buffers, np.array([0]))


class TestMappedTier(TierContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    options: ClassVar[dict[str, int]] = {}

    def make(self, arrays):
        for number, array in enumerate(arrays):
            np.save(self.folder / f"{number}.npy", array)
        return MappedTier([np.load(self.folder / f"{number}.npy", mmap_mode="r") for number in range(len(arrays))], **self.options)


class TestMappedTierOnThreads(TestMappedTier):
    @pytest.fixture(autouse=True)
    def _few_rows_each(self, monkeypatch):
        monkeypatch.setattr("penstock.store.tiers.host.LEAST_ROWS", 2)

    options: ClassVar[dict[str, int]] = dict(num_threads=3)

    def test_a_number_of_threads(self):
        with pytest.raises(UsageError, match="must not be negative, got -1"):
            MappedTier([np.arange(3)], num_threads=-1)


class TestSlowTier(TierContract):
    def make(self, arrays):
        return SlowTier(HostTier(arrays), delay_s=1e-4, bytes_per_s=1e8)


class TestSlowTierOverSlowTier(TierContract):
    def make(self, arrays):
        return SlowTier(SlowTier(HostTier(arrays), delay_s=1e-4), rows_per_request=4, depth=2, delay_s=1e-4)


class TestSlowTierOfBlocks(TierContract):
    def make(self, arrays):
        return SlowTier(HostTier(arrays), delay_s=1e-5, block_bytes=100)


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_counted_once(seed):
    random = np.random.default_rng(seed)
    num_rows, row_bytes, block_bytes = map(int, random.integers(1, 60, 3))
    rows = random.integers(0, num_rows, random.integers(0, 40))
    touched = {byte // block_bytes for row in rows for byte in range(row * row_bytes, (row + 1) * row_bytes)}
    assert count_blocks(rows, num_rows, row_bytes, block_bytes) == len(touched)


class TestPackedTier(TierContract):
    def make(self, arrays):
        order = np.random.default_rng(8).permutation(50)
        return PackedTier(SlowTier(HostTier([array[order] for array in arrays])), np.argsort(order).astype(np.int32))

    def test_what_it_asks_is_asked_beneath(self, arrays):
        beneath = HostTier(arrays)
        tier = PackedTier(beneath, np.arange(50))
        self.read(tier, arrays, np.arange(7), np.arange(7), 7)
        assert tier.stats is beneath.stats
        assert tier.stats.num_reads == 1
        assert tier.resident_bytes == beneath.resident_bytes + 400
        assert (tier.name, tier.describe()) == ("packed host", "host, rows packed")
        assert not hasattr(tier, "slow")  # reading around a cache must not lead around the mapping

    @pytest.mark.parametrize("rows", [np.arange(49), np.arange(50) - 1, np.arange(50) + 1, np.arange(50.0), np.zeros((50, 1), np.int64)])
    def test_mappings_that_are_none_are_refused(self, arrays, rows):
        with pytest.raises(InputError, match="packed host"):
            PackedTier(HostTier(arrays), rows)


def timed(tier, num_rows, num_reads=1):
    started = time.monotonic()
    outs = [[np.empty(num_rows * tier.row_bytes[0], np.uint8)] for _ in range(num_reads)]
    for read in [tier.submit(np.arange(num_rows), out, np.arange(num_rows)) for out in outs]:
        read.wait()
    return time.monotonic() - started


@pytest.mark.parametrize(
    ("options", "num_rows", "num_reads", "least_s"),
    [
        (dict(delay_s=0.02), 32, 1, 0.02),  # one round of 32 requests
        (dict(delay_s=0.02), 33, 1, 0.04),
        (dict(delay_s=0.02, rows_per_request=100), 1000, 1, 0.02),
        (dict(delay_s=0.02, depth=1), 3, 1, 0.06),
        (dict(delay_s=0.02, block_bytes=800, depth=1), 301, 1, 0.08),  # 100 rows a block
        (dict(bytes_per_s=8e4, block_bytes=8000), 1, 1, 0.1),  # a whole block for a row
        (dict(bytes_per_s=8e4), 1000, 1, 0.1),
        (dict(bytes_per_s=8e4), 500, 3, 0.15),  # reads share the link
    ],
    ids=str,
)
def test_as_slow_as_asked(options, num_rows, num_reads, least_s):
    seconds = timed(SlowTier(HostTier([np.arange(1000)]), **options), num_rows, num_reads)
    assert least_s <= seconds < least_s + 10.0  # a busy machine adds to it


def test_time_passes_while_nobody_waits():
    tier = SlowTier(HostTier([np.arange(1000)]), bytes_per_s=8e3)  # a second
    read = tier.submit(np.arange(1000), [np.empty(8000, np.uint8)], np.arange(1000))
    time.sleep(1.0)
    started = time.monotonic()
    read.wait()
    assert time.monotonic() - started < 0.9


def test_tiers_on_one_device_queue_together():
    link = Link()
    left, right = (SlowTier(HostTier([np.arange(1000)]), bytes_per_s=8e4, link=link) for _ in range(2))
    started, rows = time.monotonic(), np.arange(500)
    for read in [tier.submit(rows, [np.empty(4000, np.uint8)], rows) for tier in (left, right, left)]:
        read.wait()
    assert 0.15 <= time.monotonic() - started < 10


@pytest.mark.parametrize("options", [dict(delay_s=-1), dict(bytes_per_s=0), dict(depth=0), dict(rows_per_request=0)], ids=str)
def test_impossible_devices_are_refused(options):
    with pytest.raises(UsageError):
        SlowTier(HostTier([np.arange(3)]), **options)
