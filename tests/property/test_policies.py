"""Every policy equals its model, and Belady's is the best of all."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import cache
from penstock.cache import CLOCK, FIFO, LFU, LRU, S3FIFO, SIEVE, Belady, Policy, Static, simulate
from penstock.cache import belady as belady_module
from penstock.cache import fifo as fifo_module
from penstock.cache import s3fifo as s3fifo_module
from penstock.cache.choose import DYNAMIC, POLICIES
from penstock.errors import UsageError
from penstock.kernels.cache_belady import reference as belady_reference
from penstock.kernels.cache_clock import reference as clock_reference
from penstock.kernels.cache_fifo import reference as fifo_reference
from penstock.kernels.cache_lfu import reference as lfu_reference
from penstock.kernels.cache_lru import reference as lru_reference
from penstock.kernels.cache_s3fifo import reference as s3fifo_reference
from penstock.kernels.cache_sieve import reference as sieve_reference
from tests.contract.policies import CAPACITIES, INHERITED, NUM_NODES, SEEDS, Cache, ModelContract, PolicyContract, draw_batches, resident

ONLINE = [Static, *DYNAMIC.values()]


class TestStatic(PolicyContract):
    row_bytes = 0

    def make(self, num_nodes, capacity):
        return Static(num_nodes, capacity)

    def test_nothing_comes_in(self):
        policy = self.make(5, 2)
        policy.fill(np.array([4, 1]))
        (hits,) = self.play(policy, [np.arange(5)])
        assert hits.tolist() == [False, True, False, False, True]
        assert resident(policy) == {0: 4, 1: 1}


class TestFIFO(ModelContract):
    row_bytes = 0
    make, model = staticmethod(FIFO), staticmethod(fifo_reference.Model)

    @given(SEEDS, CAPACITIES, st.integers(0, 45))
    def test_rows_are_counted_anew(self, seed, capacity, num_filled):
        policy, model = self.make(NUM_NODES, capacity), self.model(capacity)
        filled = np.random.default_rng(seed).permutation(NUM_NODES)[:num_filled]
        policy.fill(filled)
        model.fill(filled.tolist())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fifo_module, "MAX_NUMBER", 2 * NUM_NODES)
            for ids in draw_batches(seed):
                hits = policy.access(ids).hit_slots >= 0
                assert hits.tolist() == [model.access(node) for node in ids.tolist()]
        assert set(resident(policy).values()) == model.content()


def test_a_name_is_that_of_one_policy():
    assert len({*POLICIES}) == len(POLICIES)


def test_every_dynamic_policy_has_a_model():
    tested = [each().make(5, 2) for each in ModelContract.__subclasses__()]
    assert {policy.name: type(policy) for policy in tested} == DYNAMIC, "DYNAMIC in cache/choose.py, and the subclasses of ModelContract"
    assert {kind.__name__ for kind in DYNAMIC.values()} <= {*cache.__all__}, "cache/__init__.py"


@pytest.mark.parametrize("count", [None, 1.0, -1, 4])
def test_a_policy_that_says_no_number_of_rows(count):
    class Wrong(Policy):
        name = "wrong"

        def _access(self, ids, hit_slots, inserted, into):
            return count

    with pytest.raises(UsageError, match=rf"wrong: _access returns how many misses are inserted, of 3 ids; got {count}"):
        Wrong(9, 5).access(np.arange(3))


@pytest.mark.parametrize("policy", [CLOCK, SIEVE, LRU, Belady])
def test_most_rows(policy, monkeypatch):
    """Slots share their 32 bits with marks, or with places in what is several times as long."""
    most, window = policy.most_rows, [1] if policy is Belady else []
    with pytest.raises(UsageError, match=f"{policy.name} keeps at most {most} rows, got {most + 1}"):
        policy(most + 1, most + 1, *window)
    monkeypatch.setattr(policy, "most_rows", 5)
    assert policy(10, 5, *window).num_slots == 5


class TestCLOCK(ModelContract):
    make, model = staticmethod(CLOCK), staticmethod(clock_reference.Model)


class TestSIEVE(ModelContract):
    row_bytes = 8
    make, model = staticmethod(SIEVE), staticmethod(sieve_reference.Model)

    def test_the_hand_goes_from_the_newest_row_back_to_the_oldest(self):
        policy, model = self.make(5, 2), self.model(2)
        for ids in [[0, 1], [0], [2, 3]]:  # 1, the newest row, leaves for 2; then 0, the oldest, for 3
            policy.access(np.array(ids))
            for node in ids:
                model.access(node)
        assert set(resident(policy).values()) == model.content() == {2, 3}


class TestS3FIFO(ModelContract):
    make, model = staticmethod(S3FIFO), staticmethod(s3fifo_reference.Model)

    @given(SEEDS, CAPACITIES)
    def test_marks_are_renewed(self, seed, capacity):
        policy, model = self.make(NUM_NODES, capacity), self.model(capacity)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(s3fifo_module, "MAX_MARK", 64)
            for ids in draw_batches(seed):
                hits = policy.access(ids).hit_slots >= 0
                assert hits.tolist() == [model.access(node) for node in ids.tolist()]
        assert policy.slots.min() >= -2 - 64 - NUM_NODES


class TestLRU(ModelContract):
    node_bytes, row_bytes = 8, 16
    make, model = staticmethod(LRU), staticmethod(lru_reference.Model)

    @pytest.mark.parametrize(("capacity", "size"), [(1, 1), (2, 1), (5, 2), (50, 7), (50, 60)])
    def test_log_is_squeezed(self, capacity, size):
        """Hits fill the log with void entries; now and then a miss takes the first one that is not."""
        random = np.random.default_rng(capacity)
        policy, model, num_squeezing = self.make(NUM_NODES + capacity, capacity), self.model(capacity), 0
        for number in range(1500 // size):
            ids = random.permutation(capacity + (number % 10 == 0))[:size]
            hits = policy.access(ids).hit_slots >= 0
            assert hits.tolist() == [model.access(node) for node in ids.tolist()]
            num_squeezing += policy.is_squeezed
        assert set(resident(policy).values()) == model.content()
        assert num_squeezing > 0 or capacity < 5


class TestLFU(ModelContract):
    make, model = staticmethod(LFU), staticmethod(lfu_reference.Model)

    def test_counts_stop(self):
        """Two rows far beyond the largest count: the one used longest ago goes."""
        policy, model = self.make(4, 2), self.model(2)
        trace = [0] * 300 + [1] * 600 + [0, 2, 1, 0]
        assert [bool(policy.access(np.array([v])).hit_slots[0] >= 0) for v in trace] == [model.access(v) for v in trace]


def announced(policy, batches, window):
    """Yield the batches, each once those of the window behind it are announced."""
    coming = iter(batches)
    for ids in itertools.islice(coming, window):
        policy.announce(ids)
    for ids in batches:
        yield ids
        for later in itertools.islice(coming, 1):
            policy.announce(later)


class TestBelady(PolicyContract):
    node_bytes = 8
    window, hotness = 3, None

    def make(self, num_nodes, capacity):
        hotness = None if self.hotness is None else np.resize(self.hotness, num_nodes)
        return Belady(num_nodes, capacity, self.window, hotness)

    def play(self, policy, batches):
        cache = Cache(policy)
        return [cache.read(ids) for ids in announced(policy, batches, self.window)]

    @INHERITED
    @given(SEEDS, CAPACITIES, st.integers(0, 45), st.integers(1, 6))
    def test_equals_its_model(self, seed, capacity, num_filled, window):
        random, batches = np.random.default_rng(seed), draw_batches(seed + 1)
        hotness = random.choice([random.random(NUM_NODES), np.zeros(NUM_NODES)])
        policy = Belady(NUM_NODES, capacity, window, hotness)
        model = belady_reference.Model(capacity, (-1 - policy.slots).tolist())
        filled = random.permutation(NUM_NODES)[:num_filled]
        policy.fill(filled)
        model.fill(filled.tolist())
        told = 0
        for number, ids in enumerate(batches):
            while told < len(batches) and told < number + window and (told <= number or random.random() < 0.7):
                policy.announce(batches[told])
                model.announce(batches[told].tolist())
                told += 1
            hits = policy.access(ids).hit_slots >= 0
            assert hits.tolist() == model.access(ids.tolist())
            assert set(resident(policy).values()) == model.content()

    @INHERITED
    @given(SEEDS, CAPACITIES)
    def test_places_in_the_log_are_renewed(self, seed, capacity):
        batches, usual, renewing = draw_batches(seed), self.make(NUM_NODES, capacity), self.make(NUM_NODES, capacity)
        expected = self.play(usual, batches)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(belady_module, "MAX_PLACE", 8 * NUM_NODES)
            hits = self.play(renewing, batches)
        assert [h.tolist() for h in hits] == [h.tolist() for h in expected]
        assert resident(usual) == resident(renewing)

    def test_queues_are_squeezed(self, monkeypatch):
        """Little is known of the future and most ids hit: rows move to the ends of their queues, and leave void entries behind."""
        squeeze, squeezed = belady_module.kernels.squeeze, []
        monkeypatch.setattr(belady_module.kernels, "squeeze", lambda *state: (squeezed.append(1), squeeze(*state)))
        random, num_nodes = np.random.default_rng(3), 300
        hotness = None if self.hotness is None else random.random(num_nodes)
        policy = Belady(num_nodes, 280, 1, hotness)
        model = belady_reference.Model(280, (-1 - policy.slots).tolist())
        for _ in range(60):
            ids = random.permutation(num_nodes)[:45]
            policy.announce(ids)
            model.announce(ids.tolist())
            assert (policy.access(ids).hit_slots >= 0).tolist() == model.access(ids.tolist())
            assert set(resident(policy).values()) == model.content()
        assert squeezed

    def test_batches_come_as_announced(self):
        policy = self.make(5, 2)
        with pytest.raises(UsageError, match="announce"):
            policy.access(np.array([1]))
        policy.announce(np.array([1, 2]))
        for wrong in ([2, 1], [1], [1, 3]):
            with pytest.raises(UsageError, match="oldest"):
                policy.access(np.array(wrong))
        policy.announce(np.array([3]))
        policy.announce(np.array([3]))
        with pytest.raises(UsageError, match="whole window"):
            policy.announce(np.array([4]))
        assert policy.access(np.array([1, 2])).inserted.tolist() == [0, 1]

    def test_batches_that_look_alike_are_told_apart(self):
        random = np.random.default_rng(3)
        for _ in range(500):
            ids = random.permutation(100)[:20]
            first, second = random.choice(20, 2, replace=False)
            swapped, other = ids.copy(), ids.copy()
            swapped[[first, second]] = ids[[second, first]]
            other[first], other[second] = ids[first] ^ 1, ids[second] ^ 1
            policy = self.make(100, 3)
            policy.announce(ids)
            for wrong in (swapped, other):
                with pytest.raises(UsageError, match="oldest"):
                    policy.access(wrong)

    def test_window(self):
        with pytest.raises(UsageError, match="window"):
            Belady(5, 2, 0)


class TestBeladyByHotness(TestBelady):
    hotness = np.random.default_rng(0).random(1000)


@given(SEEDS, CAPACITIES, st.sampled_from([0, 40]))
def test_no_policy_beats_belady_with_full_knowledge(seed, capacity, num_filled):
    batches = draw_batches(seed)
    filled = np.random.default_rng(seed).permutation(NUM_NODES)[:num_filled]
    best = Belady(NUM_NODES, capacity, len(batches) + 1)
    best.fill(filled)
    most = simulate(best, batches)[0].sum()
    for kind in ONLINE:
        policy = kind(NUM_NODES, capacity)
        policy.fill(filled)
        assert simulate(policy, batches)[0].sum() <= most, policy.name


def most_hits(batches, content, capacity):
    """The most hits of any choice of what to keep after each batch, by trying all."""
    if not batches:
        return 0
    batch = frozenset(batches[0])
    candidates = sorted(content | batch)
    kept = itertools.combinations(candidates, min(capacity, len(candidates)))
    return len(batch & content) + max(most_hits(batches[1:], frozenset(choice), capacity) for choice in kept)


@given(SEEDS, st.integers(0, 3))
def test_belady_equals_exhaustive_search(seed, capacity):
    random = np.random.default_rng(seed)
    batches = [random.permutation(5)[: random.integers(0, 4)] for _ in range(int(random.integers(1, 6)))]
    hits, _ = simulate(Belady(5, capacity, 6), batches)
    assert hits.sum() == most_hits([b.tolist() for b in batches], frozenset(), capacity)


@given(SEEDS, CAPACITIES, st.integers(1, 5))
def test_superbatch_is_belady_that_learns_at_once(seed, capacity, window):
    """Accesses of one superbatch: the same as a window of the whole future that ends there."""
    batches = draw_batches(seed)
    policy, model = Belady(NUM_NODES, capacity, window), belady_reference.Model(capacity, [0] * NUM_NODES)
    expected = []
    for first in range(0, len(batches), window):
        for ids in batches[first : first + window]:
            model.announce(ids.tolist())
        expected += [sum(model.access(ids.tolist())) for ids in batches[first : first + window]]
    hits, asked = simulate(policy, batches, superbatch=True)
    assert hits.tolist() == expected
    assert asked.tolist() == [ids.size for ids in batches]
