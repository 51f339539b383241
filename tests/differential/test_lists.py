"""Neighbour lists in tiers and caches: kernels against their definition, and samples that cannot tell the difference."""

import numpy as np
import pytest

from penstock.kernels.cached_lists import cpu, reference
from penstock.kernels.sample_neighbors import reference as draw
from penstock.plan import plan_lists
from penstock.records import CSC, EDGE
from penstock.sample import NeighborSampler
from penstock.sample.lists import DirectLists, PrefixLists, TierLists, with_lists
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
    return sampler.sample({seed_type: seeds}, epoch=1, batch=2, workspace=sampler.workspace())


def element_tier(csc):
    return HostTier([csc.indices])


@pytest.mark.parametrize(
    "options", [{}, {"replace": True}, {"disjoint": True}, {"induced": True}, {"disjoint": True, "induced": True}], ids=str
)
@pytest.mark.parametrize("capacity", ["0", "1 list", "30%", "1GiB"])
def test_the_sampler_cannot_tell(capacity, options):
    random = np.random.default_rng(5)
    for graph, seed_type in ((homogeneous_graph(random, hub_degree=40), "node"), (typed_graph(random, hub_degree=300), "paper")):
        values = {e: random.random(csc.num_dst) for e, csc in graph.adjacency.items()}
        plain = {e: TierLists(SlowTier(element_tier(csc))) for e, csc in graph.adjacency.items()}
        chosen = plan_lists(capacity, values, graph.adjacency, "prefix")
        direct = {e: DirectLists(csc, chosen[e], SlowTier(element_tier(csc))) for e, csc in graph.adjacency.items()}
        prefix = {e: PrefixLists(csc, chosen[e], SlowTier(element_tier(csc))) for e, csc in graph.adjacency.items()}
        expected = sample_of(graph, seed_type, 12, **options)
        for lists in (plain, direct, prefix):
            assert_same_sample(sample_of(with_lists(graph, lists), seed_type, 12, **options), expected)


def test_a_full_cache_asks_nothing_of_the_slow_tier():
    graph = homogeneous_graph(np.random.default_rng(0))
    ((edge_type, csc),) = graph.adjacency.items()
    slow = element_tier(csc)
    lists = DirectLists(csc, plan_lists("100%", {EDGE: np.arange(csc.num_dst)}, graph.adjacency, "direct")[EDGE], slow)
    assert slow.stats.num_rows == csc.num_edges
    sample = sample_of(with_lists(graph, {edge_type: lists}), "node", 20)
    assert slow.stats.num_rows == csc.num_edges
    assert lists.stats["cache"].num_edges == sample.edges[edge_type].positions.size


class Recorded(HostTier):
    """Remembers which rows it was asked for."""

    def __init__(self, arrays):
        super().__init__(arrays)
        self.asked = []

    def submit(self, rows, outs, places):
        self.asked.append(rows)
        return super().submit(rows, outs, places)


@pytest.mark.parametrize("layout", [DirectLists, PrefixLists])
def test_the_list_of_a_hub_is_taken_in_by_pieces(layout):
    """At once, one of 50M neighbours took 2.4 GB beside its 200 MB, and a budget of 1 GiB."""
    ends = np.cumsum([0, 3, 0, 1_000_000, 2])
    csc = CSC(ends, np.arange(ends[-1], dtype=np.int32))
    tier = Recorded([csc.indices])
    lists = layout(csc, np.array([2, 1, 3]), tier)
    assert max(rows.size for rows in tier.asked) <= 1 << 18
    assert (tier.stats.num_rows, lists.stats[tier.name].num_lists) == (1_000_002, 1 + 4)
    positions, found = np.arange(3, ends[-1]), np.empty(ends[-1] - 3, np.int32)
    lists.read(np.array([2, 3]), np.array([0, 1_000_000, 1_000_002]), positions, found)
    assert_same_bytes(found, csc.indices[3:])
    assert tier.stats.num_rows == 1_000_002


@pytest.mark.parametrize("layout", [DirectLists, PrefixLists])
def test_kept_lists_are_read_in_the_order_of_the_file(layout):
    """However they are ranked: in the order of their rank a disk would be read from end to end for every piece."""
    random = np.random.default_rng(8)
    csc = random_csc(random, 200_000, 150_000, 1_500_000)
    tier = Recorded([csc.indices])
    chosen = random.permutation(150_000)[:100_000]
    layout(csc, chosen, tier)
    positions = np.concatenate(tier.asked)
    assert len(tier.asked) > 2
    assert positions.size == np.diff(csc.indptr)[chosen].sum()
    assert (np.diff(positions) > 0).all()


@pytest.mark.parametrize("layout", [DirectLists, PrefixLists])
def test_hits_and_misses_are_counted_in_lists_and_edges(layout):
    random = np.random.default_rng(3)
    graph = homogeneous_graph(random, hub_degree=40)
    csc = graph.adjacency[EDGE]
    chosen = random.permutation(csc.num_dst)[:200]
    lists = layout(csc, chosen, element_tier(csc))
    hits, beneath = lists.stats["cache"], lists.stats["host"]
    filled = beneath.num_lists, beneath.num_edges
    assert filled[1] == np.diff(csc.indptr)[chosen].sum()
    sample = sample_of(with_lists(graph, {EDGE: lists}), "node", 30)
    num_read = np.diff(sample.edges[EDGE].row_ptr)
    is_hit = np.isin(sample.nodes["node"][: num_read.size], chosen)
    assert (hits.num_lists, hits.num_edges) == (np.count_nonzero(num_read[is_hit]), num_read[is_hit].sum())
    missed = beneath.num_lists - filled[0], beneath.num_edges - filled[1]
    assert missed == (np.count_nonzero(num_read[~is_hit]), num_read[~is_hit].sum())
    assert (hits.num_bytes, beneath.num_bytes) == (4 * hits.num_edges, 4 * beneath.num_edges)


def test_damage_is_noticed():
    from penstock.errors import CorruptStoreError

    graph = homogeneous_graph(np.random.default_rng(0))
    ((edge_type, csc),) = graph.adjacency.items()
    wrong = csc.indices.copy()
    wrong[:] = 10**6
    with pytest.raises(CorruptStoreError, match="comes from node 1000000"):
        sample_of(with_lists(graph, {edge_type: TierLists(HostTier([wrong]))}), "node", 5)
