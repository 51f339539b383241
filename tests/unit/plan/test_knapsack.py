"""The split of one budget over neighbour lists and feature rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.plan import plan_split
from penstock.records import NODE
from penstock.sample import NeighborSampler
from penstock.store import ingest

SLOPES = dict(seconds_per_list_hit=3.0, seconds_per_row_hit=2.0)
ONLY_LISTS = dict(seconds_per_list_hit=3.0, seconds_per_row_hit=0.0)
ONLY_ROWS = dict(seconds_per_list_hit=0.0, seconds_per_row_hit=2.0)


def value_of(lists, rows, list_visits, row_visits):
    return 3.0 * np.sum(list_visits[lists]) + 2.0 * np.sum(row_visits[rows])


@given(st.data())
def test_within_one_entry_of_the_best(data):
    num_lists, num_rows = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))

    def numbers(count, least):
        return np.array(data.draw(st.lists(st.integers(least, 20), min_size=count, max_size=count)), np.int64)

    list_visits, list_bytes, row_visits = numbers(num_lists, 0), numbers(num_lists, 1), numbers(num_rows, 0)
    row_bytes, budget = data.draw(st.integers(1, 10)), data.draw(st.integers(0, 60))
    lists, rows = plan_split(list_visits, list_bytes, row_visits, row_bytes, budget_bytes=budget, **SLOPES)
    used = list_bytes[lists].sum() + rows.size * row_bytes
    assert used <= budget
    assert np.unique(lists).size == lists.size
    assert np.unique(rows).size == rows.size
    best = 0.0
    for chosen in itertools.product([False, True], repeat=num_lists + num_rows):
        some_lists, some_rows = np.flatnonzero(chosen[:num_lists]), np.flatnonzero(chosen[num_lists:])
        if list_bytes[some_lists].sum() + some_rows.size * row_bytes <= budget:
            best = max(best, value_of(some_lists, some_rows, list_visits, row_visits))
    largest = max([0.0, *(3.0 * list_visits), *(2.0 * row_visits)])
    assert best - largest <= value_of(lists, rows, list_visits, row_visits) <= best


def test_best_first_and_nothing_without_visits():
    lists, rows = plan_split(np.array([0, 5, 9]), np.array([8, 8, 8]), np.array([1, 0, 7]), 8, budget_bytes=100, **SLOPES)
    assert lists.tolist() == [2, 1]
    assert rows.tolist() == [2, 0]


def test_an_entry_too_large_does_not_stop_the_rest():
    lists, rows = plan_split(np.array([100, 1]), np.array([50, 4]), np.array([1]), 4, budget_bytes=10, **SLOPES)
    assert lists.tolist() == [1]
    assert rows.tolist() == [0]


def test_impossible_arguments_are_refused():
    with pytest.raises(UsageError):
        plan_split(np.ones(1), np.ones(1), np.ones(1), 4, budget_bytes=-1, **SLOPES)


@pytest.mark.parametrize("name", ["soc_slashdot0902", "ogbn_arxiv_nofeat"])
def test_better_than_any_fixed_split_on_a_real_trace(name, real_graphs, tmp_path):
    store = ingest(real_graphs / f"{name}.npz", tmp_path / name, memory="4GiB")
    graph = store.graph()
    ((edge_type, csc),) = graph.adjacency.items()
    num_nodes, sampler = csc.num_dst, NeighborSampler(graph, [10, 5], seed=1)
    seeds = np.random.default_rng(0).permutation(num_nodes)[: num_nodes // 20]
    list_visits, row_visits = np.zeros(num_nodes, np.int64), np.zeros(num_nodes, np.int64)
    workspace = sampler.workspace()
    for batch, first in enumerate(range(0, seeds.size, 500)):
        sample = sampler.sample(NODE, np.sort(seeds[first : first + 500]), epoch=0, batch=batch, workspace=workspace)
        num_expanded = sample.edges[edge_type].row_ptr.size - 1
        list_visits[sample.nodes[NODE][:num_expanded]] += 1
        row_visits[sample.nodes[NODE]] += 1
    list_bytes, row_bytes = np.diff(csc.indptr) * 4, 512
    for budget in (100_000, 1_000_000, 10_000_000):
        lists, rows = plan_split(list_visits, list_bytes, row_visits, row_bytes, budget_bytes=budget, **SLOPES)
        chosen = value_of(lists, rows, list_visits, row_visits)
        assert 0 < list_bytes[lists].sum() + rows.size * row_bytes <= budget
        for share in np.linspace(0, 1, 21):
            parts = dict(lists=int(share * budget), rows=budget - int(share * budget))
            some_lists, _ = plan_split(list_visits, list_bytes, row_visits, row_bytes, budget_bytes=parts["lists"], **ONLY_LISTS)
            _, some_rows = plan_split(list_visits, list_bytes, row_visits, row_bytes, budget_bytes=parts["rows"], **ONLY_ROWS)
            assert chosen >= 0.999 * value_of(some_lists, some_rows, list_visits, row_visits)
