"""Sampling by time against its definition, byte for byte: lists in the order of time, windows, one hop, whole samples; any thread, tier."""

from concurrent.futures import ThreadPoolExecutor
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
from penstock.sample.lists import DirectLists, PrefixLists, TierLists, with_lists
from penstock.sample.reference import sample_hops
from penstock.sample.times import Timestamps, choose_times, with_times
from penstock.sample.weights import Weights, with_weights
from penstock.store.tiers import HostTier
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph, poisoned, random_csc, typed_graph

SEEDS = st.integers(0, 2**32 - 1)
WIDE = np.iinfo(np.int64)


def random_times(random, count):
    """Few moments, many, those that 32 bits hold and others, negative ones; sometimes in order, as where edges come one by one."""
    low, high = [(0, 1), (-3, 3), (0, 1000), (-(1 << 31), 1 << 31), (WIDE.min, WIDE.max)][random.integers(0, 5)]
    values = random.integers(low, high, count)
    return np.sort(values) if random.random() < 0.3 else values


def random_moments(random, given, count):
    """When seeds look: at the moments of edges, for the most part, and before and after all of them."""
    ends = [WIDE.min, WIDE.max]
    return random.choice(np.concatenate([given, ends]), count).astype(np.int64)


def timed_graph(random, graph):
    """Timestamps for nodes or for edges, of all types but one of several."""
    if random.random() < 0.5:
        chosen = list(graph.num_nodes)[: max(1, len(graph.num_nodes) - 1)]
        return with_times(graph, Timestamps({t: random_times(random, graph.num_nodes[t]) for t in chosen}))
    edge_types = list(graph.adjacency)[: max(1, len(graph.adjacency) - 1)]
    return with_times(graph, Timestamps({}, {e: random_times(random, graph.adjacency[e].num_edges) for e in edge_types}))


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
    st.sampled_from([np.int32, np.int64]),
)
@settings(deadline=None, max_examples=60)
def test_one_hop(seed, fanout, replaces, takes_last, dtype):
    random = np.random.default_rng(seed)
    hub = int(random.choice([0, 100, 4095, 5000]))
    csc = random_csc(random, 300, 100, int(random.integers(0, 2000)), hub_degree=hub)
    values = random.integers(-50, 50, csc.num_edges).astype(dtype)
    ordered = values[reference.order_by_time(csc.indptr, values)]
    nodes = random.integers(0, 100, int(random.integers(0, 300)))
    until, copies, last = random.integers(-60, 60, nodes.size), random.integers(0, 1 << 20, nodes.size), fanout if takes_last else -1
    windows = reference.find_windows(csc.indptr, ordered, nodes, until, last=last)
    found = poisoned(2 * nodes.size + 7)
    count, longest = cpu.find_windows(csc.indptr, ordered, nodes, until, last, fanout, replaces, found)
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


def both(graph, num_neighbors, seed_type, seeds, moments, workspace=None, **options):
    sampler = NeighborSampler(graph, num_neighbors, **options)
    place = dict(epoch=1, batch=3, times={seed_type: moments})
    ours = sampler.sample({seed_type: seeds}, workspace=workspace or sampler.workspace(), **place)
    theirs = sample_hops(
        graph, sampler.fanouts, {seed_type: seeds}, replace=sampler.replace, disjoint=True, seed=sampler.seed,
        takes_last=sampler.takes_last, **place,
    )  # fmt: skip
    return ours, theirs


def assert_in_time(graph, sample, moments):
    """No edge is later than the seed of its tree: by the graph's times, which are those of positions in the order of time."""
    for edge_type, csc in graph.adjacency.items():
        edges = sample.edges[edge_type]
        if csc.times is None or not edges.positions.size:
            continue
        place = np.arange(csc.num_edges) if csc.by_time is None else np.argsort(csc.by_time)
        trees = sample.trees[edge_type[2]][edges.edge_index[1]]
        assert (csc.times[place[edges.positions]] <= moments[trees]).all()


@given(SEEDS, st.sampled_from(["author", "paper", "venue"]), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=30)
def test_whole_samples(seed, seed_type, replaces, takes_last):
    random = np.random.default_rng(seed)
    graph = timed_graph(random, typed_graph(random, hub_degree=int(random.choice([0, 400]))))
    fanouts = {edge_type: random.choice([-1, 0, 1, 4, 70], 2).tolist() for edge_type in graph.adjacency}
    fanouts[("paper", "cites", "paper")] = [2, 3]
    seeds = random.integers(0, graph.num_nodes[seed_type], 15)
    given = next(csc.times for csc in graph.adjacency.values() if csc.times is not None)
    moments = random_moments(random, given, 15)
    ours, theirs = both(graph, fanouts, seed_type, seeds, moments, seed=seed, replace=replaces, takes_last=takes_last)
    assert_same_sample(ours, theirs)
    assert_in_time(graph, ours, moments)


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


def test_threads_workspaces_and_lists_read_elsewhere_do_not_matter():
    random = np.random.default_rng(0)
    graph = with_times(homogeneous_graph(random, 500, 8000, hub_degree=4500), Timestamps({NODE: random.integers(0, 100, 500)}))
    csc = graph.adjacency[EDGE]
    tier, kept = HostTier([csc.indices]), np.arange(0, 500, 3)
    elsewhere = [TierLists(tier), DirectLists(csc, kept, tier), PrefixLists(csc, kept[::-1].copy(), tier)]
    seeds, moments = [random.integers(0, 500, 64) for _ in range(20)], [random.integers(-5, 105, 64) for _ in range(20)]

    def run(graph, num_threads):
        sampler = NeighborSampler(graph, [5, 70, 3], seed=9)
        workspaces = [sampler.workspace() for _ in range(num_threads)]

        def one(i):
            workspace = workspaces.pop()
            try:
                return sampler.sample({NODE: seeds[i]}, epoch=2, batch=i, workspace=workspace, times={NODE: moments[i]})
            finally:
                workspaces.append(workspace)

        with ThreadPoolExecutor(num_threads) as pool:
            return list(pool.map(one, range(20)))

    alone = run(graph, 1)
    for others in (run(graph, 3), *(run(with_lists(graph, {EDGE: lists}), 2) for lists in elsewhere)):
        for left, right in zip(alone, others, strict=True):
            assert_same_sample(left, right)


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
    with pytest.raises(NotSupportedError, match="a node has 61 neighbours, and draws reach 60"):
        sampler.sample({NODE: np.array([0])}, times={NODE: np.array([60])}, **place)


def test_who_has_times():
    nodes, edges = {"a": ["x", "time"], "b": ["x"]}, {("a", "r", "b"): ["time", "when"]}
    assert choose_times(nodes, {}, "time", "it") == (["a"], {})
    assert choose_times(nodes, edges, "when", "it") == ([], {("a", "r", "b"): "when"})
    assert choose_times(nodes, edges, "edge_time", "it", {"edge_time": "time"}) == ([], {("a", "r", "b"): "time"})
    assert choose_times(nodes, edges, "time", "it", {"edge_time": "time"}) == (["a"], {})
    with pytest.raises(UsageError, match="time_attr='time': both nodes and edges have it"):
        choose_times(nodes, edges, "time", "it")
    with pytest.raises(MissingFieldError, match="it: neither nodes nor edges have a field 'edge_time' to say when they came"):
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
    with pytest.raises(InputError, match="t goes up to 18446744073709551615, beyond int64: subtract where it begins"):
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
    graph, of_edges = Graph({NODE: 50}, {EDGE: csc}, True), Timestamps({}, {EDGE: random.integers(0, 9, 300)})
    timed, moments = with_times(graph, of_edges), np.full(40, 9)
    for value in (-5, 1 << 40):
        indptr = csc.indptr.copy()
        indptr[7] = value
        with pytest.raises(CorruptStoreError, match="lies outside its 300 edges"):
            with_times(Graph({NODE: 50}, {EDGE: replace(csc, indptr=indptr)}, True), of_edges)
        sampler = NeighborSampler(Graph({NODE: 50}, {EDGE: replace(timed.adjacency[EDGE], indptr=indptr)}, True), [3])
        with pytest.raises(CorruptStoreError, match="lies outside its 300 edges"):
            sampler.sample({NODE: np.arange(40)}, epoch=0, batch=0, workspace=sampler.workspace(), times={NODE: moments})
    foreign = csc.indices.copy()
    foreign[123] = 50
    with pytest.raises(CorruptStoreError, match="the edge at position 123 comes from node 50, but 'node' has 50 nodes"):
        with_times(Graph({NODE: 50}, {EDGE: replace(csc, indices=foreign)}, True), Timestamps({NODE: np.zeros(50, int)}))
    sampler = NeighborSampler(Graph({NODE: 50}, {EDGE: replace(timed.adjacency[EDGE], indices=np.full_like(foreign, 50))}, True), [3])
    with pytest.raises(CorruptStoreError, match="comes from node 50, but 'node' has 50 nodes"):
        sampler.sample({NODE: np.arange(40)}, epoch=0, batch=0, workspace=sampler.workspace(), times={NODE: moments})


def test_times_that_do_not_fit_the_container_are_refused(monkeypatch):
    graph = homogeneous_graph(np.random.default_rng(0))
    for number, takes in ((0, 8 * 4000), (1 << 31, 12 * 4000)):  # where lists are not in order
        given = Timestamps({NODE: np.full(500, number)}, name="t")
        monkeypatch.setattr("penstock.store.budget.free_in_container", lambda takes=takes: takes - 1)
        with pytest.raises(BudgetError, match=r"sampling by t .*leave time_attr out"):
            with_times(graph, given)
        monkeypatch.setattr("penstock.store.budget.free_in_container", lambda takes=takes: takes)
        with_times(graph, given)
