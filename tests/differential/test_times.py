"""Sampling by time against its definition, byte for byte: lists in the order of time, windows, one hop. Samples are in `test_ways.py`."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import rng as penstock_rng
from penstock.errors import BudgetError, CorruptStoreError, InputError, MissingFieldError, NotSupportedError, UsageError
from penstock.kernels.sample_neighbors import cpu as draw_cpu
from penstock.kernels.sample_neighbors import reference as draw_reference
from penstock.kernels.time_windows import cpu, reference
from penstock.records import EDGE, NODE, Graph
from penstock.sample import NeighborSampler, times
from penstock.sample.times import Timestamps, choose_times, with_times
from penstock.sample.weights import Weights, with_weights
from tests.differential.ways import WIDE, random_times
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph, poisoned, random_csc

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
def test_lists_in_order(seed):
    random = np.random.default_rng(seed)
    csc = random_csc(random, 50, 40, int(random.integers(0, 500)), hub_degree=int(random.choice([0, 31, 32, 33, 300])), edge_ids=True)
    values = random_times(random, csc.num_edges)
    ordered = with_times(Graph({NODE: 50}, {EDGE: csc}, True), Timestamps({}, {EDGE: values}, by_position=True)).adjacency[EDGE]
    expected = reference.order_by_time(csc.indptr, values)
    assert_same_bytes(ordered.times.astype(np.int64), values[expected])
    is_in_order = np.array_equal(expected, np.arange(csc.num_edges))
    assert (ordered.by_time is None) == is_in_order
    assert cpu.look_for_disorder(csc.indptr, values) == (not is_in_order, np.diff(csc.indptr).max())
    if not is_in_order:
        assert_same_bytes(ordered.by_time.astype(np.int64), expected)
    fits = csc.num_edges == 0 or -(1 << 31) <= values.min() <= values.max() < 1 << 31
    assert ordered.times.dtype == (np.int32 if fits else np.int64)
    numbered = with_times(Graph({NODE: 50}, {EDGE: csc}, True), Timestamps({}, {EDGE: values[np.argsort(csc.edge_ids)]})).adjacency[EDGE]
    assert_same_bytes(numbered.times, ordered.times)


@given(
    SEEDS,
    st.sampled_from([-1, 0, 1, 2, 5, 15, 63, 64, 65, 200]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 30, 100, WIDE.max]),
    st.sampled_from([np.int32, np.int64]),
)
@settings(deadline=None, max_examples=60)
def test_one_hop(seed, fanout, replaces, takes_last, reach, dtype):
    random = np.random.default_rng(seed)
    hub = int(random.choice([0, 100, 4095, 5000]))
    csc = random_csc(random, 300, 100, int(random.integers(0, 2000)), hub_degree=hub)
    values = random.integers(-50, 50, csc.num_edges).astype(dtype)
    ordered = values[reference.order_by_time(csc.indptr, values)]
    nodes = random.integers(0, 100, int(random.integers(0, 300)))
    until, copies, last = random.integers(-60, 60, nodes.size), random.integers(0, 1 << 20, nodes.size), fanout if takes_last else -1
    until[:3] = [WIDE.min, WIDE.max, WIDE.min + 1][: nodes.size]
    windows = reference.find_windows(csc.indptr, ordered, nodes, until, reach=reach, last=last)
    found = poisoned(2 * nodes.size + 7)
    count, longest = cpu.find_windows(csc.indptr, ordered, nodes, until, reach, last, fanout, replaces, found)
    assert_same_bytes(found[: 2 * nodes.size], windows)
    assert longest == windows[nodes.size :].max(initial=0)
    key = penstock_rng.derive_key(seed, 3, penstock_rng.SAMPLE)
    row_ptr, positions, neighbors = draw_reference.sample_neighbors(
        csc.indptr,
        csc.indices,
        nodes,
        fanout=fanout,
        replace=replaces,
        key=key,
        batch=5,
        hop=2,
        edge_type=7,
        copies=copies,
        windows=windows,
    )
    assert count == positions.size
    scratch = poisoned(draw_cpu.SCRATCH_OFFSETS), poisoned(draw_cpu.SCRATCH_WORDS, np.uint32)
    bitmap, out = np.zeros((longest + 63) // 64, np.uint64), (poisoned(nodes.size + 1), poisoned(count), poisoned(count, np.int32))
    out[0][0] = 0
    place = key, 5, 2, 7, copies
    taken = draw_cpu.sample_neighbors(csc.indptr, csc.indices, 300, nodes, fanout, replaces, *place, *scratch, bitmap, *out, found)
    assert taken == count
    for ours, theirs in zip(out, (row_ptr, positions, neighbors), strict=True):
        assert_same_bytes(ours.astype(np.int64), theirs)
    assert not bitmap.any()
    assert draw_cpu.look_up(csc.indices, 300, positions, out[2]) == count
    assert_same_bytes(out[2].astype(np.int64), neighbors)


def test_all_in_time_is_the_plain_disjoint_sample():
    """In lists that lie in the order of time; else the same slots mean other edges."""
    random = np.random.default_rng(5)
    plain = homogeneous_graph(random, 500, 8000, hub_degree=900)
    graph = with_times(plain, Timestamps({}, {EDGE: np.arange(8900)}))
    assert graph.adjacency[EDGE].by_time is None
    seeds = random.integers(0, 500, 64)
    ours, untimed = NeighborSampler(graph, [5, 3], seed=1), NeighborSampler(plain, [5, 3], seed=1, disjoint=True)
    place = dict(epoch=0, batch=0)
    assert_same_sample(
        ours.sample({NODE: seeds}, workspace=ours.workspace(), times={NODE: np.full(64, 8900)}, **place),
        untimed.sample({NODE: seeds}, workspace=untimed.workspace(), **place),
    )


def test_pieces_do_not_matter(monkeypatch):
    random = np.random.default_rng(1)
    graph = homogeneous_graph(random, 50, 3000, hub_degree=400, edge_ids=True)
    of_nodes, of_edges = Timestamps({NODE: random.integers(0, 9, 50)}), Timestamps({}, {EDGE: random.integers(0, 9, 3400)})
    whole = [with_times(graph, each).adjacency[EDGE] for each in (of_nodes, of_edges)]
    monkeypatch.setattr(times, "PIECE", 100)
    for each, expected in zip((of_nodes, of_edges), whole, strict=True):
        csc = with_times(graph, each).adjacency[EDGE]
        assert_same_bytes(csc.times, expected.times)
        assert_same_bytes(csc.by_time, expected.by_time)


@pytest.mark.parametrize(("value", "dtype"), [(2**31 - 1, np.int32), (2**31, np.int64), (-(2**31), np.int32), (-(2**31) - 1, np.int64)])
def test_the_narrowest_that_holds_all(value, dtype):
    graph = with_times(homogeneous_graph(np.random.default_rng(0), 50, 300), Timestamps({NODE: np.array([value] + [0] * 49)}))
    csc = graph.adjacency[EDGE]
    assert csc.times.dtype == dtype
    assert value in csc.times
    sampler = NeighborSampler(graph, [-1])
    workspace = sampler.workspace()
    before = workspace.num_bytes
    for moment in (value, value - 1):
        sample = sampler.sample({NODE: np.arange(50)}, epoch=0, batch=0, workspace=workspace, times={NODE: np.full(50, moment)})
        expected = int(np.count_nonzero(csc.times <= moment))
        assert sample.edges[EDGE].positions.size == expected
    assert workspace.num_bytes >= before + 2 * 8 * 50, "windows"


def test_a_window_that_draws_do_not_reach_is_refused(monkeypatch):
    """A window, not a list."""
    graph = with_times(homogeneous_graph(np.random.default_rng(0), 50, 0, hub_degree=90), Timestamps({}, {EDGE: np.arange(90)}))
    sampler = NeighborSampler(graph, [3])
    monkeypatch.setattr(penstock_rng, "MAX_DEGREE", 60)
    place = dict(epoch=0, batch=0, workspace=sampler.workspace())
    assert sampler.sample({NODE: np.array([0])}, times={NODE: np.array([59])}, **place).edges[EDGE].positions.size == 3
    with pytest.raises(NotSupportedError, match="a node has 61 neighbours, and draws reach at most 60"):
        sampler.sample({NODE: np.array([0])}, times={NODE: np.array([60])}, **place)


def test_who_has_times():
    nodes, edges = {"a": ["x", "time"], "b": ["x"]}, {("a", "r", "b"): ["time", "when"]}
    assert choose_times(nodes, {}, "time", "it") == (["a"], {})
    assert choose_times(nodes, edges, "when", "it") == ([], {("a", "r", "b"): "when"})
    assert choose_times(nodes, edges, "edge_time", "it", {"edge_time": "time"}) == ([], {("a", "r", "b"): "time"})
    assert choose_times(nodes, edges, "time", "it", {"edge_time": "time"}) == (["a"], {})
    with pytest.raises(UsageError, match="time_attr='time': both nodes and edges have it"):
        choose_times(nodes, edges, "time", "it")
    with pytest.raises(MissingFieldError, match="it: neither nodes nor edges have a field 'edge_time' with times"):
        choose_times(nodes, edges, "edge_time", "it")


def test_what_is_refused():
    random = np.random.default_rng(0)
    csc = random_csc(random, 50, 40, 300, edge_ids=True)
    graph = Graph({NODE: 50}, {EDGE: csc}, True)
    for values in (np.zeros(299, int), np.zeros((300, 1), int), np.zeros(300, bool)):
        with pytest.raises(InputError, match=r"^t must be one whole number per edge, int \[300\]; got [a-z0-9]+ \[\d+(, 1)?\]$"):
            with_times(graph, Timestamps({}, {EDGE: values}, "t"))
    with pytest.raises(InputError, match=r"t must be one whole number per node, int \[50\]; got float64 \[50\]: count seconds, or smaller"):
        with_times(graph, Timestamps({NODE: np.zeros(50)}, name="t"))
    with pytest.raises(InputError, match="t goes up to 18446744073709551615, beyond int64: subtract the earliest time"):
        with_times(graph, Timestamps({NODE: np.full(50, 2**64 - 1, np.uint64)}, name="t"))
    timed = with_times(graph, Timestamps({}, {EDGE: random.integers(0, 9, 300)}))
    with pytest.raises(UsageError, match="no induced subgraphs, which would hold later edges"):
        NeighborSampler(timed, [3], induced=True)
    with pytest.raises(NotSupportedError, match="by time and by weight at once"):
        NeighborSampler(with_weights(timed, {EDGE: Weights(np.ones(300))}), [3])
    sampler = NeighborSampler(timed, [3])
    for moments in (None, {}, {NODE: np.zeros(39, int)}):
        with pytest.raises(UsageError, match=r"edges have times: sample\(\.\.\., times=\) takes one for each seed"):
            sampler.sample({NODE: np.arange(40)}, epoch=0, batch=0, workspace=sampler.workspace(), times=moments)


def test_damaged_graphs_are_refused():
    random = np.random.default_rng(0)
    csc = random_csc(random, 50, 40, 300)
    of_edges = Timestamps({}, {EDGE: random.integers(0, 9, 300)})
    for value in (-5, 1 << 40):
        indptr = csc.indptr.copy()
        indptr[7] = value
        with pytest.raises(CorruptStoreError, match="lies outside its 300 edges"):
            with_times(Graph({NODE: 50}, {EDGE: replace(csc, indptr=indptr)}, True), of_edges)
    foreign = csc.indices.copy()
    foreign[123] = 50
    with pytest.raises(CorruptStoreError, match="the edge at position 123 comes from node 50, but 'node' has 50 nodes"):
        with_times(Graph({NODE: 50}, {EDGE: replace(csc, indices=foreign)}, True), Timestamps({NODE: np.zeros(50, int)}))


def test_times_that_do_not_fit_the_container_are_refused(monkeypatch):
    graph = homogeneous_graph(np.random.default_rng(0))
    for number, takes in ((0, 8 * 4000), (1 << 31, 12 * 4000)):  # where lists are not in order
        given = Timestamps({NODE: np.full(500, number)}, name="t")
        monkeypatch.setattr("penstock.store.budget.free_in_container", lambda takes=takes: takes - 1)
        with pytest.raises(BudgetError, match=r"sampling by t .*leave time_attr out"):
            with_times(graph, given)
        monkeypatch.setattr("penstock.store.budget.free_in_container", lambda takes=takes: takes)
        with_times(graph, given)
