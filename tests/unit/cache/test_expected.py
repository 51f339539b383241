"""Expected visits: what counts say, moved toward nodes of the same degree."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cache import hotness
from penstock.cache.expected import expected_visits
from penstock.cache.hotness import degree_hotness
from penstock.cache.inclusion import inclusion_probability
from penstock.cache.presample import reads_again
from penstock.cache.workload import Workload
from penstock.order import RandomOrder
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds
from tests.graphs import assert_same_bytes, homogeneous_graph

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed):
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 300))
    degree = random.choice([0, 1, 2, 3, 9, 1000, 2**33], size)
    visits = random.poisson(np.minimum(degree, 4) * random.gamma(random.choice([0.3, 50]), 1, size)).astype(np.uint8)
    inclusion = random.choice([0, 1e-30, 2.0**-64, 0.001, 0.02, 1], size).astype(random.choice([np.float32, np.float64]))
    return visits, degree, inclusion if random.integers(2) else None, random.choice([0.0, 0.7, 1.0])


def classes(degree, inclusion):
    """Yield which nodes are alike."""
    likely = np.zeros(degree.size) if inclusion is None else np.where(inclusion > 0, np.maximum(inclusion, 2.0**-64), 0)
    for kind in set(zip(degree, likely, strict=True)):
        yield (degree == kind[0]) & (likely == kind[1])


def by_definition(visits, degree, inclusion, again):
    """Class by class: mean + trust * (count - mean), trust being the share of the variance that chance does not explain."""
    result = np.zeros(visits.size)
    for of_class in classes(degree, inclusion):
        counts = visits[of_class].astype(float)
        chance = (1 - again) * counts.mean()
        beyond = max(counts.var() - chance, 0.0)
        trust = beyond / (beyond + chance) if beyond > 0 else 0.0
        result[of_class] = counts.mean() + trust * (counts - counts.mean())
    return result


@given(SEEDS)
def test_equals_its_definition(seed):
    *given, again = given_all = draw(seed)
    found = expected_visits(*given, again=again)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_definition(*given_all), rtol=1e-5, atol=1e-5)


@given(SEEDS)
def test_a_class_keeps_its_sum_and_its_order(seed):
    visits, *kinds, again = draw(seed)
    found = expected_visits(visits, *kinds, again=again)
    assert (found >= 0).all()
    for of_class in classes(*kinds):
        assert found[of_class].sum() == pytest.approx(visits[of_class].sum(), rel=1e-4, abs=1e-4)
        ranked = found[of_class][np.argsort(visits[of_class], kind="stable")]
        assert (np.diff(ranked) >= -1e-6).all()


def test_near_degrees_are_one_class_and_blocks_do_not_matter(monkeypatch):
    visits, degree = np.array([0, 4, 0, 2, 0]), np.array([1000, 1001, 2000, 64, 0])
    whole = expected_visits(visits, degree)
    assert whole[:2].tolist() == [1, 3]  # of mean 2 and variance 4: half of it is trusted
    assert whole[2:].tolist() == [0, 2, 0]
    monkeypatch.setattr(hotness, "BLOCK", 2)
    assert_same_bytes(expected_visits(visits, degree), whole)
    likely = np.array([0.5, 0.51, 0, 0.5, 0.5])
    assert_same_bytes(expected_visits(visits, degree, likely), whole)
    likely[1] = 0.9
    assert expected_visits(visits, degree, likely)[:2].tolist() == [0, 4]  # of the same degree, not of the same probability


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


def inclusion(sampler, seeds, num_hops):
    return inclusion_probability(sampler, NODE, seeds, batch_size=10, num_hops=num_hops)[NODE].astype(np.float32)


def test_a_workload_expects_what_it_counts_and_whole_epochs_come_again():
    graph, seeds = homogeneous_graph(np.random.default_rng(0)), np.arange(100)
    sampler, order = NeighborSampler(graph, [3, 2], seed=0), RandomOrder(100, 0)
    for max_batches, is_whole in ((None, True), (10, True), (12, True), (9, False), (1, False)):
        workload = Workload(sampler, NodeSeeds(NODE, seeds), order, 10, max_batches)
        visits, again = workload.visits().nodes[NODE], reads_again(workload)
        of_rows, of_lists = (again[key] if is_whole else 0.0 for key in (NODE, EDGE))
        lists, degree = workload.visits().lists[EDGE], degree_hotness(graph, NODE)
        for by_inclusion in (True, False):
            workload = replace(workload, by_inclusion=by_inclusion)
            likely = [inclusion(sampler, seeds, hops) if by_inclusion else None for hops in (2, 1)]
            assert_same_bytes(workload.row_visits(NODE), expected_visits(visits, degree, likely[0], again=of_rows))
            assert_same_bytes(workload.list_visits(EDGE), expected_visits(lists, degree, likely[1], again=of_lists))
            assert_same_bytes(workload.expected_rows(visits, NODE, max_batches), workload.row_visits(NODE))
            assert_same_bytes(workload.expected_lists(lists, EDGE, max_batches), workload.list_visits(EDGE))


def test_what_is_read_again():
    """All of it where whole lists are read; one in four of lists of four, of which one is drawn."""
    indptr = np.concatenate([[0], np.cumsum(np.where(np.arange(5000) < 1000, 4, 0))])
    csc = CSC(indptr, np.arange(1000, 5000))
    graph, seeds = Graph({NODE: 5000}, {EDGE: csc}, True), np.arange(1000)
    for fanout, share in ((-1, 1.0), (4, 1.0), (1, (1 + 0.25) / 2), (2, (1 + 2 * 0.5) / 3)):
        found = reads_again(SampledBatches(NeighborSampler(graph, [fanout], seed=0), NodeSeeds(NODE, seeds), RandomOrder(1000, 0), 250))
        assert found[NODE] == pytest.approx(share, abs=0.03)
        assert found[EDGE] == 1


def test_of_equal_counts_the_class_decides_and_of_one_class_the_counts():
    degree = np.array([9, 9, 9, 1, 1, 1, 9, 0])
    visits = np.array([3, 1, 0, 1, 0, 0, 2, 0], np.uint8)
    hotness = expected_visits(visits, degree, again=0.9)
    assert np.argsort(-hotness, kind="stable").tolist() == [0, 6, 1, 3, 2, 4, 5, 7]
    assert hotness[[4, 5]].min() > 0
    assert hotness[7] == 0
