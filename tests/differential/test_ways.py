"""Each way to sample against its definition, byte for byte: whole samples; any thread, workspace, table, tier, piece; damaged graphs."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptStoreError
from penstock.records import EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.lists import DirectLists, PrefixLists, TierLists, with_lists
from penstock.store.tiers import HostTier
from tests.differential.ways import WAYS, both, sample
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph, random_csc, typed_graph

SEEDS = st.integers(0, 2**32 - 1)
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def compare(way, random, graph, fanouts, seed_type, seeds, **place):
    """A sample of a random kind of the way, with its definition."""
    graph = way.over(random, graph)
    modes = {mode: bool(random.random() < 0.5) for mode in way.modes}
    moments = way.moments and way.moments(random, graph, seeds.size)
    ours, theirs = both(graph, fanouts, {seed_type: seeds}, moments=moments, **modes, **way.options(random, seed_type), **place)
    assert_same_sample(ours, theirs)
    way.check(graph, ours, fanouts, moments)
    return ours


@each_way
@given(SEEDS)
@settings(deadline=None, max_examples=30)
def test_homogeneous(way, seed):
    random = np.random.default_rng(seed)
    num_nodes = int(random.choice([4, 200, 200]))  # few: the same neighbours again and again
    sizes = dict(hub_degree=int(random.choice([0, 1, 5000])), dtype=random.choice([np.int32, np.int64]))
    graph = homogeneous_graph(random, num_nodes, int(random.integers(0, 900)), **sizes)
    seeds = random.integers(0, num_nodes, int(random.integers(0, 30)))
    fanouts = random.choice(way.fanouts, random.integers(1, 4)).tolist()
    fanouts = [min(fanout, 5) if i and fanout < 0 else fanout for i, fanout in enumerate(fanouts)]
    compare(way, random, graph, fanouts, NODE, seeds, seed=seed, epoch=seed % 5, batch=seed % 7)


@each_way
@given(SEEDS)
@settings(deadline=None, max_examples=20)
def test_typed(way, seed):
    random = np.random.default_rng(seed)
    graph, seed_type = typed_graph(random, hub_degree=int(random.choice([0, 400, 4500]))), random.choice(way.seed_types)
    fanouts = {edge_type: random.choice([-1, 0, 1, 4, 70], 2).tolist() for edge_type in graph.adjacency}
    fanouts[("paper", "cites", "paper")] = [2, 3]
    seeds = random.integers(0, graph.num_nodes[seed_type], 15)
    ours = compare(way, random, graph, [3, 2] if way.has_edges_of_its_own else fanouts, seed_type, seeds, seed=seed, epoch=1, batch=3)
    assert list(ours.edges) == ([(seed_type, "walks", seed_type)] if way.has_edges_of_its_own else list(graph.adjacency))


@each_way
def test_threads_workspaces_tables_pieces_and_lists_read_elsewhere_do_not_matter(way, monkeypatch):
    random = np.random.default_rng(0)
    graph = way.over(random, homogeneous_graph(random, 500, 8000, hub_degree=4500))
    csc = graph.adjacency[EDGE]
    tier, chosen = HostTier([csc.indices]), random.permutation(500)[:100]
    places = [TierLists(tier), DirectLists(csc, chosen, tier), PrefixLists(csc, chosen, tier)]
    assert with_lists(graph, {EDGE: places[0]}).adjacency[EDGE].sums is csc.sums, "not copied"
    seeds = [random.integers(0, 500, 64) for _ in range(20)]
    moments = [way.moments and way.moments(random, graph, 64) for _ in range(20)]

    def run(graph, num_threads):
        sampler = NeighborSampler(graph, way.many, seed=9, **way.fixed or {})
        workspaces = [sampler.workspace() for _ in range(num_threads)]

        def one(i):
            workspace = workspaces.pop()
            try:
                return sample(sampler, {NODE: seeds[i]}, workspace, epoch=2, batch=i, moments=moments[i])
            finally:
                workspaces.append(workspace)

        with ThreadPoolExecutor(num_threads) as pool:
            return list(pool.map(one, range(20)))

    alone = run(graph, 1)
    others = [run(graph, 3), *(run(with_lists(graph, {EDGE: lists}), 2) for lists in places)]
    monkeypatch.setattr("penstock.sample.host_run.PIECE", 100)
    monkeypatch.setattr("penstock.sample.walks.MOST_STEPS", 50)
    others += [run(with_lists(graph, {EDGE: lists}), 2) for lists in (None, *places)]
    monkeypatch.setattr("penstock.sample.compaction.DIRECT_LIMIT", 10)
    others.append(run(graph, 2))
    for other in others:
        for left, right in zip(alone, other, strict=True):
            assert_same_sample(left, right)


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.has_induced])
def test_induced_has_the_same_nodes(name):
    random, way = np.random.default_rng(0), WAYS[name]
    graph = way.over(random, homogeneous_graph(random))
    samplers = [NeighborSampler(graph, [30, 20], induced=induced, seed=3, **way.fixed or {}) for induced in (False, True)]
    drawn, induced = (sample(sampler, {NODE: np.arange(40)}) for sampler in samplers)
    assert_same_bytes(drawn.nodes[NODE], induced.nodes[NODE])
    assert induced.edges[EDGE].positions.size > drawn.edges[EDGE].positions.size


@each_way
@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize("fanout", [2, 100])
def test_damaged_graphs_are_refused(way, fanout, is_elsewhere):
    random = np.random.default_rng(0)
    graph = way.over(random, Graph({NODE: 50}, {EDGE: random_csc(random, 50, 50, 300)}, True))
    csc = graph.adjacency[EDGE]
    moments = way.moments and np.full(50, np.iinfo(np.int64).max)

    def taken(damaged):
        lists = TierLists(HostTier([damaged.indices])) if is_elsewhere else None
        sampler = NeighborSampler(Graph({NODE: 50}, {EDGE: replace(damaged, lists=lists)}, True), [fanout], **way.fixed or {})
        return sample(sampler, {NODE: np.arange(50)}, moments=moments)

    drawn = taken(csc).edges.get(EDGE)
    where = 123 if drawn is None or 123 in drawn.positions else int(drawn.positions[0])
    for value in (-5, 1 << 40):
        indptr = csc.indptr.copy()
        indptr[7] = value
        with pytest.raises(CorruptStoreError, match="lies outside its 300 edges"):
            taken(replace(csc, indptr=indptr))
    for value in (-1, 50, np.iinfo(csc.indices.dtype).max, np.iinfo(csc.indices.dtype).min):
        indices = csc.indices.copy()
        indices[where] = value
        with pytest.raises(CorruptStoreError, match=f"the edge at position {where} comes from node {value}, but 'node' has 50 nodes"):
            taken(replace(csc, indices=indices))
