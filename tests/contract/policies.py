"""What every policy keeps to. A policy joins by a subclass that says how to make it, and its model if it goes access by access."""

import resource

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import NodeIdError, UsageError
from penstock.plan.capacity import DIRECTORY_BYTES_PER_NODE, STATE_BYTES_PER_ROW
from tests.graphs import assert_same_bytes

SEEDS = st.integers(0, 2**32 - 1)
CAPACITIES = st.sampled_from([0, 1, 2, 3, 5, 9, 10, 11, 25, 40, 64])
NUM_NODES = 40

INHERITED = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow, HealthCheck.data_too_large])
"""For properties that several classes inherit: Hypothesis warns of them, since a failure could be replayed with another class."""


def draw_batches(seed, num_nodes=NUM_NODES, most=40):
    """Batches of distinct ids: skewed, of many sizes, some empty, some with more ids than any cache has rows."""
    random = np.random.default_rng(seed)
    weights = random.permutation(1.0 / np.arange(1, num_nodes + 1) ** random.choice([0.0, 0.7, 1.5]))
    largest = int(random.choice([1, 3, 12, num_nodes]))
    sizes = random.integers(0, largest + 1, int(random.integers(1, most)))
    return [random.choice(num_nodes, size, replace=False, p=weights / weights.sum()) for size in sizes]


def resident(policy):
    """slot -> node, of the directory; checks that no slot is there twice."""
    nodes = np.flatnonzero(policy.slots >= 0)
    content = dict(zip(policy.slots[nodes].tolist(), nodes.tolist(), strict=True))
    assert len(content) == nodes.size, "two nodes in one slot"
    return content


class Cache:
    """Rows by slot, moved as `Change` says: hits out, misses from the slow tier, inserted rows in."""

    def __init__(self, policy):
        self.policy, self.rows = policy, resident(policy)

    def read(self, ids):
        """Ask for a batch, check what comes out of the cache, and compare the content with the directory."""
        change = self.policy.access(ids)
        assert (change.hit_slots.dtype, change.inserted.dtype, change.into.dtype) == (np.int32, np.int64, np.int32)
        assert change.hit_slots.shape == ids.shape
        assert change.inserted.shape == change.into.shape
        for node, slot in zip(ids.tolist(), change.hit_slots.tolist(), strict=True):
            assert slot == -1 or self.rows.get(slot) == node, f"a hit of node {node} in slot {slot}, which has {self.rows.get(slot)}"
        assert (change.hit_slots[change.inserted] == -1).all(), "a hit is inserted"
        assert (np.diff(change.inserted) > 0).all(), "positions of inserted rows do not ascend"
        assert np.unique(change.into).size == change.into.size, "two rows are inserted into one slot"
        self.rows.update(zip(change.into.tolist(), ids[change.inserted].tolist(), strict=True))
        content = resident(self.policy)
        assert all(0 <= slot < min(self.policy.capacity, self.policy.num_nodes) for slot in content), (
            "the directory has a slot that is none"
        )
        assert content.items() <= self.rows.items(), "the directory has rows that never arrived, or that others have replaced"
        return change.hit_slots >= 0


class PolicyContract:
    """Subclass as TestX and give `make`."""

    row_bytes, node_bytes = 24, 4

    def make(self, num_nodes, capacity):
        """Return a new policy."""
        raise NotImplementedError

    def play(self, policy, batches):
        """Ask for all batches; returns hits per batch."""
        cache = Cache(policy)
        return [cache.read(ids) for ids in batches]

    @INHERITED
    @given(SEEDS, CAPACITIES, st.integers(0, 45))
    def test_rows_are_where_the_directory_says(self, seed, capacity, num_filled):
        policy = self.make(NUM_NODES, capacity)
        filled = np.random.default_rng(seed).permutation(NUM_NODES)[:num_filled]
        policy.fill(filled)
        assert resident(policy) == dict(enumerate(filled[:capacity].tolist()))
        self.play(policy, draw_batches(seed))

    @INHERITED
    @given(SEEDS, CAPACITIES)
    def test_same_batches_same_changes(self, seed, capacity):
        batches = draw_batches(seed, most=20)
        first, second = self.make(NUM_NODES, capacity), self.make(NUM_NODES, capacity)
        for ours, theirs in zip(self.play(first, batches), self.play(second, batches), strict=True):
            assert_same_bytes(ours, theirs)
        assert_same_bytes(first.slots, second.slots)

    def test_what_fits_is_kept(self):
        policy = self.make(10, 10)
        policy.fill(np.arange(10))
        assert all(hits.all() for hits in self.play(policy, [np.arange(10), np.array([3, 1])] * 3))

    def test_memory(self):
        """Capacities in bytes count this much for any policy (`plan/capacity.py`)."""
        assert self.node_bytes <= DIRECTORY_BYTES_PER_NODE
        assert self.row_bytes <= STATE_BYTES_PER_ROW
        assert self.make(1000, 0).state_bytes <= self.node_bytes * 1000 + 5000
        assert self.make(1000, 800).state_bytes <= self.node_bytes * 1000 + self.row_bytes * 800 + 5000

    def test_memory_is_there_from_the_start(self):
        """What is written first gets its memory then, which takes long: it shall not come in the batches."""
        policy = self.make(400_000, 300_000)
        tables = [each for each in vars(policy).values() if isinstance(each, np.ndarray)]
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for table in tables:
            np.invert(table, out=table)
        num_pages = sum(table.nbytes for table in tables) // 4096
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before <= 2 + num_pages // 20  # the system moves pages now and then

    def test_no_nodes_and_no_ids(self):
        policy = self.make(0, 5)
        policy.fill(np.empty(0, np.int64))
        assert self.play(policy, [np.empty(0, np.int64)] * 2)[0].size == 0

    @pytest.mark.parametrize("bad", [-1, 7])
    def test_ids_outside(self, bad):
        with pytest.raises(NodeIdError, match=rf"ids\[1\] = {bad}"):
            self.make(7, 3).fill(np.array([1, bad]))
        with pytest.raises((NodeIdError, UsageError)):
            self.play(self.make(7, 3), [np.array([1, bad])])

    def test_filled_once_and_first(self):
        policy = self.make(7, 3)
        policy.fill(np.array([1, 2]))
        with pytest.raises(UsageError, match="initial content"):
            policy.fill(np.array([1, 2]))
        with pytest.raises(UsageError, match="repetitions"):
            self.make(7, 3).fill(np.array([2, 2]))

    def test_negative_capacity(self):
        with pytest.raises(UsageError, match="capacity"):
            self.make(7, -1)


class ModelContract(PolicyContract):
    """A policy that equals a textbook model access by access. Give `model` too."""

    def model(self, capacity):
        """Return the model of a new policy."""
        raise NotImplementedError

    @INHERITED
    @given(SEEDS, CAPACITIES, st.integers(0, 45))
    def test_equals_its_model(self, seed, capacity, num_filled):
        policy, model = self.make(NUM_NODES, capacity), self.model(capacity)
        filled = np.random.default_rng(seed).permutation(NUM_NODES)[:num_filled]
        policy.fill(filled)
        model.fill(filled.tolist())
        for ids in draw_batches(seed + 1):
            hits = policy.access(ids).hit_slots >= 0
            assert hits.tolist() == [model.access(node) for node in ids.tolist()]
            assert set(resident(policy).values()) == model.content()

    @pytest.mark.parametrize("capacity", [1, 30, 200, 450, 599])
    @pytest.mark.parametrize("skew", [0.0, 0.8])
    def test_equals_its_model_in_large_batches(self, capacity, skew):
        """Kernels take ids in groups; here are several groups to a batch, and rows that the hand meets in the group that asks for them."""
        policy, model, random = self.make(600, capacity), self.model(capacity), np.random.default_rng(capacity)
        chances = random.permutation(1.0 / np.arange(1, 601) ** skew)
        for size in (600, 150, 300, 64, 65, 500, 200, 450):
            ids = random.choice(600, size, replace=False, p=chances / chances.sum())
            hits = policy.access(ids).hit_slots >= 0
            assert hits.tolist() == [model.access(node) for node in ids.tolist()]
            assert set(resident(policy).values()) == model.content()
