"""How many samplers there are, and when a process does the other's work."""

import itertools
import math

import pytest

from penstock.errors import UsageError
from penstock.plan import Times, plan_samplers, plan_samplers_beside
from penstock.plan.factored import sampling_profit, standby_profit


def times(sample_s, train_s):
    return Times(sample_s, 0.0, train_s)


@pytest.mark.parametrize(
    ("num_processes", "sample_s", "train_s", "expected"),
    [(8, 1, 7, 1), (8, 1, 3, 2), (8, 1, 1, 4), (2, 1, 100, 1), (2, 100, 1, 1), (8, 100, 1, 7), (4, 1, 2, 2), (3, 1, 2, 1)],
)
def test_the_papers_formula(num_processes, sample_s, train_s, expected):
    assert plan_samplers(num_processes, times(sample_s, train_s)) == expected


def test_neither_side_waits_longer_than_one_process_less_would_make_it():
    """One sampler fewer would produce more slowly than the trainers consume."""
    for num_processes, sample_s, train_s in itertools.product(range(2, 17), (0.5, 1, 3), (0.7, 2, 9)):
        samplers = plan_samplers(num_processes, times(sample_s, train_s))
        assert 1 <= samplers <= num_processes - 1
        fewer = samplers - 1
        assert fewer == 0 or fewer / sample_s < (num_processes - fewer) / train_s


def test_samplers_beside_trainers():
    assert [plan_samplers_beside(1, times(s, 2), 8) for s in (0.1, 2, 2.1, 5, 100)] == [1, 1, 2, 3, 8]
    assert plan_samplers_beside(3, times(1, 1), 8) == 3


def test_the_longer_of_rows_and_training_counts():
    assert Times(1, 5, 2).trainer_s == Times(1, 2, 5).trainer_s == 5


def test_times_that_were_not_measured():
    with pytest.raises(UsageError, match="measured seconds, which must be above 0"):
        plan_samplers(4, times(0, 1))
    with pytest.raises(UsageError, match="num_processes must be at least 2"):
        plan_samplers(1, times(1, 1))


def test_when_a_sampler_trains():
    assert standby_profit(4, 1.0, 2, 1.5) == pytest.approx(0.5)
    assert standby_profit(2, 1.0, 2, 1.5) < 0
    assert standby_profit(1, 1.0, 0, 99.0) == math.inf
    assert standby_profit(0, 1.0, 0, 0.0) == -math.inf


def test_when_a_trainer_samples():
    assert sampling_profit(3, 1.0, 1, 1.0) == pytest.approx(2.0)
    assert sampling_profit(1, 1.0, 1, 1.0) == 0
    assert sampling_profit(1, 1.0, 0, 9.0) == math.inf
