"""The split of one budget over neighbour lists and feature rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.knapsack import take_best
from penstock.records import NODE
from penstock.sample import NeighborSampler
from penstock.store import ingest


def split(list_visits, list_bytes, row_visits, row_bytes, budget, slopes=(3.0, 2.0)):
    """Lists and rows by value per byte: a visit to a list saves slopes[0] seconds, one to a row slopes[1]."""
    sizes = np.asarray(list_bytes), np.full(row_visits.size, row_bytes)
    values = [slope * visits / np.maximum(each, 1) for slope, visits, each in zip(slopes, (list_visits, row_visits), sizes, strict=True)]
    return take_best(values, lambda kind, ids: sizes[kind][ids], budget)


def value_of(lists, rows, list_visits, row_visits):
    return 3.0 * np.sum(list_visits[lists]) + 2.0 * np.sum(row_visits[rows])


@given(st.data())
def test_within_one_entry_of_the_best(data):
    num_lists, num_rows = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))

    def numbers(count, least):
        return np.array(data.draw(st.lists(st.integers(least, 20), min_size=count, max_size=count)), np.int64)

    list_visits, list_bytes, row_visits = numbers(num_lists, 0), numbers(num_lists, 1), numbers(num_rows, 0)
    row_bytes, budget = data.draw(st.integers(1, 10)), data.draw(st.integers(0, 60))
    lists, rows = split(list_visits, list_bytes, row_visits, row_bytes, budget)
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
    lists, rows = split(np.array([0, 5, 9]), np.array([8, 8, 8]), np.array([1, 0, 7]), 8, 100)
    assert lists.tolist() == [2, 1]
    assert rows.tolist() == [2, 0]


def test_an_entry_too_large_does_not_stop_the_rest():
    lists, rows = split(np.array([100, 1]), np.array([50, 4]), np.array([1]), 4, 10)
    assert lists.tolist() == [1]
    assert rows.tolist() == [0]


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
        sample = sampler.sample({NODE: np.sort(seeds[first : first + 500])}, epoch=0, batch=batch, workspace=workspace)
        num_expanded = sample.edges[edge_type].row_ptr.size - 1
        list_visits[sample.nodes[NODE][:num_expanded]] += 1
        row_visits[sample.nodes[NODE]] += 1
    list_bytes, row_bytes = np.diff(csc.indptr) * 4, 512
    for budget in (100_000, 1_000_000, 10_000_000):
        lists, rows = split(list_visits, list_bytes, row_visits, row_bytes, budget)
        chosen = value_of(lists, rows, list_visits, row_visits)
        assert 0 < list_bytes[lists].sum() + rows.size * row_bytes <= budget
        for share in np.linspace(0, 1, 21):
            parts = dict(lists=int(share * budget), rows=budget - int(share * budget))
            some_lists, _ = split(list_visits, list_bytes, row_visits, row_bytes, parts["lists"], (3.0, 0.0))
            _, some_rows = split(list_visits, list_bytes, row_visits, row_bytes, parts["rows"], (0.0, 2.0))
            assert chosen >= 0.999 * value_of(some_lists, some_rows, list_visits, row_visits)
