"""Caches shared by ranks (BGL 3.2.3) keep the contract of tiers, whichever rank reads; threads of one process play the ranks."""

import gc
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock.cache import FIFO, LRU, Belady, Static
from penstock.cache.shard import num_ids_of, plan_shards
from penstock.errors import InputError, TierError, UsageError
from penstock.gather import CachedTier, ShardedCache, ShardGroup, open_shards, shard_peers, shard_seats, sharded
from penstock.gather.shard_owner import Export, Owner
from penstock.gather.stack import around
from penstock.store.tiers import HostTier, PinnedTier, SlowTier, UploadTier, pinned
from tests.contract.test_device_tiers import OnDevice
from tests.contract.tiers import FailingTier

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
            make = partial(policy, num_ids_of(num_rows, seat.rank, num_ranks), capacity)
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
        self.rows_are_on, self.ranks = str(self.reader), None
        yield
        for rank in range(NUM_RANKS if self.ranks is not None else 0):  # who runs the tests keeps this object
            self.ranks.close(rank)

    def make(self, arrays):
        self.ranks = Ranks(self.reader, [self.slow(arrays) for _ in range(NUM_RANKS)], self.policy, self.content)
        return self.ranks.tiers[1]

    def rows_counted(self, tier):
        filled = 0 if self.content is None else CAPACITY
        return tier.stats.num_rows + tier.peers["peers' cache"].num_rows + self.counted_beneath(tier) - filled

    def counted_beneath(self, tier):
        return tier.slow.stats.num_rows

    def test_ranks_read_at_the_same_time(self, arrays):
        """Right rows whatever the interleaving, and hits in memory of all."""
        self.make(arrays)
        tiers = self.ranks.tiers

        def read(number):
            random, tier = np.random.default_rng(number), tiers[number % NUM_RANKS]
            for _ in range(2):
                rows = random.permutation(50)[: random.integers(20, 45)]
                self.read(tier, arrays, rows, random.permutation(60)[: rows.size], 60)

        together(range(2 * NUM_RANKS), read)
        for tier in tiers:
            assert tier.stats.num_rows > 0
            assert tier.peers["peers' cache"].num_rows > 0
        kept = [np.flatnonzero(shard.policy.slots >= 0) * NUM_RANKS + rank for rank, shard in enumerate(self.ranks.shards)]
        assert [rows.size for rows in kept] == [CAPACITY] * NUM_RANKS
        assert np.unique(np.concatenate(kept)).size == NUM_RANKS * CAPACITY
        assert not any(shard.is_at_work for shard in self.ranks.shards)


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


ARRAY = np.arange(60) ** 2


def slow_tiers(reader, num_ranks=2, **options):
    return [UploadTier(SlowTier(HostTier([ARRAY]), **options), reader) for _ in range(num_ranks)]


def failing_tier(reader, fail):
    return UploadTier(SlowTier(FailingTier(HostTier([ARRAY]), fail)), reader)


def begin(tier, rows):
    out = torch.zeros(rows.size, dtype=torch.int64, device=tier.reader)
    return tier.submit(rows, [out.view(torch.uint8)], np.arange(rows.size)), out, rows


def end(read, out, rows):
    read.wait()
    assert (out.cpu().numpy() == ARRAY[rows]).all()


@pytest.mark.parametrize("capacity", [0, 1, 99])
def test_any_capacity(reader, capacity):
    ranks = Ranks(reader, [PinnedTier([ARRAY], reader) for _ in range(2)], capacity=capacity)
    for tier in ranks.tiers * 2:
        end(*begin(tier, np.arange(10, 40)))
    assert sum(int((shard.policy.slots >= 0).sum()) for shard in ranks.shards) == min(30, 2 * capacity)


def test_shards_count_as_simulated(reader):
    """Ranks that take turns are asked as one after the other would be."""
    ranks, random = Ranks(reader, slow_tiers(reader, 3), policy=LRU), np.random.default_rng(1)
    alone, hits = [LRU(20, CAPACITY) for _ in range(3)], np.zeros((3, 2), int)
    for number in range(9):
        rows, rank = random.permutation(30)[:12], number % 3
        end(*begin(ranks.tiers[rank], rows))
        for shard, policy in enumerate(alone):
            found = policy.access(rows[rows % 3 == shard] // 3).hit_slots >= 0
            hits[rank, int(shard != rank)] += found.sum()
    assert [[tier.stats.num_rows, tier.peers["peers' cache"].num_rows] for tier in ranks.tiers] == hits.tolist()
    assert (hits > 0).all()
    for shard, policy in zip(ranks.shards, alone, strict=True):
        assert (shard.policy.slots == policy.slots).all()


def test_in_a_turn_nothing_is_sent_to_the_device(reader, monkeypatch):
    """Others wait meanwhile; and what is sent may wait for all that the device is doing."""
    seen = []

    def noted(owner, name, what):
        work = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *arguments: (seen.append(what), work(*arguments))[1])

    ranks, may_go = Ranks(reader, slow_tiers(reader), capacity=9), sharded._Part.may_go
    noted(pinned, "move_tensor", "sent")
    noted(sharded._Part, "done", "over")
    monkeypatch.setattr(sharded._Part, "may_go", lambda part: (may_go(part), seen.append("turn"))[0])
    for number in range(4):
        end(*begin(ranks.tiers[number % 2], np.arange(number, number + 20)))
    said = "".join(what[0] for what in seen)
    assert said.count("s") > said.count("t") == said.count("o") == said.count("to") == 8, "each reads both shards"


def test_a_read_that_fails_leaves_right_rows_to_all(reader):
    """Whoever was promised rows that never came finds them beneath; then shards are filled anew."""
    slows = slow_tiers(reader)
    slows[0] = failing_tier(reader, lambda number: OSError("unplugged") if number == 0 else None)
    ranks = Ranks(reader, slows)
    failing, promised = begin(ranks.tiers[0], np.arange(10)), begin(ranks.tiers[1], np.arange(10))
    assert promised[0]._beneath._staged[0].numel() == 0  # all hits, of rows that are yet to come
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(end, *promised)
        with pytest.raises(TierError, match="unplugged"):
            failing[0].wait()
        waiting.result(30)
    for tier in ranks.tiers * 2:
        end(*begin(tier, np.arange(10)))
    assert ranks.tiers[0].stats.num_rows > 0


def test_a_batch_that_is_dropped_holds_nobody_up(reader):
    ranks = Ranks(reader, slow_tiers(reader))
    dropped = begin(ranks.tiers[0], np.arange(10))
    later = begin(ranks.tiers[1], np.arange(10))
    del dropped
    gc.collect()
    end(*later)


@pytest.mark.parametrize("policy", [FIFO, Static])
def test_a_rank_that_closes_its_shard(reader, policy, caplog):
    """What it has decided is void, what it kept is read beneath; the others go on."""
    ranks = Ranks(reader, slow_tiers(reader), policy, None if policy is FIFO else np.arange(20))
    for tier in ranks.tiers * 2:
        end(*begin(tier, np.arange(14)))
    under_way, before = begin(ranks.tiers[0], np.arange(14)), ranks.tiers[0].peers["peers' cache"].num_rows
    assert before > 0
    ranks.close(1)
    end(*under_way)
    found = ranks.tiers[0].peers["peers' cache"].num_rows
    assert found <= before + 7  # what was read of one that turns out to be gone is counted, and read again
    end(*begin(ranks.tiers[0], np.arange(14)))
    assert ranks.tiers[0].peers["peers' cache"].num_rows == found
    assert caplog.messages == ["rank 1 of 2 has ended: rows of its shard are read from the tier below"]
    assert around(ranks.tiers[0]) is (ranks.tiers[0].slow if policy is FIFO else ranks.tiers[0])
    end(*begin(ranks.tiers[1], np.arange(14)))


def test_who_goes_while_his_memory_is_read(reader):
    """What was read of it does not count."""
    ranks = Ranks(reader, slow_tiers(reader), Static, np.arange(20))
    near = ranks.tiers[0]
    read, memory = near._tiers[1].submit, near._tiers[1].buffers[0]

    def go_at_once(*arguments):
        ranks.close(1)
        memory.zero_()
        return read(*arguments)

    near._tiers[1].submit = go_at_once
    end(*begin(near, np.arange(1, 14)))


def test_a_rank_that_stands_still(reader, monkeypatch):
    """No wait is without an end: the first who waits says so, then all go on without that shard."""
    monkeypatch.setattr(shard_peers, "_PATIENCE_S", 0.3)
    ranks = Ranks(reader, slow_tiers(reader))
    still = begin(ranks.tiers[1], np.arange(0, 14, 2))
    waiting = begin(ranks.tiers[0], np.arange(0, 14, 2))
    with pytest.raises(TierError, match=r"the shard of rank 0 has not answered for 0 s: that rank, or one that reads there, hangs"):
        waiting[0].wait()
    end(*begin(ranks.tiers[0], np.arange(14)))
    end(*still)


def test_who_is_let_go_keeps_no_thread(reader):
    before = set(threading.enumerate())
    ranks = Ranks(reader, slow_tiers(reader))
    tier = ranks.tiers.pop()
    end(*begin(tier, np.arange(8)))
    del tier
    gc.collect()
    end(*begin(ranks.tiers[0], np.arange(8)))
    ranks.tiers.clear()
    gc.collect()
    deadline = time.monotonic() + 10
    while any(thread.name == "penstock-shard-owner" for thread in set(threading.enumerate()) - before):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ranks_that_do_not_meet(reader):
    slows = slow_tiers(reader)
    group = ShardGroup(shard_seats(2, timeout_s=0.1)[0])
    first = ShardedCache(lambda: FIFO(30, 3), slows[0], reader=reader, group=group)
    with pytest.raises(TierError, match=r"rank 1 of 2 has made no loader with its seat in 0 s, or has ended: make one in every rank, each"):
        open_shards(group, {"node": first})
    [seat] = shard_seats(1)
    alone = ShardGroup(seat)
    tier = ShardedCache(lambda: FIFO(60, 9), slows[0], reader=reader, group=alone)
    open_shards(alone, {"node": tier})
    for _ in range(2):
        end(*begin(tier, np.arange(9)))
    assert (tier.stats.num_rows, tier.peers) == (9, {})
    with pytest.raises(UsageError, match=r"shards: seat 0 of 1 is taken: every rank has a seat of its own, and every loader of a rank too"):
        open_shards(ShardGroup(seat), {"node": tier})
    with pytest.raises(UsageError, match="a cache is shared by 1 rank or more, got 0"):
        shard_seats(0)
    with pytest.raises(UsageError, match="policy belady looks ahead"):
        ShardedCache(lambda: Belady(30, 3, 2), slows[0], reader=reader, group=alone)


def test_another_user_is_told_nothing_and_not_listened_to(monkeypatch):
    seat, other = shard_seats(2)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    owner = Owner(seat, {}, {})
    try:
        with pytest.raises(OSError, match="another user"):
            other.connect(0)
        with socket.socket(socket.AF_UNIX) as end:
            end.settimeout(10)
            end.connect(other._address(0))
            assert end.recv(1) == b""
    finally:
        owner.close()


def test_memory_that_other_processes_are_not_given(reader, monkeypatch):
    """Every rank says why, and none waits for the others."""
    unpicklable = SimpleNamespace(device=reader, buffer=lambda: 0)
    monkeypatch.setattr(shard_peers, "os", SimpleNamespace(getpid=lambda: -1))
    monkeypatch.setattr(ShardedCache, "export", lambda self: Export(60, (8,), "fifo", [unpicklable], None))

    def open_one(seat):
        group = ShardGroup(seat)
        tier = ShardedCache(lambda: FIFO(30, 3), slow_tiers(reader)[0], reader=reader, group=group)
        with pytest.raises(
            TierError,
            match=r"rank \d of 2 cannot give other processes the memory of its device \(.*(pickle|local object).*: leave shards out",
        ):
            open_shards(group, {"node": tier})

    started = time.monotonic()
    together(shard_seats(2, timeout_s=30), open_one)
    assert time.monotonic() - started < 15


def test_devices_that_ranks_number_in_their_own_way(reader, monkeypatch):
    """As when each sees its own alone, as cuda:0: memory would be looked for on another device."""
    devices = iter(["GPU-7", "GPU-8"] * 9)
    monkeypatch.setattr(shard_peers, "identity", lambda device: next(devices))

    def open_one(seat):
        group = ShardGroup(seat)
        tier = ShardedCache(lambda: FIFO(30, 3), slow_tiers(reader)[0], reader=reader, group=group)
        with pytest.raises(TierError, match=r"rank \d of 2 keeps rows on its \S+, which is another device or none for rank \d: let every"):
            open_shards(group, {"node": tier})

    together(shard_seats(2, timeout_s=30), open_one)


def test_ranks_that_load_something_else(reader):
    seats = shard_seats(2, timeout_s=30)

    def open_one(seat):
        group = ShardGroup(seat)
        policy = [FIFO, LRU][seat.rank]
        tier = ShardedCache(lambda: policy(30, 3), slow_tiers(reader)[0], reader=reader, group=group)
        with pytest.raises(InputError, match=r"shares 60 rows of 8 bytes of 'node' by (fifo|lru); rank \d shares .* by (lru|fifo): every"):
            open_shards(group, {"node": tier})

    together(seats, open_one)


def test_what_each_shard_begins_with():
    ranked = np.random.default_rng(0).permutation(20)
    kept = plan_shards(ranked, 3, 4)
    assert [kept[kept % 4 == rank].tolist() for rank in range(4)] == [ranked[ranked % 4 == rank][:3].tolist() for rank in range(4)]
    assert plan_shards(ranked, 0, 4).size == 0
    assert plan_shards(ranked, 99, 3).tolist() == ranked.tolist()
