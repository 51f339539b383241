"""Proof that each way to sample has the probabilities that it should have, by the p-values of its tests; a way joins by an entry in WAYS.

The default run has fixed seeds, so it cannot fail by chance; `pytest -m deep` repeats every test under 200 seeds and asks that the
p-values themselves be uniform.
"""

import numpy as np
import pytest
from scipy import stats

from tests.unit import test_budget_draws, test_layer_draws, test_shared_draws, test_uniformity, test_walk_visits, test_weighted_draws
from tests.unit.p_values import SMALLEST_P

WAYS = {
    "uniform": test_uniformity,
    "shared": test_shared_draws,
    "by weight": test_weighted_draws,
    "walks": test_walk_visits,
    "layers": test_layer_draws,
    "numbers of nodes": test_budget_draws,
}
"""Each with CASES, pairs of a name and a p-value by seed, and wrong(): p-values of ways to do it wrong."""
CASES = [(f"{way}: {name}", p_value) for way, module in WAYS.items() for name, p_value in module.CASES]
of_cases = pytest.mark.parametrize(("name", "p_value"), CASES, ids=[name for name, _ in CASES])


@of_cases
def test_as_often_as_they_should(name, p_value):
    assert p_value(2) > SMALLEST_P


@pytest.mark.deep
@pytest.mark.timeout(3600)
@of_cases
def test_p_values_are_uniform(name, p_value):
    p_values = np.array([p_value(seed) for seed in range(1000, 1200)])
    assert p_values.min() > 1e-6
    if not name.startswith("uniform: pairs"):  # a Bonferroni bound is not a uniform p-value
        assert stats.kstest(p_values, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("way", WAYS)
def test_the_tests_can_fail(way):
    assert max(WAYS[way].wrong()) < 1e-20
