"""Neighbour lists in tiers and caches: kernels against their definition, and samples that cannot tell the difference."""

import numpy as np
import pytest

from penstock.kernels.cached_lists import cpu, reference
from penstock.kernels.sample_neighbors import reference as draw
from penstock.sample import NeighborSampler
from penstock.sample.lists import DirectLists, PrefixLists, TierLists, choose_lists, with_lists
from penstock.store.tiers import HostTier, SlowTier
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph, random_csc, typed_graph


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("seed", range(5))
def test_kernels_equal_their_definition(seed, dtype):
    random = np.random.default_rng(seed)
    csc = random_csc(random, 80, 60, 500, hub_degree=50, dtype=dtype)
    nodes = random.integers(0, 60, 30)
    row_ptr, positions, expected = draw.sample_neighbors(
        csc.indptr, csc.indices, nodes, fanout=5, replace=False, key=np.array([1, 2], np.uint64), batch=0, hop=0, edge_type=0
    )
    ranking, num_kept = random.permutation(60), int(random.integers(0, 61))
    kept = [csc.indices[csc.indptr[v] : csc.indptr[v + 1]] for v in ranking[:num_kept]]
    cached = np.concatenate([np.empty(0, dtype), *kept])
    prefix_ptr = np.cumsum([0, *map(len, kept)])
    starts, ranks = np.full(60, -1, np.int32), np.empty(60, np.int32)
    starts[ranking[:num_kept]], ranks[ranking] = prefix_ptr[:-1], np.arange(60)
    for name, tables in (("read_direct", (starts, cached)), ("read_prefix", (ranks, prefix_ptr, cached))):
        plain, fast = np.full(positions.size, -7, dtype), np.full(positions.size, -7, dtype)
        missed = getattr(reference, name)(csc.indptr, nodes, row_ptr + 100, positions, *tables, plain)
        found = np.full(positions.size, -7, np.int64)
        count = getattr(cpu, name)(csc.indptr, nodes, row_ptr + 100, positions, *tables, fast, found)
        assert_same_bytes(missed, found[:count])
        assert_same_bytes(plain, fast)
        is_hit = ~np.isin(np.arange(positions.size), missed)
        assert (fast[is_hit] == expected[is_hit]).all()


def sample_of(graph, seed_type, num_seeds, **options):
    sampler = NeighborSampler(graph, [4, 3, -1], seed=3, **options)
    seeds = np.arange(num_seeds)
    return sampler.sample(seed_type, seeds, epoch=1, batch=2, workspace=sampler.workspace())


def element_tier(csc):
    return HostTier([csc.indices])


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"disjoint": True}, {"induced": True}], ids=str)
@pytest.mark.parametrize("max_bytes", [0, 1, 2000, 10**9])
def test_the_sampler_cannot_tell(max_bytes, options):
    random = np.random.default_rng(5)
    for graph, seed_type in ((homogeneous_graph(random, hub_degree=40), "node"), (typed_graph(random, hub_degree=300), "paper")):
        direct, prefix, plain = {}, {}, {}
        for edge_type, csc in graph.adjacency.items():
            hotness = random.random(csc.num_dst)
            plain[edge_type] = TierLists(SlowTier(element_tier(csc)))
            direct[edge_type] = DirectLists(csc, choose_lists(hotness, csc, max_bytes), SlowTier(element_tier(csc)))
            ranking = np.argsort(-hotness)
            prefix[edge_type] = PrefixLists(csc, ranking, min(csc.num_dst, max_bytes // 50), SlowTier(element_tier(csc)))
        expected = sample_of(graph, seed_type, 12, **options)
        for lists in (plain, direct, prefix):
            assert_same_sample(sample_of(with_lists(graph, lists), seed_type, 12, **options), expected)


def test_a_full_cache_asks_nothing_of_the_slow_tier():
    graph = homogeneous_graph(np.random.default_rng(0))
    ((edge_type, csc),) = graph.adjacency.items()
    slow = element_tier(csc)
    lists = DirectLists(csc, choose_lists(np.arange(csc.num_dst), csc, 10**9), slow)
    assert slow.stats.num_rows == csc.num_edges
    sample = sample_of(with_lists(graph, {edge_type: lists}), "node", 20)
    assert slow.stats.num_rows == csc.num_edges
    assert lists.stats.num_rows == sample.edges[edge_type].positions.size


def test_damage_is_noticed():
    from penstock.errors import CorruptStoreError

    graph = homogeneous_graph(np.random.default_rng(0))
    ((edge_type, csc),) = graph.adjacency.items()
    wrong = csc.indices.copy()
    wrong[:] = 10**6
    with pytest.raises(CorruptStoreError, match="comes from node 1000000"):
        sample_of(with_lists(graph, {edge_type: TierLists(HostTier([wrong]))}), "node", 5)
