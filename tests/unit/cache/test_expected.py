"""Expected visits: what counts say, moved toward nodes of the same degree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cache import expected
from penstock.cache.choose import Workload
from penstock.cache.expected import expected_visits
from penstock.cache.hotness import degree_hotness
from penstock.order import RandomOrder
from penstock.records import EDGE, NODE
from penstock.sample import NeighborSampler
from tests.graphs import assert_same_bytes, homogeneous_graph

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed):
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 300))
    degree = random.choice([0, 1, 2, 3, 9, 1000, 2**33], size)
    return random.poisson(np.minimum(degree, 4) * random.gamma(random.choice([0.3, 50]), 1, size)).astype(np.uint8), degree


def by_definition(visits, degree):
    """Class by class: mean + trust * (count - mean), trust being the share of the variance that Poisson's law does not explain."""
    result = np.zeros(visits.size)
    for each in np.unique(degree):
        counts = visits[degree == each].astype(float)
        beyond = max(counts.var() - counts.mean(), 0.0)
        trust = beyond / (beyond + counts.mean()) if counts.any() else 0.0
        result[degree == each] = counts.mean() + trust * (counts - counts.mean())
    return result


@given(SEEDS)
def test_equals_its_definition(seed):
    visits, degree = draw(seed)
    found = expected_visits(visits, degree)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_definition(visits, degree), rtol=1e-5, atol=1e-5)


@given(SEEDS)
def test_a_class_keeps_its_sum_and_its_order(seed):
    visits, degree = draw(seed)
    found = expected_visits(visits, degree)
    assert (found >= 0).all()
    for each in np.unique(degree):
        of_class = degree == each
        assert found[of_class].sum() == pytest.approx(visits[of_class].sum(), rel=1e-4, abs=1e-4)
        ranked = found[of_class][np.argsort(visits[of_class], kind="stable")]
        assert (np.diff(ranked) >= -1e-6).all()


def test_near_degrees_are_one_class_and_blocks_do_not_matter(monkeypatch):
    visits, degree = np.array([0, 4, 0, 2, 0]), np.array([1000, 1001, 2000, 64, 0])
    whole = expected_visits(visits, degree)
    assert whole[:2].tolist() == [1, 3]  # of mean 2 and variance 4: half of it is trusted
    assert whole[2:].tolist() == [0, 2, 0]
    monkeypatch.setattr(expected, "BLOCK", 2)
    assert_same_bytes(expected_visits(visits, degree), whole)


def test_closer_to_the_truth_than_counts_or_degree():
    """Rates that go with the degree and vary beside it; counts of a few batches."""
    random = np.random.default_rng(0)
    degree = random.geometric(0.1, 200_000)
    rates = degree / degree.mean() * random.gamma(0.8, 1.25, degree.size)
    visits = random.poisson(rates)
    best = np.sort(rates)[-10_000:].sum()

    def kept(ranking):
        return rates[np.argsort(-ranking, kind="stable")[:10_000]].sum() / best

    shares = kept(visits), kept(degree), kept(expected_visits(visits, degree))
    assert shares[2] > max(shares[:2]) + 0.01


def test_counts_stand_where_all_batches_are_sampled():
    graph, seeds = homogeneous_graph(np.random.default_rng(0)), np.arange(100)
    sampler, order = NeighborSampler(graph, [3, 2], seed=0), RandomOrder(100, 0)
    for max_batches, is_whole in ((None, True), (10, True), (12, True), (9, False), (1, False)):
        workload = Workload(sampler, NODE, seeds, order, 10, max_batches)
        visits = workload.visits().nodes[NODE]
        lists, degree = workload.visits().lists[EDGE], degree_hotness(graph, NODE)
        assert_same_bytes(workload.row_visits(NODE), expected_visits(visits, degree, is_whole=is_whole))
        assert_same_bytes(workload.list_visits(EDGE), expected_visits(lists, degree, is_whole=is_whole))
        if is_whole:
            assert (np.floor(workload.row_visits(NODE)) == visits).all()
        assert_same_bytes(workload.expected(visits, NODE, max_batches), workload.row_visits(NODE))


def test_where_counts_are_equal_degree_decides():
    """Of a whole epoch; also among nodes that nobody visited, as far as others of their degree were."""
    degree = np.array([9, 9, 9, 1, 1, 1, 9, 0])
    visits = np.array([3, 1, 0, 1, 0, 0, 2, 0], np.uint8)
    hotness = expected_visits(visits, degree, is_whole=True)
    assert np.argsort(-hotness, kind="stable").tolist() == [0, 6, 1, 3, 2, 4, 5, 7]
    assert hotness[[4, 5]].min() > 0
    assert hotness[7] == 0
