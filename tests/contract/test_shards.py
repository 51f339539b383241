"""Caches shared by ranks (BGL 3.2.3) keep the contract of tiers, whichever rank reads; threads of one process play the ranks."""

import gc
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from penstock.cache import FIFO, LRU, Belady, Static
from penstock.errors import InputError, TierError, UsageError
from penstock.gather import CachedTier, ShardedCache, ShardGroup, open_shards, shard_peers, shard_seats
from penstock.gather.sharded import num_ids_of, plan_shards
from penstock.gather.stack import around
from penstock.kernels import _triton
from penstock.store.tiers import HostTier, PinnedTier, SlowTier, UploadTier
from tests.contract.test_device_tiers import OnDevice
from tests.devices import DEVICES

NUM_RANKS, CAPACITY = 3, 7


def together(ranks, work):
    """What `work(rank)` returns, all at the same time."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(work, ranks, timeout=60))


class Ranks:
    """Tiers of ranks over the same arrays."""

    def __init__(self, reader, slows, policy=FIFO, content=None, capacity=CAPACITY):
        num_rows, num_ranks = slows[0].num_rows, len(slows)

        def open_one(seat):
            group = ShardGroup(seat)
            make = lambda: policy(num_ids_of(num_rows, seat.rank, num_ranks), capacity)
            tier = ShardedCache(make, slows[seat.rank], content, reader=reader, group=group)
            open_shards(group, {"node": tier})
            return tier

        self.tiers = together(shard_seats(num_ranks, timeout_s=30), open_one)

    @property
    def shards(self):
        return [tier.shard for tier in self.tiers]

    def close(self, rank):
        self.tiers[rank]._group.close()


class Shared(OnDevice):
    content, num_reads = None, 2

    @pytest.fixture(autouse=True)
    def _rows(self, _reader):
        self.rows_are_on = str(self.reader)

    def make(self, arrays):
        self.ranks = Ranks(self.reader, [self.slow(arrays) for _ in range(NUM_RANKS)], self.policy, self.content)
        return self.ranks.tiers[1]

    def rows_counted(self, tier):
        filled = 0 if self.content is None else CAPACITY
        return tier.stats.num_rows + tier.peers["cache of peers"].num_rows + self.counted_beneath(tier) - filled

    def counted_beneath(self, tier):
        return tier.slow.stats.num_rows

    def test_ranks_read_at_the_same_time(self, arrays):
        """Right rows whatever the interleaving, and hits in memory of all."""
        self.make(arrays)
        tiers = self.ranks.tiers

        def read(number):
            random, tier = np.random.default_rng(number), tiers[number % NUM_RANKS]
            for _ in range(4):
                rows = random.permutation(50)[: random.integers(1, 40)]
                self.read(tier, arrays, rows, random.permutation(60)[: rows.size], 60)

        together(range(2 * NUM_RANKS), read)
        for tier in tiers:
            assert tier.stats.num_rows > 0
            assert tier.peers["cache of peers"].num_rows > 0
        kept = [np.flatnonzero(shard.policy.slots >= 0) * NUM_RANKS + rank for rank, shard in enumerate(self.ranks.shards)]
        assert [rows.size for rows in kept] == [CAPACITY] * NUM_RANKS
        assert np.unique(np.concatenate(kept)).size == NUM_RANKS * CAPACITY
        assert not any(shard.is_at_work for shard in self.ranks.shards)


class TestFIFOOverPinned(Shared):
    policy = FIFO

    def slow(self, arrays):
        return PinnedTier(arrays, self.reader)

    @pytest.mark.parametrize("capacity", [0, 1, 99])
    def test_any_capacity(self, arrays, capacity):
        ranks = Ranks(self.reader, [self.slow(arrays) for _ in range(2)], capacity=capacity)
        for tier in ranks.tiers * 2:
            self.read(tier, arrays, np.arange(10, 40), np.arange(30), 30)
        kept = sum(int((shard.policy.slots >= 0).sum()) for shard in ranks.shards)
        assert kept == min(30, 2 * capacity)


class TestFIFOOverFIFO(Shared):
    """BGL's two levels: each rank has a cache of the host beneath the devices'."""

    policy = FIFO

    def slow(self, arrays):
        return UploadTier(CachedTier(lambda: FIFO(50, 21), SlowTier(HostTier(arrays), delay_s=1e-4), name="host cache"), self.reader)

    def counted_beneath(self, tier):
        return tier.beneath.stats.num_rows + tier.beneath.slow.stats.num_rows


class TestStatic(Shared):
    policy, content = Static, np.arange(49, 10, -1)

    def slow(self, arrays):
        return PinnedTier(arrays, self.reader)
