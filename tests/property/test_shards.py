"""Shards of a cache against any interleaving of ranks, without threads: every row that comes is right, and nobody waits for ever.

Each rank plays several batches at a time, as its loader's threads do: decide at every shard, read what was missed, then turn by turn in
ascending order of the shards copy hits out and kept rows in, each copy in two halves with others at work between them.
"""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.cache import FIFO, LRU, SIEVE
from penstock.cache.shard import Shard, needs_turn

NUM_ROWS = 24


@dataclass
class World:
    num_ranks: int
    shards: list
    buffers: list
    num_hits: int = 0
    verdicts: dict = field(default_factory=dict)

    def tell(self, verdicts):
        for reader, go in verdicts:
            assert reader not in self.verdicts
            self.verdicts[reader] = go

    def batch(self, name, rows, fate):
        """One batch of a rank, a step at a time; it yields what it waits for. `fate`: (what befalls it, after how many steps)."""
        got, parts = np.full(rows.size, -1), []
        for rank, shard in enumerate(self.shards):
            at = np.flatnonzero(rows % self.num_ranks == rank)
            if at.size:
                change = shard.decide((name, rank), rows[at] // self.num_ranks)
                if change is None:
                    got[at] = rows[at]
                    continue
                got[at[change.hit_slots < 0]] = rows[at[change.hit_slots < 0]]
                if needs_turn(change):
                    parts.append((rank, at, change))
            yield None
        if fate == "lost":
            for rank, _, _ in parts:
                self.tell(self.shards[rank].lost((name, rank)))
            return
        for rank, at, change in parts:
            shard, reader, buffer = self.shards[rank], (name, rank), self.buffers[rank]
            self.tell(shard.ready(reader))
            yield reader
            hits = at[change.hit_slots >= 0]
            if not self.verdicts.pop(reader):
                got[hits] = rows[hits]
                continue
            assert [one for one, state in shard._states.items() if state.name == "WORKING"] in ([reader], [])
            for half in (slice(0, None, 2), slice(1, None, 2)):
                got[hits[half]] = buffer[change.hit_slots[change.hit_slots >= 0][half]]
                yield None
            for half in (slice(0, None, 2), slice(1, None, 2)):
                buffer[change.into[half]] = rows[at[change.inserted[half]]]
                yield None
            self.num_hits += hits.size
            self.tell(shard.done(reader))
        assert (got == rows).all()


@given(st.data(), st.integers(1, 4), st.integers(0, 9), st.sampled_from([FIFO, LRU, SIEVE]))
def test_rows_are_right_and_nobody_waits_for_ever(data, num_ranks, capacity, policy):
    """Ranks do several batches at a time; some reads fail, some ranks die at any step, some close their shards."""

    def make(rank):
        return Shard(lambda: policy(len(range(rank, NUM_ROWS, num_ranks)), capacity))

    world = World(num_ranks, [make(rank) for rank in range(num_ranks)], [np.full(NUM_ROWS, -7) for _ in range(num_ranks)])
    random, todo, under_way, names = np.random.default_rng(data.draw(st.integers(0, 99))), [6] * num_ranks, [], 0
    while any(todo) or under_way:
        able = [one for one in under_way if one[2] is None or one[2] in world.verdicts]
        starters = [rank for rank in range(num_ranks) if todo[rank] and sum(one[0] == rank for one in under_way) < 2]
        assert able or starters, "everybody waits for somebody"
        chosen = data.draw(st.integers(0, len(able) + len(starters) - 1))
        if chosen >= len(able):
            rank, names = starters[chosen - len(able)], names + 1
            todo[rank] -= 1
            fate = data.draw(st.sampled_from(["fine"] * 6 + ["lost", "dies", "closes"]))
            if fate == "closes":
                world.tell(world.shards[rank].close())
            rows = random.permutation(NUM_ROWS)[: random.integers(1, 14)]
            under_way.append([rank, names, None, world.batch(names, rows, fate), fate, int(random.integers(1, 12))])
            continue
        one = able[chosen]
        one[5] -= 1
        if one[4] == "dies" and one[5] == 0:
            under_way.remove(one)
            for shard_rank, shard in enumerate(world.shards):
                world.verdicts.pop((one[1], shard_rank), None)
                world.tell(shard.left((one[1], shard_rank)))
            continue
        try:
            one[2] = next(one[3])
        except StopIteration:
            under_way.remove(one)
    assert not world.verdicts
    assert not any(shard._states for shard in world.shards)


def test_a_shard_begins_again_when_the_turn_of_a_failed_read_comes():
    shard = Shard(lambda: FIFO(10, 4))
    for reader in "abc":
        assert shard.decide(reader, np.arange(3)) is not None
    assert shard.ready("a") == [("a", True)]
    assert shard.ready("c") == []
    assert shard.lost("b") == []  # a is at work: nothing may be put over its rows yet
    assert shard.done("a") == [("c", False)]
    change = shard.decide("d", np.arange(3))
    assert change is not None
    assert (change.hit_slots == -1).all()
    assert shard.ready("d") == [("d", True)]
    assert shard.is_at_work


def test_who_dies_at_work_closes_the_shard():
    """It may be writing still; one that only read leaves the others an empty shard."""
    shard = Shard(lambda: FIFO(10, 4))
    assert shard.decide("a", np.arange(3)) is not None
    assert shard.left("a") == []
    assert not shard.is_closed
    for reader in "bc":
        assert shard.decide(reader, np.arange(3)) is not None
    shard.ready("b")
    shard.ready("c")
    assert shard.left("b") == [("c", False)]
    assert shard.decide("d", np.arange(3)) is None
    assert shard.ready("d") == [("d", False)]


def test_a_change_about_nothing_has_no_turn():
    shard = Shard(lambda: FIFO(10, 0))
    change = shard.decide("a", np.arange(3))
    assert change is not None
    assert not needs_turn(change)
    assert shard.decide("b", np.arange(3)) is not None
    assert shard.ready("b") == [("b", False)]
