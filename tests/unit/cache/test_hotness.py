"""Hotness against brute force and against sampling."""

import dataclasses
import threading
import tracemalloc
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import cache
from penstock.cache import presample
from penstock.cache.choose import BY_VISITS, LIST_POLICIES, STATIC, hotness_by_name, list_values, ranking_bytes
from penstock.cache.hotness import check_hotness
from penstock.cache.presample import iterate_samples, presample_visits
from penstock.cache.workload import Workload
from penstock.errors import CorruptStoreError, InputError, NodeIdError, NotSupportedError, UsageError
from penstock.kernels.build_csc.reference import build_csc
from penstock.kernels.inclusion import cpu as inclusion_cpu
from penstock.kernels.inclusion import reference as inclusion_reference
from penstock.order import RandomOrder, SequentialOrder
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds
from tests.graphs import assert_same_bytes, homogeneous_graph, random_csc, star, typed_graph

SEEDS = st.integers(0, 2**32 - 1)


def edges_of(csc):
    return [(int(u), v) for v in range(csc.num_dst) for u in csc.indices[csc.indptr[v] : csc.indptr[v + 1]]]


@given(SEEDS)
def test_degree_and_ratio(seed):
    graph = typed_graph(np.random.default_rng(seed))
    for node_type, count in graph.num_nodes.items():
        out_degree, in_degree = [0] * count, [0] * count
        for edge_type, csc in graph.adjacency.items():
            for u, v in edges_of(csc):
                if edge_type[0] == node_type:
                    out_degree[u] += 1
                if edge_type[2] == node_type:
                    in_degree[v] += 1
        assert cache.degree_hotness(graph, node_type).tolist() == out_degree
        expected = [a / max(b, 1) for a, b in zip(out_degree, in_degree, strict=True)]
        assert_same_bytes(cache.in_out_ratio(graph, node_type), np.array(expected, np.float32))


def workload(graph, node_type, seeds):
    sampler = NeighborSampler(graph, [3, 2], seed=5)
    return Workload(sampler, NodeSeeds(node_type, seeds), RandomOrder(seeds.size, 5), 10)


@pytest.mark.parametrize("name", STATIC)
def test_every_hotness_is_a_number_per_node(name):
    """Finite, and the same for all who ask: processes do not tell each other what they keep. The graph stays as it is."""
    for make, seed_type, seeds in ((homogeneous_graph, NODE, np.arange(0, 500, 7)), (typed_graph, "paper", np.arange(90))):
        graph, as_it_was = make(np.random.default_rng(1)), make(np.random.default_rng(1))
        for node_type in graph.node_types:
            first = hotness_by_name(name, workload(graph, seed_type, seeds), node_type).copy()
            assert_same_bytes(first, hotness_by_name(name, workload(graph, seed_type, seeds), node_type))
        for edge_type, csc in as_it_was.adjacency.items():
            assert_same_bytes(graph.adjacency[edge_type].indices, csc.indices)
            assert_same_bytes(graph.adjacency[edge_type].indptr, csc.indptr)
    alone = Graph({"a": 3, "b": 0}, {}, False)
    assert {t: hotness_by_name(name, workload(alone, "a", np.arange(3)), t).size for t in alone.node_types} == alone.num_nodes


@pytest.mark.parametrize("name", LIST_POLICIES)
def test_every_value_of_lists_is_a_number_per_list(name):
    for make, seed_type, seeds in ((homogeneous_graph, NODE, np.arange(0, 500, 7)), (typed_graph, "paper", np.arange(90))):
        graph = make(np.random.default_rng(1))
        first, again = (list_values(name, workload(graph, seed_type, seeds)) for _ in range(2))
        assert first.keys() == graph.adjacency.keys()
        for edge_type, csc in graph.adjacency.items():
            check_hotness(first[edge_type], csc.num_dst)
            assert_same_bytes(first[edge_type], again[edge_type])


@pytest.mark.parametrize("name", STATIC)
def test_every_hotness_knows_damage(name):
    graph = homogeneous_graph(np.random.default_rng(0))
    graph.adjacency[EDGE].indices[::7] = 500
    with nullcontext() if name == "random" else pytest.raises(CorruptStoreError, match="comes from node 500"):
        hotness_by_name(name, workload(graph, NODE, np.arange(500)), NODE)


@pytest.mark.parametrize("name", [each for each in STATIC if each not in BY_VISITS])
def test_every_hotness_says_where_lists_are_elsewhere(name):
    """As those of a partition are, whose degrees are known. What samples, reads them there (`tests/feed/test_partitions.py`)."""
    whole, seeds = homogeneous_graph(np.random.default_rng(1)), np.arange(0, 500, 7)
    csc = dataclasses.replace(whole.adjacency[EDGE], indices=np.full(4000, -1, np.int32), told="elsewhere")
    part = Graph(whole.num_nodes, {EDGE: csc}, True, {NODE: cache.degree_hotness(whole, NODE)})
    with suppress(NotSupportedError):
        assert_same_bytes(*(hotness_by_name(name, workload(graph, NODE, seeds), NODE) for graph in (part, whole)))


@pytest.mark.parametrize("name", [each for each in STATIC if each != "random"])
def test_every_hotness_keeps_what_is_read(name):
    """Where a tenth of the nodes has nearly all edges, of which most lead to seeds."""
    random, num_nodes = np.random.default_rng(0), 1000
    number = random.permutation(num_nodes)
    src = np.where(random.random(8000) < 0.9, random.integers(0, num_nodes // 10, 8000), random.integers(0, num_nodes, 8000))
    dst = random.integers(0, num_nodes, src.size)
    indptr, indices, _ = build_csc(number[src], number[dst], num_nodes)
    graph = Graph({NODE: num_nodes}, {EDGE: CSC(indptr, indices.astype(np.int32))}, True)
    kept = cache.plan_static(hotness_by_name(name, workload(graph, NODE, np.arange(num_nodes)), NODE), num_nodes // 10)
    assert np.isin(kept, number[: num_nodes // 10]).mean() > 0.8


def test_memory_of_rankings():
    """One type is ranked after the other; inclusion probabilities are those of all types."""
    num_nodes = {"a": 10, "b": 30, "c": 50}
    found = {name: ranking_bytes(name, num_nodes, ["a", "b"]) for name in (*STATIC, "belady", "fifo", None)}
    assert found == {"random": 450, "degree": 180, "ratio": 180, "presample": 330, "inclusion": 3060, "belady": 330, "fifo": 0, None: 0}
    assert ranking_bytes("degree", num_nodes, []) == 0


def test_chunks_do_not_matter(monkeypatch):
    graph = homogeneous_graph(np.random.default_rng(0))
    whole = cache.degree_hotness(graph, NODE)
    monkeypatch.setattr("penstock.cache.hotness.CHUNK", 7)
    assert_same_bytes(cache.degree_hotness(graph, NODE), whole)
    assert whole.sum() == 4000


def test_damaged_edges_and_unknown_types():
    graph = homogeneous_graph(np.random.default_rng(0))
    graph.adjacency[EDGE].indices[5] = 500
    with pytest.raises(CorruptStoreError, match="500"):
        cache.degree_hotness(graph, NODE)
    with pytest.raises(CorruptStoreError, match="comes from node 500"):
        cache.inclusion_probability(NeighborSampler(graph, [-1]), NODE, np.arange(500), batch_size=100)
    with pytest.raises(UsageError, match="node types"):
        cache.degree_hotness(graph, "paper")


@given(SEEDS, st.integers(0, 30), st.sampled_from(["f8", "f4", "i8", "u1", "?"]))
def test_plan_static(seed, capacity, dtype):
    random = np.random.default_rng(seed)
    hotness = (random.integers(0, 6, 20) / 2 if dtype[0] == "f" else random.integers(0, 6, 20)).astype(dtype)
    expected = sorted(range(20), key=lambda node: (-float(hotness[node]), node))[:capacity]
    plan = cache.plan_static(hotness, capacity)
    assert plan.dtype == np.int64
    assert plan.tolist() == expected


def test_plan_static_at_the_ends_of_the_integers():
    hotness = np.array([np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max, -1])
    assert cache.plan_static(hotness, 4).tolist() == [2, 1, 3, 0]
    assert cache.plan_static(np.empty(0), 3).size == 0
    with pytest.raises(UsageError, match="capacity"):
        cache.plan_static(hotness, -1)


def test_hotness_of_the_user_is_checked():
    assert cache.check_hotness([1, 2], 2).tolist() == [1, 2]
    for bad in ([1.0], [[1.0, 2.0]], ["a", "b"]):
        with pytest.raises(InputError, match="one number per node"):
            cache.check_hotness(np.array(bad), 2)
    for bad in (np.nan, np.inf):
        with pytest.raises(InputError, match=r"hotness\[1\]"):
            cache.plan_static(np.array([0.0, bad]), 1)


def test_random_hotness():
    first = cache.random_hotness(10_001, 3)
    assert first.shape == (10_001,)
    assert_same_bytes(first, cache.random_hotness(10_001, 3))
    assert (first != cache.random_hotness(10_001, 4)).mean() > 0.99
    assert abs(first.mean() - 0.5) < 0.02
    assert 0 <= first.min() < first.max() < 1


def test_random_hotness_is_made_in_blocks(monkeypatch):
    tracemalloc.start()
    whole = cache.random_hotness(3_000_001, 3)
    assert tracemalloc.get_traced_memory()[1] < 2 * whole.nbytes
    tracemalloc.stop()
    monkeypatch.setattr("penstock.cache.hotness.BLOCK", 1 << 14)
    assert_same_bytes(cache.random_hotness(3_000_001, 3), whole)


@pytest.mark.parametrize("disjoint", [False, True])
def test_presample_counts_visits(disjoint):
    graph = typed_graph(np.random.default_rng(1))
    sampler = NeighborSampler(graph, [3, 2], seed=5, disjoint=disjoint)
    seeds = np.arange(100, 200)
    order = RandomOrder(seeds.size, 5)
    twice = presample_visits(SampledBatches(sampler, NodeSeeds("paper", seeds), order, 9), num_epochs=2).nodes["author"]
    assert twice.shape == (60,)
    assert 0 < twice.max() <= 24
    batches = list(cache.sample_batches(sampler, "paper", seeds, order, batch_size=9, epochs=range(2)))
    assert len(batches) == 24
    assert all(np.unique(ids).size == ids.size for nodes in batches for ids in nodes.values())
    oracle = cache.oracle_hotness((nodes["author"] for nodes in batches), 60)
    assert oracle.tolist() == [sum(node in nodes["author"] for nodes in batches) for node in range(60)]
    assert (oracle != twice).any(), "presampling must not draw what training draws"
    papers = presample_visits(SampledBatches(sampler, NodeSeeds("paper", seeds), order, 9)).nodes["paper"]
    assert (papers[100:200] >= 1).all()


def test_repeated_seeds_are_one_visit():
    sampler = NeighborSampler(star(3), [2], seed=0)
    (nodes,) = cache.sample_batches(sampler, NODE, np.zeros(4, np.int64), SequentialOrder(4), batch_size=4, epochs=[0])
    assert np.unique(nodes[NODE]).size == nodes[NODE].size
    with pytest.raises(UsageError, match="over 5 seeds"):
        list(cache.sample_batches(sampler, NODE, np.zeros(4, np.int64), SequentialOrder(5), batch_size=4, epochs=[0]))
    with pytest.raises(UsageError, match="epoch"):
        presample_visits(SampledBatches(sampler, NodeSeeds(NODE, np.zeros(4, np.int64)), SequentialOrder(4), 4), num_epochs=0)
    with pytest.raises(NodeIdError):
        cache.oracle_hotness([np.array([4])], 4)


@given(SEEDS, st.sampled_from([-1, 0, 1, 3]), st.booleans(), st.sampled_from([np.int32, np.int64]))
def test_inclusion_kernel_equals_its_reference(seed, fanout, replace, dtype):
    random = np.random.default_rng(seed)
    csc = random_csc(random, 30, 20, int(random.integers(0, 200)), dtype=dtype)
    included, missed = random.random(20) * random.integers(0, 2, 20), random.random(30)
    expected = inclusion_reference.spread_inclusion(csc.indptr, csc.indices, fanout, replace, included, missed)
    assert inclusion_cpu.spread_inclusion(csc.indptr, csc.indices, fanout, replace, included, missed) == -1
    assert_same_bytes(missed, expected)


def visits(sampler, seed_type, seeds, batch_size, num_epochs):
    """node type -> share of the batches that read each node."""
    order = RandomOrder(seeds.size, 11)
    counts = {node_type: np.zeros(count) for node_type, count in sampler.graph.num_nodes.items()}
    batches = list(cache.sample_batches(sampler, seed_type, seeds, order, batch_size=batch_size, epochs=range(num_epochs)))
    for nodes in batches:
        for node_type, ids in nodes.items():
            counts[node_type][ids] += 1
    return {node_type: count / len(batches) for node_type, count in counts.items()}, len(batches)


@pytest.mark.parametrize("replace", [False, True])
def test_inclusion_is_exact_on_trees(replace):
    """Two levels of a tree: every node can be reached one way only."""
    src = np.arange(1, 1 + 5 + 20)
    dst = np.concatenate([np.zeros(5, np.int64), np.repeat(np.arange(1, 6), 4)])
    indptr = np.searchsorted(dst, np.arange(27))
    graph = Graph({NODE: 26}, {EDGE: CSC(indptr, src.astype(np.int32))}, True)
    sampler = NeighborSampler(graph, [3, 2], seed=0, replace=replace)
    expected = cache.inclusion_probability(sampler, NODE, np.array([0]), batch_size=1)[NODE]
    first, second = (1 - 0.8**3, 1 - 0.75**2) if replace else (3 / 5, 2 / 4)
    assert np.allclose(expected, [1] + [first] * 5 + [first * second] * 20)
    shares, num_batches = visits(sampler, NODE, np.array([0]), 1, 4000)
    assert np.abs(shares[NODE] - expected).max() < 5 * 0.5 / np.sqrt(num_batches)


def test_inclusion_is_near_the_truth_on_graphs():
    graph = typed_graph(np.random.default_rng(0))
    sampler, seeds = NeighborSampler(graph, [3, 2], seed=0), np.arange(300)
    expected = cache.inclusion_probability(sampler, "paper", seeds, batch_size=10)
    shares, _ = visits(sampler, "paper", seeds, 10, 40)
    assert list(expected) == graph.node_types
    for node_type in ("paper", "author"):
        assert np.abs(shares[node_type] - expected[node_type]).mean() < 0.02
        assert np.corrcoef(shares[node_type], expected[node_type])[0, 1] > (0.95 if node_type == "paper" else 0.3)
    assert not expected["venue"].any()


def test_inclusion_of_certain_seeds_and_all_neighbours():
    graph = star(4)
    probability = cache.inclusion_probability(NeighborSampler(graph, [-1]), NODE, np.array([0]), batch_size=5)[NODE]
    assert probability.tolist() == [1.0] * 5
    with pytest.raises(UsageError, match="batch_size"):
        cache.inclusion_probability(NeighborSampler(graph, [-1]), NODE, np.array([0]), batch_size=0)
    with pytest.raises(NodeIdError):
        cache.inclusion_probability(NeighborSampler(graph, [-1]), NODE, np.array([9]), batch_size=1)


def test_presampling_a_part_of_an_epoch():
    graph = homogeneous_graph(np.random.default_rng(5))
    seeds = np.arange(graph.num_nodes[NODE])
    sampler, order = NeighborSampler(graph, [3], seed=1), SequentialOrder(seeds.size)
    batches = SampledBatches(sampler, NodeSeeds(NODE, seeds), order, 2)
    num_batches = order.num_batches(2, False)
    whole = presample_visits(batches).nodes[NODE]
    assert (presample_visits(batches, max_batches=10**6).nodes[NODE] == whole).all()
    part = presample_visits(batches, max_batches=3).nodes[NODE]
    assert (part <= whole).all()
    assert 0 < part.sum() < whole.sum()
    middles = [(2 * i + 1) * num_batches // 6 for i in range(3)]
    assert all(part[2 * batch] == 1 for batch in middles)  # seeds of a batch are read by it


def test_presampling_by_several_threads(monkeypatch):
    graph = homogeneous_graph(np.random.default_rng(5))
    seeds = np.arange(graph.num_nodes[NODE])
    sampler, order = NeighborSampler(graph, [3, 2], seed=1), RandomOrder(seeds.size, 1)
    batches = SampledBatches(sampler, NodeSeeds(NODE, seeds), order, 7)
    alone, made, make = presample_visits(batches, num_epochs=2), [], NeighborSampler.workspace
    monkeypatch.setattr(NeighborSampler, "workspace", lambda self: made.append(0) or make(self))
    for free, num_workspaces in ((1 << 40, 4), (0, 1)):  # with no memory to spare, one thread goes on
        made.clear()
        monkeypatch.setattr(presample, "free_bytes", lambda free=free: free)
        visits = presample_visits(batches, num_epochs=2, num_threads=4)
        assert len(made) == num_workspaces
        assert (visits.nodes[NODE] == alone.nodes[NODE]).all()
        assert (visits.lists[EDGE] == alone.lists[EDGE]).all()


def test_presampling_by_several_threads_ends_at_an_error():
    graph = homogeneous_graph(np.random.default_rng(5))
    graph.adjacency[EDGE].indices[-1] = 1 << 30  # of the last node's list, which a late batch takes
    seeds = np.arange(graph.num_nodes[NODE])
    batches = SampledBatches(NeighborSampler(graph, [-1]), NodeSeeds(NODE, seeds), SequentialOrder(seeds.size), 5)
    samples = iterate_samples(batches, epochs=[0], num_threads=3)
    with pytest.raises(CorruptStoreError):
        list(samples)
    assert not [each for each in threading.enumerate() if "presample" in each.name]
