"""Proof that walks go where they should as often as they should: whole walks by chi-square, visits by powers of the transition matrix.

`tests/unit/test_p_values.py` runs CASES.
"""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from penstock import Walks, rng
from penstock.records import CSC, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.walks import take_walks
from tests.unit.p_values import graph_of, p_of_slots, p_of_table

LISTS = [[1, 2], [0, 2, 2], [0, 1, 3], [], [0, 1, 2, 3]]
"""In-neighbours of five nodes: one twice, one of whom there is no way on, a loop."""


def go(graph, starts, walks, *, seed=0, epoch=0, batch=0, hop=0, copies=None):
    """Nodes that walks visit, -1 where they are over: int64[n, num, length]."""
    num_walks = starts.size * walks.num
    memory = [np.empty(num_walks, np.int64) for _ in range(3)]
    visits = np.empty(num_walks * walks.length, np.int64)
    take_walks(graph, walks.along(graph), starts, copies, (rng.derive_key(seed, epoch, rng.WALK), batch, hop), *memory, visits)
    return visits.reshape(starts.size, walks.num, walks.length)


def transitions(lists):
    """float64[n, n]: from row to column, in one step."""
    matrix = np.zeros((len(lists), len(lists)))
    for node, neighbors in enumerate(lists):
        for neighbor in neighbors:
            matrix[node, neighbor] += 1 / len(neighbors)
    return matrix


def p_of_walks(end, seed, ends=None):
    """Every walk of four steps comes as often as the product of its steps says; they are over by `end`, or in truth by `ends`."""
    matrix, start, length = transitions(LISTS), 4, 4
    chances = {}
    for walk in product([-1, *range(5)], repeat=length):
        chance, at = 1.0, start
        for step, node in enumerate(walk):
            is_over = at < 0 or not LISTS[at]
            goes_on = 0.0 if is_over else 1 - end * (step > 0)
            chance *= 1 - goes_on if node < 0 else goes_on * matrix[at, node]
            at = node
        if chance:
            chances[walk] = chance
    assert np.isclose(sum(chances.values()), 1)
    walks, count = Walks(num=1000, length=length, end=end if ends is None else ends), 200
    visits = go(graph_of(LISTS), np.full(count, start), walks, seed=seed, copies=np.arange(count)).reshape(-1, length)
    numbers = {walk: number for number, walk in enumerate(chances)}
    found = np.bincount([numbers[tuple(walk)] for walk in visits.tolist()], minlength=len(chances))
    return stats.chisquare(found, np.array(list(chances.values())) * len(visits)).pvalue


def p_of_hub(degree, seed):
    """The neighbours of a long list are visited equally often, over 64 bands."""
    visits = go(graph_of({0: np.arange(1, degree + 1)}, degree + 1), np.zeros(1, np.int64), Walks(num=100_000, length=1), seed=seed)
    return p_of_slots(visits - 1, degree)


def p_between(seed, what):
    """First steps that differ in one part of the counter or key are independent; and so are two steps of a walk."""
    graph, walks = graph_of([list(range(8))] * 8), Walks(num=6400, length=2, end=0)
    other = {"hops": {"hop": 1}, "epochs": {"epoch": 1}, "batches": {"batch": 1}, "copies": {"copies": np.ones(1, np.int64)}}
    start = np.zeros(1, np.int64)
    one = go(graph, start, walks, seed=seed)[0]
    two = one
    if what in other or what in ("starts", "seeds"):
        place = {"seed": seed + (1 << 20 if what == "seeds" else 0)} | other.get(what, {})
        two = go(graph, start + (what == "starts"), walks, **place)[0]
    first, second = one[:, 0], two[:, 1 if what == "steps" else 0]
    return p_of_table(first[:-1], second[1:], 8) if what == "walks" else p_of_table(first, second, 8)


CASES = (
    [(f"walks that end by {end}", lambda s, end=end: p_of_walks(end, s)) for end in (0, 0.25, 0.5)]
    + [(f"a list of {degree:,}", lambda s, degree=degree: p_of_hub(degree, s)) for degree in (1000, 10_007)]
    + [
        (f"independent {what}", lambda s, what=what: p_between(s, what))
        for what in ("walks", "steps", "starts", "copies", "hops", "epochs", "batches", "seeds")
    ]
)


def wrong():
    """Walks that are over too often, and never."""
    return [p_of_walks(0.25, 0, ends=ends) for ends in (0.3, 0)]


def weights_of(graph, seeds, fanout, walks, **options):
    """Per seed: node -> how often its walks visited it, the most visited first, through the public sampler."""
    sampler = NeighborSampler(graph, [fanout], walks=walks, **options)
    sample = sampler.sample({NODE: np.asarray(seeds)}, epoch=0, batch=0, workspace=sampler.workspace())
    (edges,) = sample.edges.values()
    ids, counts = sample.nodes[NODE][edges.edge_index[0]].tolist(), edges.positions.tolist()
    return [dict(zip(ids[i:j], counts[i:j], strict=True)) for i, j in zip(edges.row_ptr, edges.row_ptr[1:], strict=False)]


@pytest.mark.parametrize("end", [0, 0.5])
def test_visits_are_those_of_powers_of_the_transition_matrix(end):
    """Through the public sampler, one walk from each of many copies of a seed; within five standard errors."""
    matrix, count = transitions(LISTS), 20_000
    expected = sum((1 - end) ** (step - 1) * np.linalg.matrix_power(matrix, step)[4] for step in range(1, 6))
    found = np.zeros((count, 5))
    for row, visits in zip(found, weights_of(graph_of(LISTS), [4] * count, -1, Walks(num=1, length=5, end=end), seed=1), strict=True):
        row[list(visits)] = list(visits.values())
    assert (np.abs(found.mean(axis=0) - expected) <= 5 * found.std(axis=0) / np.sqrt(count)).all()
    assert found.mean(axis=0).sum() == pytest.approx(expected.sum(), rel=0.02)


def test_exact_cases():
    ring = graph_of([[4], [0], [1], [2], [3]])
    assert weights_of(ring, [0], -1, Walks(num=7, length=3, end=0)) == [{4: 7, 3: 7, 2: 7}]
    assert list(weights_of(ring, [0], -1, Walks(num=7, length=3, end=0))[0]) == [4, 3, 2]  # nearer ones first
    assert weights_of(ring, [0, 0, 3], 2, Walks(num=7, length=3, end=0)) == [{4: 7, 3: 7}, {4: 7, 3: 7}, {2: 7, 1: 7}]
    assert weights_of(ring, [0], -1, Walks(num=2, length=10, end=0)) == [dict.fromkeys([4, 3, 2, 1, 0], 4)]  # the start, come by again
    assert weights_of(graph_of([[0]]), [0], 5, Walks(num=2, length=3, end=0)) == [{0: 6}]
    to_nowhere = graph_of([[1], [2], []])
    assert weights_of(to_nowhere, [0, 1, 2], 5, Walks(num=3, length=9, end=0)) == [{1: 3, 2: 3}, {2: 3}, {}]
    first = weights_of(ring, [0], -1, Walks(num=1000, length=9, end=1 - 2**-32))[0]
    assert first == {4: 1000}  # the first step is always made
    hub = graph_of([[1, 1, 1, 1, 1, 1, 1, 1, 2], [], []])
    assert list(weights_of(hub, [0], 1, Walks(num=100, length=1))[0]) == [1]


def test_walks_along_a_path():
    """From items over users to items: users are on the way and do not count; items that no user rates have nobody."""
    rates, rated = ("user", "rates", "item"), ("item", "rated_by", "user")
    adjacency = {
        rates: CSC(np.array([0, 1, 2, 2, 3]), np.array([0, 0, 1], np.int32)),
        rated: CSC(np.array([0, 2, 3]), np.array([0, 1, 3], np.int64)),
    }
    graph = Graph({"user": 2, "item": 4}, adjacency, False)
    sampler = NeighborSampler(graph, [3], walks=Walks(num=1000, length=1, path=[rates, rated]))
    sample = sampler.sample({"item": np.arange(4)}, epoch=0, batch=0, workspace=sampler.workspace())
    (edges,) = sample.edges.values()
    visits = np.zeros((4, 4), np.int64)
    visits[edges.edge_index[1], sample.nodes["item"][edges.edge_index[0]]] = edges.positions
    assert (visits.sum(axis=1) == [1000, 1000, 0, 1000]).all()
    assert ((visits > 0) == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]).all()
    assert (np.abs(visits[:2, :2] - 500) < 80).all()
    assert sample.nodes["user"].size == 0
