"""Orders are permutations: every seed once per epoch, for any batch size and number of ranks; random ones are uniform."""

import math
import pickle
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from penstock import rng
from penstock.order import ORDERS, FirstBatches, GivenOrder, LocalOrder, ProximityOrder, RandomOrder, order_by_name
from penstock.order.orders import permutation
from penstock.order.proximity import cut_evenly
from penstock.order.split import SplitOrder
from penstock.records import NODE
from tests.graphs import assert_same_bytes, homogeneous_graph
from tests.train.stores import make_store


def orders(num_seeds, seed):
    """All that have a name, over every other node of a graph, and those that are told more."""
    random, cut = np.random.default_rng(0), num_seeds // 3
    graph, seeds = homogeneous_graph(random, 2 * num_seeds, 4 * num_seeds), (NODE, 2 * random.permutation(num_seeds))
    return [
        *(order_by_name(name, graph, seeds, seed=seed, batch_size=16) for name in ORDERS),
        LocalOrder([cut, 0, num_seeds - cut], seed),
        ProximityOrder(np.random.default_rng(0).permutation(num_seeds), cut_evenly(num_seeds, max(cut, 1)), seed),
        SplitOrder(np.arange(num_seeds)[::-1], 2, "a partition", seed, num_trainers=2),
        GivenOrder(num_seeds, sampler=list(range(num_seeds))[::-1]),
        GivenOrder(num_seeds, batch_sampler=[[i] for i in range(num_seeds)]),
    ]


@given(st.integers(1, 500), st.integers(0, 2**64 - 1), st.integers(0, 3), st.integers(1, 70), st.integers(1, 5))
def test_every_seed_once_per_epoch(num_seeds, seed, epoch, batch_size, num_ranks):
    for order in orders(num_seeds, seed):
        num_batches = order.num_batches(batch_size, False)
        fed = [order.batch(epoch, index, batch_size) for rank in range(num_ranks) for index in range(rank, num_batches, num_ranks)]
        assert sorted(np.concatenate(fed).tolist()) == list(range(num_seeds)), order.name
        assert all(0 < batch.size <= batch_size for batch in fed)
        assert all(batch.dtype == np.int64 for batch in fed)


@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
def test_batches_of_a_split_are_of_their_part_and_trainer(num_seeds, num_parts, num_trainers, batch_size):
    """To the last one, also where seeds cannot be divided evenly."""
    order = SplitOrder(np.arange(num_seeds), num_parts, "a partition", 7, num_trainers=num_trainers)
    shares = [[] for _ in range(num_parts * num_trainers)]
    for index in range(order.num_batches(batch_size, False)):
        part, trainer = index % num_parts, index // num_parts % num_trainers
        shares[part * num_trainers + trainer] += order.batch(0, index, batch_size).tolist()
    assert [position for share in shares for position in sorted(share)] == list(range(num_seeds))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.integers(1, 300), st.integers(0, 99), st.integers(1, 40), st.integers(1, 20))
def test_only_the_first_batches(num_seeds, seed, batch_size, most):
    """They are those of the other order, whatever its kind, and all of them where it has fewer."""
    for order in orders(num_seeds, seed):
        first, num_batches = FirstBatches(order, most), order.num_batches(batch_size, False)
        assert first.num_batches(batch_size, False) == min(most, num_batches)
        assert (first.num_seeds, getattr(first, "seed", None)) == (order.num_seeds, getattr(order, "seed", None))
        assert first.name not in (order.name, FirstBatches(order, most + 1).name)
        for index in range(first.num_batches(batch_size, False)):
            assert_same_bytes(first.batch(1, index, batch_size), order.batch(1, index, batch_size))


@given(st.integers(1, 300), st.integers(1, 40))
def test_drop_last_leaves_out_less_than_a_batch(num_seeds, batch_size):
    for order in orders(num_seeds, 0)[:-1]:  # batches that are given are as long as they are
        num_batches = order.num_batches(batch_size, True)
        fed = [order.batch(0, index, batch_size) for index in range(num_batches)]
        assert all(batch.size == batch_size for batch in fed)
        num_parts = sum(size > 0 for size in getattr(order, "part_sizes", [num_seeds]))
        assert num_seeds - sum(batch.size for batch in fed) <= num_parts * (batch_size - 1)


@given(st.integers(1, 300), st.integers(0, 99), st.integers(1, 40), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=4))
def test_a_batch_does_not_depend_on_what_was_asked_before(num_seeds, seed, batch_size, others):
    """A run that is resumed, and another process, ask a new order for any batch of any epoch; samplers in processes get a copy."""
    for order, asked in zip(orders(num_seeds, seed), orders(num_seeds, seed), strict=True):
        num_batches = order.num_batches(batch_size, False)
        for epoch, index in others:
            asked.batch(epoch, index % num_batches, batch_size)
        assert asked.name == order.name
        copy = asked if isinstance(asked, GivenOrder) else pickle.loads(pickle.dumps(asked))
        assert_same_bytes(copy.batch(2, num_batches - 1, batch_size), order.batch(2, num_batches - 1, batch_size))


@pytest.mark.parametrize("name", ORDERS)
def test_a_store_is_as_good_as_its_graph(name, tmp_path):
    """A loader gives its store, training gives arrays."""
    store = make_store(tmp_path / "store")
    seeds, options = (NODE, store.split("train")), {"seed": 3, "batch_size": 16}
    given = order_by_name(name, store, seeds, **options), order_by_name(name, store.graph(), seeds, store.node_field("y"), **options)
    assert len({order.name for order in given}) == 1
    assert_same_bytes(*(order.batch(1, 2, 16) for order in given))


def test_orders_that_differ_say_so():
    """A state is refused by another order: it is compared by name and seed."""
    for one, other in zip(orders(100, 1), orders(100, 2), strict=True):
        is_same = one.batch(0, 0, 10).tolist() == other.batch(0, 0, 10).tolist()
        assert is_same or (one.name, getattr(one, "seed", None)) != (other.name, getattr(other, "seed", None)), one.name


@given(st.integers(2, 400), st.integers(0, 1000))
def test_epochs_and_seeds_differ(num_seeds, seed):
    order = RandomOrder(1000 + num_seeds, seed)
    first, second = order.batch(0, 0, 1000), order.batch(1, 0, 1000)
    assert (first != second).any()
    assert (first != RandomOrder(1000 + num_seeds, seed + 1).batch(0, 0, 1000)).any()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.integers(1, 20))
def test_local_order_keeps_to_its_parts(part_sizes, batch_size):
    order = LocalOrder(part_sizes, 3)
    ends = np.cumsum(part_sizes)
    for index in range(order.num_batches(batch_size, False)):
        batch = order.batch(0, index, batch_size)
        assert len(set(np.searchsorted(ends, batch, side="right"))) == 1
    if part_sizes and min(part_sizes) >= batch_size:
        parts = [int(np.searchsorted(ends, order.batch(0, index, batch_size)[0], side="right")) for index in range(len(part_sizes))]
        assert parts == list(range(len(part_sizes)))


def test_billion_seeds_take_no_memory():
    order = RandomOrder(10**9, 0)
    batch = order.batch(0, 123_456, 4096)
    assert len(set(batch.tolist())) == 4096
    assert batch.min() >= 0
    assert batch.max() < 10**9


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_all_permutations_are_equally_likely(n):
    index = {order: i for i, order in enumerate(permutations(range(n)))}
    counts = np.zeros(math.factorial(n))
    for epoch in range(30 * counts.size):
        counts[index[tuple(permutation(n, 0, n, rng.derive_key(7, epoch, rng.ORDER)).tolist())]] += 1
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("n", [16, 1000, 70_000])
def test_places_are_uniform_and_pairs_independent(n):
    """Where the first two elements of the order come from, over epochs, in 8 bands each."""
    counts = np.zeros((8, 8))
    for epoch in range(12_800):
        first, second = permutation(n, 0, 2, rng.derive_key(1, epoch, rng.ORDER))
        counts[first * 8 // n, second * 8 // n] += 1
    band = n / 8
    expected = np.full((8, 8), 12_800 / 64 * n / (n - 1))
    expected[np.diag_indices(8)] *= (band - 1) / band
    assert stats.chisquare(counts.reshape(-1), expected.reshape(-1) * 12_800 / expected.sum()).pvalue > 1e-3


def test_two_neighbouring_epochs_are_independent():
    counts = np.zeros((10, 10))
    for epoch in range(4000):
        left, right = (permutation(10, 0, 1, rng.derive_key(3, e, rng.ORDER))[0] for e in (epoch, epoch + 1))
        counts[left, right] += 1
    assert stats.chisquare(counts.reshape(-1)).pvalue > 1e-3
