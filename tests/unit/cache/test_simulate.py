"""Simulation: a static ranking at all capacities at once equals one cache after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cache import FIFO, Belady, Static, plan_static, simulate, static_hits
from penstock.errors import NodeIdError, UsageError
from penstock.kernels.cache_lookup import cpu as lookup_cpu
from penstock.kernels.cache_lookup import reference as lookup_reference
from penstock.kernels.rank_hits import cpu as rank_cpu
from penstock.kernels.rank_hits import reference as rank_reference
from tests.contract.policies import NUM_NODES, SEEDS, draw_batches
from tests.graphs import assert_same_bytes


@given(SEEDS, st.lists(st.integers(0, 60), max_size=6), st.integers(0, NUM_NODES))
def test_static_hits_equal_static_caches(seed, capacities, num_ranked):
    batches = draw_batches(seed)
    ranking = plan_static(np.random.default_rng(seed).random(NUM_NODES), num_ranked)
    hits, asked = static_hits(ranking, batches, capacities, NUM_NODES)
    assert hits.shape == (len(batches), len(capacities))
    assert asked.tolist() == [ids.size for ids in batches]
    for column, capacity in enumerate(capacities):
        policy = Static(NUM_NODES, capacity)
        policy.fill(ranking)
        expected, _ = simulate(policy, batches)
        assert hits[:, column].tolist() == expected.tolist()


def test_many_capacities():
    ranking = np.arange(1000)
    hits, _ = static_hits(ranking, [ranking], range(1001), 1000)
    assert hits[0].tolist() == list(range(1001))


def test_bad_input():
    with pytest.raises(NodeIdError, match="batch 1"):
        static_hits(np.arange(3), [np.array([2]), np.array([1, 3])], [1], 3)
    with pytest.raises(NodeIdError, match="ranking"):
        static_hits(np.array([3]), [], [1], 3)
    with pytest.raises(UsageError, match="capacities"):
        static_hits(np.arange(3), [], [-1], 3)


def test_simulate_takes_iterators():
    batches = [np.array([0, 1]), np.array([1, 2]), np.array([0])]
    for policy, expected in ((FIFO(3, 2), [0, 1, 0]), (Belady(3, 1, 2), [0, 1, 0])):
        hits, asked = simulate(policy, iter(batches))
        assert hits.tolist() == expected
        assert asked.tolist() == [2, 2, 1]
    hits, asked = simulate(FIFO(3, 2), [])
    assert hits.size == asked.size == 0


@given(SEEDS, st.sampled_from([np.uint8, np.uint16]))
def test_kernels_equal_their_references(seed, dtype):
    random = np.random.default_rng(seed)
    ids, levels = random.integers(0, 50, int(random.integers(0, 200))), random.integers(0, 7, 50).astype(dtype)
    counts = np.zeros(rank_cpu.LANES * 7, dtype=np.int64)
    rank_cpu.count_levels(ids, levels, 7, counts)
    assert_same_bytes(counts.reshape(rank_cpu.LANES, 7).sum(0), rank_reference.count_levels(ids, levels, 7))
    slots, hit_slots = random.integers(-9, 9, 50).astype(np.int32), np.full(ids.size, 77, np.int32)
    lookup_cpu.lookup(ids, slots, hit_slots)
    assert_same_bytes(hit_slots, lookup_reference.lookup(ids, slots))
    shifted = ids + int(random.choice([-1, 0, 0, 1, 1 << 62]))
    assert lookup_cpu.lies_inside(shifted, 50) == lookup_reference.lies_inside(shifted, 50)
