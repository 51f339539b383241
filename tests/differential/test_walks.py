"""Random walks against their definition, byte for byte: steps, counts, whole samples; any thread, workspace, tier, piece."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Walks
from penstock import rng as penstock_rng
from penstock.errors import CorruptStoreError, NotSupportedError
from penstock.kernels.random_walks import cpu, reference
from penstock.records import EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.lists import DirectLists, PrefixLists, TierLists, with_lists
from penstock.sample.reference import sample_hops
from penstock.store.tiers import HostTier
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph, poisoned, random_csc, typed_graph

SEEDS = st.integers(0, 2**32 - 1)
OVER_PAPERS = [("paper", "by", "author"), ("author", "writes", "paper")]


def random_walks(random, **options):
    return Walks(num=int(random.integers(1, 8)), length=int(random.integers(1, 5)), end=float(random.choice([0, 0.3, 0.9])), **options)


def both(graph, fanouts, seeds, walks, *, disjoint, seed, epoch=0, batch=0):
    sampler = NeighborSampler(graph, fanouts, walks=walks, disjoint=disjoint, seed=seed)
    ours = sampler.sample(seeds, epoch=epoch, batch=batch, workspace=sampler.workspace())
    place = {"seed": seed, "epoch": epoch, "batch": batch}
    return ours, sample_hops(graph, sampler.fanouts, seeds, replace=False, disjoint=disjoint, walks=walks, **place)


@given(SEEDS, st.sampled_from([0, 1 << 31, (1 << 32) - 1]), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=60)
def test_one_step(seed, end, has_copies, is_apart):
    random = np.random.default_rng(seed)
    csc = random_csc(random, 100, 100, int(random.integers(0, 400)), hub_degree=int(random.choice([0, 5000])))
    num, starts = int(random.integers(1, 5)), random.integers(0, 100, int(random.integers(0, 40)))
    copies = random.integers(0, 1 << 20, starts.size) if has_copies else None
    walkers = np.flatnonzero(random.random(starts.size * num) < 0.7)
    nodes = random.choice([0, *range(100)], walkers.size)  # the hub among them
    place = int(random.integers(0, 50)), end, penstock_rng.derive_key(seed, 3, penstock_rng.WALK), int(random.integers(0, 1 << 32)), 2
    going, positions = reference.take_step(csc.indptr, starts, copies, num, *place, nodes, walkers)
    out = nodes.copy(), walkers.copy(), poisoned(walkers.size)
    indices = None if is_apart else csc.indices
    count, bad = cpu.take_step(csc.indptr, indices, csc.num_edges, starts, copies, num, *place, *out[:2], walkers.size, out[2])
    assert (count, bad) == (going.size, -1)
    assert_same_bytes(out[1][:count], going)
    assert_same_bytes(out[2][:count], positions)
    assert_same_bytes(out[0][:count], nodes[np.isin(walkers, going)])
    visits = np.full(starts.size * num * 3, -1)
    found, at = (csc.indices[positions], None) if is_apart else (csc.indices, positions)
    assert cpu.arrive(found, at, 100, 3, 1, out[0], going, count, visits)
    assert_same_bytes(out[0][:count], csc.indices[positions].astype(np.int64))
    assert_same_bytes(visits.reshape(-1, 3)[going, 1], out[0][:count])
    assert (np.delete(visits, going * 3 + 1) == -1).all()


@given(SEEDS, st.sampled_from([-1, 0, 1, 3, 1000]), st.sampled_from([2, 10, 1 << 40]))
@settings(deadline=None, max_examples=60)
def test_counting(seed, fanout, num_nodes):
    random = np.random.default_rng(seed)
    shape = int(random.integers(0, 20)), int(random.integers(1, 9)), int(random.integers(1, 6))
    visits = np.where(random.random(shape) < 0.3, -1, random.integers(0, num_nodes, shape))
    row_ptr, counts, neighbors = reference.count_visits(visits, fanout)
    most = shape[1] * shape[2]
    scratch = poisoned(cpu.table_size(most), np.int32), poisoned(most), poisoned(most), np.zeros(most + 1, np.int64)
    out = poisoned(shape[0] + 1), poisoned(counts.size), poisoned(counts.size)
    out[0][0] = 11
    assert cpu.count_visits(np.ascontiguousarray(visits.reshape(-1)), *shape, fanout, *scratch, *out) == counts.size
    for ours, theirs in zip((out[0] - 11, *out[1:]), (row_ptr, counts, neighbors), strict=True):
        assert_same_bytes(ours, theirs)
    assert not scratch[-1].any()


@given(SEEDS, st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3), st.booleans())
@settings(deadline=None, max_examples=30)
def test_homogeneous(seed, fanouts, disjoint):
    random = np.random.default_rng(seed)
    graph = homogeneous_graph(random, 200, int(random.choice([100, 900])), hub_degree=int(random.choice([0, 5000])))
    seeds = random.integers(0, 200, int(random.integers(0, 30)))
    fanouts = [min(fanout, 3) if i and fanout < 0 else fanout for i, fanout in enumerate(fanouts)]
    place = {"seed": seed, "epoch": seed % 5, "batch": seed % 7}
    assert_same_sample(*both(graph, fanouts, {NODE: seeds}, random_walks(random), disjoint=disjoint, **place))


@given(SEEDS, st.booleans(), st.sampled_from([OVER_PAPERS, OVER_PAPERS[::-1], [("paper", "cites", "paper")]]))
@settings(deadline=None, max_examples=20)
def test_typed(seed, disjoint, path):
    random = np.random.default_rng(seed)
    graph, node_type = typed_graph(random, hub_degree=int(random.choice([0, 400]))), path[0][2]
    seeds = random.integers(0, graph.num_nodes[node_type], 15)
    ours, theirs = both(graph, [3, 2], {node_type: seeds}, random_walks(random, path=path), disjoint=disjoint, seed=seed)
    assert_same_sample(ours, theirs)
    assert list(ours.edges) == [(node_type, "walks", node_type)]


def test_threads_workspaces_pieces_and_lists_read_elsewhere_do_not_matter(monkeypatch):
    random = np.random.default_rng(0)
    graph = homogeneous_graph(random, 500, 3000, hub_degree=4500)
    csc = graph.adjacency[EDGE]
    tier, chosen = HostTier([csc.indices]), random.permutation(500)[:100]
    places = [TierLists(tier), DirectLists(csc, chosen, tier), PrefixLists(csc, chosen, tier)]
    seeds = [random.integers(0, 500, 64) for _ in range(20)]

    def run(graph, num_threads):
        sampler = NeighborSampler(graph, [5, 3], walks=Walks(num=4, length=3, end=0.3), seed=9)
        workspaces = [sampler.workspace() for _ in range(num_threads)]

        def one(i):
            workspace = workspaces.pop()
            try:
                return sampler.sample({NODE: seeds[i]}, epoch=2, batch=i, workspace=workspace)
            finally:
                workspaces.append(workspace)

        with ThreadPoolExecutor(num_threads) as pool:
            return list(pool.map(one, range(20)))

    alone = run(graph, 1)
    for most_walks in (1 << 18, 50):
        monkeypatch.setattr("penstock.sample.walks.MOST_STEPS", most_walks)
        for other in (run(graph, 3), *(run(with_lists(graph, {EDGE: lists}), 2) for lists in places)):
            for left, right in zip(alone, other, strict=True):
                assert_same_sample(left, right)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_damaged_graphs_are_refused(is_elsewhere, monkeypatch):
    csc = random_csc(np.random.default_rng(0), 40, 40, 300)

    def sample(damaged):
        lists = TierLists(HostTier([damaged.indices])) if is_elsewhere else None
        walks = Walks(num=50, length=2, end=0)
        sampler = NeighborSampler(Graph({NODE: 40}, {EDGE: replace(damaged, lists=lists)}, True), [5], walks=walks)
        sampler.sample({NODE: np.arange(40)}, epoch=0, batch=0, workspace=sampler.workspace())

    for value in (-5, 1 << 40):
        indptr = csc.indptr.copy()
        indptr[7] = value
        with pytest.raises(CorruptStoreError, match="lies outside its 300 edges"):
            sample(replace(csc, indptr=indptr))
    for value in (-1, 40):
        indices = csc.indices.copy()
        indices[123] = value
        with pytest.raises(CorruptStoreError, match=f"the edge at position 123 comes from node {value}, but 'node' has 40 nodes"):
            sample(replace(csc, indices=indices))
    monkeypatch.setattr(cpu, "take_step", lambda *_: (-1, 0))  # as of a list of more than 2**32 neighbours
    with pytest.raises(NotSupportedError, match=f"a node has {csc.degrees(np.zeros(1, int))[0]} neighbours, and walks reach 4,294,967,296"):
        sample(csc)
