"""What is made per node on the way to a cache, an order or a layout, counted by tracemalloc on a graph of many nodes and few edges."""

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import penstock
from penstock.cache import degree_hotness, plan_static
from penstock.cache.choose import list_values
from penstock.cache.packing import Layouts, record_accesses
from penstock.cache.workload import INCLUSION_BYTES, Workload
from penstock.order import RandomOrder, proximity_order
from penstock.plan import make_plan, plan_lists, plan_shared
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.lists import DirectLists
from penstock.sample.seeds import NodeSeeds
from penstock.sources.generate import generate as generate_source
from penstock.sources.splits import index_part
from penstock.store import generate
from penstock.store.ingestion.splits import refuse_overlap
from penstock.store.tiers import HostTier

NUM_NODES = 1_500_000
SEEDS = np.arange(0, NUM_NODES, 100)


@pytest.fixture(scope="module")
def graph():
    random = np.random.default_rng(0)
    degrees = random.integers(0, 3, NUM_NODES)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    return Graph({NODE: NUM_NODES}, {EDGE: CSC(indptr, random.integers(0, NUM_NODES, int(indptr[-1])).astype(np.int32))}, True)


@pytest.fixture(scope="module")
def workload(graph):
    return Workload(NeighborSampler(graph, [3, 2], seed=0), NodeSeeds(NODE, SEEDS), RandomOrder(SEEDS.size, 0), 64, 16, by_inclusion=False)


def peak_per_node(work):
    """Bytes a node at the peak of some work, done once before so that nothing is compiled in it."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / NUM_NODES
    finally:
        tracemalloc.stop()


def test_ranking_and_counting(graph, workload):
    """What 40 % of the nodes are chosen by: eight bytes of each chosen id, and a block of the ranking."""
    capacity = NUM_NODES * 2 // 5
    small = Workload(workload.sampler, NodeSeeds(NODE, SEEDS[:64]), RandomOrder(64, 0), 64)
    small.visits()  # compiles
    assert peak_per_node(lambda: degree_hotness(graph, NODE)) < 4 + 10  # a chunk of edges is 8 MB
    hotness = degree_hotness(graph, NODE)
    assert peak_per_node(lambda: plan_static(hotness, capacity)) < 0.4 * 8 + 12
    assert peak_per_node(lambda: workload.visits()) < 2 + 4 + 2  # a byte for each row and list, and the table of a sampler
    for policy in ("ratio", "presample"):
        assert peak_per_node(lambda policy=policy: list_values(policy, workload)) < 4 + 10
    freely = replace(workload, by_inclusion=True)
    freely.inclusion(NODE, 1)  # compiles
    assert peak_per_node(lambda: freely.inclusion(NODE, 2)) < INCLUSION_BYTES + 1


def test_choosing_and_loading_lists(graph, workload):
    values, (csc,) = list_values("ratio", workload), graph.adjacency.values()
    assert peak_per_node(lambda: plan_lists("50%", values, graph.adjacency, "direct")) < 4 + 16
    kept = plan_lists("50%", values, graph.adjacency, "direct")[EDGE]
    assert kept.dtype == np.int32
    DirectLists(csc, kept[:10], HostTier([csc.indices]))
    assert peak_per_node(lambda: DirectLists(csc, kept, HostTier([csc.indices]))) < 4 + 4 * 0.5 + 10
    visits, slopes = workload.visits(), dict(seconds_per_list_hit={EDGE: 1e-6}, seconds_per_row_hit={NODE: 1e-6})

    def share():
        return plan_shared("40MiB", visits.lists, visits.nodes, {NODE: 64}, graph.adjacency, "direct", **slopes)

    assert peak_per_node(share) < 8 + 20


@pytest.mark.parametrize("by_community", [False, True])
def test_orders_of_seeds(graph, by_community):
    def order():
        return proximity_order(graph, SEEDS, seed=0, batch_size=64, by_community=by_community)

    order()
    assert peak_per_node(order) < (31 if by_community else 27)  # out-neighbours are 20 of it where lists are long; here 12


def test_layouts(graph, workload):
    sampler = workload.sampler
    accesses = record_accesses(SampledBatches(sampler, NodeSeeds(NODE, SEEDS), RandomOrder(SEEDS.size, 0), 1000))
    layouts = Layouts(graph, NODE, accesses, sampler.fanouts, num_hot=1000)
    layouts.make("hot-coaccess")
    again = Layouts(graph, NODE, accesses, sampler.fanouts, num_hot=1000)
    assert peak_per_node(lambda: again.make("hot-coaccess")) < 36
    assert again.make("hot-coaccess").dtype == np.int32


@pytest.mark.parametrize(
    ("recipe", "options", "most"),
    [
        ("mmap", {}, 10),
        ("ali+pg", dict(cache="9MiB", neighbor_cache="9MiB"), 36),
        ("ginex", dict(cache="30MiB", neighbor_cache="9MiB", presample_batches=4, window=2), 70),
    ],
)
def test_a_loader(recipe, options, most, many_nodes):
    """All that a loader allocates; of a disk 10 MB per buffer and 35 MB while it is measured what a hole may cost, whatever the graph."""
    plan = make_plan(recipe, map_threads=2, **options)

    def make():
        loader = penstock.NeighborLoader(many_nodes, [3, 2], input_nodes="train", batch_size=64, shuffle=True, plan=plan)
        next(iter(loader))

    make()
    assert peak_per_node(make) < most


@pytest.fixture(scope="module")
def many_nodes(tmp_path_factory):
    path = tmp_path_factory.mktemp("nodes") / "store"
    return generate(
        "rmat", path, num_nodes=NUM_NODES, num_edges=2 * NUM_NODES, feature_dim=1, feature_dtype="float16", train=0.01, memory="4GiB"
    )


def test_splits_that_ascend():
    """They are in memory before a bound is declared: copies of them would come on top."""
    parts = {part: np.arange(first, NUM_NODES, 3) for first, part in enumerate(("train", "val", "test"))}

    def check():
        refuse_overlap({part: index_part(ids, NUM_NODES, part) for part, ids in parts.items()}, "split")

    assert peak_per_node(check) < 2  # copies and their unions were 16


def test_splits_that_are_drawn(monkeypatch):
    generate_source("zipf", num_nodes=100, train=0.5)  # compiles
    monkeypatch.setattr("penstock.sources.generate.options.SPLIT_TILE", 1 << 14)
    assert peak_per_node(lambda: generate_source("zipf", num_nodes=NUM_NODES, train=0.5, val=0.5)) < 8 + 2
