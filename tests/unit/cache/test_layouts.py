"""Orders that pack rows: what each promises, on graphs small enough to see it."""

import numpy as np
import pytest

from penstock.cache import sample_batches
from penstock.cache.packing import LAYOUTS, RANDOM, Accesses, Layouts, choose_companions, count_pages, record_accesses
from penstock.errors import CorruptStoreError, UsageError
from penstock.kernels.build_csc import reference as build
from penstock.order import RandomOrder
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds
from penstock.store.packing import rows_of

NUM_HUBS, OF_EACH = 40, 8


def stars(seed=0):
    """Hubs that each read leaves of their own; ids are shuffled. Returns (graph, hubs, int64[num_nodes]: hub of each leaf)."""
    random = np.random.default_rng(seed)
    num_nodes = NUM_HUBS * (1 + OF_EACH)
    ids = random.permutation(num_nodes)
    hubs, leaves = ids[:NUM_HUBS], ids[NUM_HUBS:]
    src, dst = leaves, np.repeat(hubs, OF_EACH)
    hub_of = np.full(num_nodes, -1)
    hub_of[src] = dst
    indptr, indices, _ = build.build_csc(src, dst, num_nodes)
    return Graph({NODE: num_nodes}, {EDGE: CSC(indptr, indices.astype(np.int32))}, True), np.sort(hubs), hub_of


def prepare(graph, seeds, fanouts=(8,), batch_size=4, **options):
    sampler = NeighborSampler(graph, list(fanouts), seed=3)
    accesses = record_accesses(SampledBatches(sampler, NodeSeeds(NODE, seeds), RandomOrder(seeds.size, 0), batch_size))
    return Layouts(graph, NODE, accesses, sampler.fanouts, **options), accesses


@pytest.mark.parametrize("name", [*LAYOUTS, RANDOM])
def test_every_node_comes_once(name):
    graph, hubs, _ = stars()
    for num_hot in (0, 17, 10_000):
        layouts, _ = prepare(graph, hubs, num_hot=num_hot)
        nodes = layouts.make(name)
        assert nodes.dtype == np.int32
        assert np.array_equal(np.sort(nodes), np.arange(graph.num_nodes[NODE]))
        assert np.array_equal(nodes, prepare(graph, hubs, num_hot=num_hot)[0].make(name))


@pytest.fixture(scope="module")
def skewed():
    """Communities of 100, in which few nodes have most of the edges and a tenth are seeds. Returns (layouts, batches of other draws)."""
    random, num_nodes = np.random.default_rng(0), 3000
    ids, dst = random.permutation(num_nodes), random.integers(0, num_nodes, 5 * num_nodes)
    src = dst // 100 * 100 + (100 * random.random(dst.size) ** 3).astype(np.int64)
    indptr, indices, _ = build.build_csc(ids[src], ids[dst], num_nodes)
    graph = Graph({NODE: num_nodes}, {EDGE: CSC(indptr, indices.astype(np.int32))}, True)
    seeds, sampler = np.sort(random.permutation(num_nodes)[:300]), NeighborSampler(graph, [5], seed=99)
    batches = [nodes[NODE] for nodes in sample_batches(sampler, NODE, seeds, RandomOrder(300, 0), batch_size=30, epochs=[0])]
    return prepare(graph, seeds, fanouts=(5,), batch_size=30, num_hot=100)[0], batches


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_reads_fewer_pages(skewed, name):
    layouts, batches = skewed
    pages = {kind: count_pages(batches, rows_of(layouts.make(kind), 3000), 256)[:, 0].mean() for kind in (name, RANDOM)}
    assert pages[name] < 0.95 * pages[RANDOM]


def test_every_layout_is_one_of_its_own(skewed):
    made = {name: skewed[0].make(name).tobytes() for name in (*LAYOUTS, RANDOM)}
    assert len({*made.values()}) == len(made)


@pytest.mark.parametrize("name", ["coaccess", "coaccess-ids"])
def test_what_one_list_reads_lies_together(name):
    graph, hubs, hub_of = stars()
    layouts, _ = prepare(graph, hubs)
    order = hub_of[layouts.make(name)]
    order = order[order >= 0]
    assert np.count_nonzero(np.diff(order)) == NUM_HUBS - 1
    rows = {kind: np.argsort(layouts.make(kind)) for kind in (name, RANDOM)}
    batches = [np.flatnonzero(hub_of == hub) for hub in hubs]
    pages = {kind: count_pages(batches, each, 512)[:, 0].mean() for kind, each in rows.items()}
    assert pages[name] <= 2.0  # eight rows of 512 bytes: one page, or two that they straddle
    assert pages[RANDOM] > 6.0


def test_hot_rows_go_first():
    graph, hubs, _ = stars()
    layouts, accesses = prepare(graph, hubs[: NUM_HUBS // 2], num_hot=50)
    visits = accesses.visits[NODE]
    for name in ("hot-coaccess", "hotness"):
        nodes = layouts.make(name)
        assert visits[nodes[:50]].min() >= visits[nodes[50:]].max()
    assert (np.diff(visits[layouts.make("hotness")].astype(int)) <= 0).all()
    plain, hot = layouts.make("coaccess"), layouts.make("hot-coaccess")
    assert np.array_equal(plain[~np.isin(plain, hot[:50])], hot[50:])


def test_bands_follow_each_other():
    graph, hubs, _ = stars()
    layouts, accesses = prepare(graph, np.concatenate([hubs, hubs[:9], hubs[:5]]), batch_size=2)
    visits = accesses.visits[NODE][layouts.make("bands-coaccess")]
    assert set(visits) > {1, 2}
    assert (np.diff(np.floor(np.log2(np.maximum(visits, 0.5)))) <= 0).all()


def test_accesses_are_those_of_the_sampler():
    graph, hubs, hub_of = stars()
    _, accesses = prepare(graph, hubs)
    assert (accesses.visits[NODE] == 1).all()  # each hub in one batch, with all its leaves
    assert np.array_equal(accesses.readings[NODE], (hub_of < 0).astype(int))


def test_companions_of_a_typed_graph():
    def csc(src, dst, num_dst):
        indptr, indices, _ = build.build_csc(np.array(src), np.array(dst), num_dst)
        return CSC(indptr, indices)

    types = {("a", "to", "b"): csc([0, 0, 1], [0, 1, 1], 2), ("a", "to", "c"): csc([0, 2], [0, 0], 1), ("b", "to", "a"): csc([0], [3], 4)}
    graph, readings = Graph({"a": 4, "b": 2, "c": 1}, types, False), {"a": np.zeros(4), "b": np.array([1, 2]), "c": np.array([2])}
    firsts = {"a": 0, "b": 4, "c": 6}
    fanouts = dict.fromkeys(types, (1, 1))
    # node 0: (1.1) of list b0, half of (2.1) of b1, half of (2.1) of c0; node 1: b1; node 2: c0; node 3 is in no list
    assert choose_companions(graph, "a", readings, fanouts, firsts).tolist() == [4, 5, 6, -1]
    fanouts[("a", "to", "c")] = (5, -1)  # all of c0 is drawn
    assert choose_companions(graph, "a", readings, fanouts, firsts).tolist() == [6, 5, 6, -1]
    fanouts[("a", "to", "c")] = (0, 0)
    assert choose_companions(graph, "a", readings, fanouts, firsts).tolist() == [4, 5, -1, -1]
    accesses = Accesses({"a": np.arange(4)}, readings)
    for name in LAYOUTS:
        assert sorted(Layouts(graph, "a", accesses, fanouts, num_hot=1).make(name).tolist()) == [0, 1, 2, 3]


def test_bad_input_is_refused():
    graph, hubs, _ = stars()
    layouts, accesses = prepare(graph, hubs)
    with pytest.raises(UsageError, match="a layout is one of coaccess, "):
        layouts.make("alphabetic")
    csc = graph.adjacency[EDGE]
    damaged = Graph(graph.num_nodes, {EDGE: CSC(csc.indptr, np.where(np.arange(csc.indices.size) == 3, 10**6, csc.indices))}, True)
    with pytest.raises(CorruptStoreError, match="position 3 comes from node 1000000"):
        Layouts(damaged, NODE, accesses, {EDGE: (8,)}).make("coaccess-ids")


def test_pages_of_no_rows():
    assert count_pages([np.array([1, 2])], np.arange(4), 0).tolist() == [[0, 0]]
    assert count_pages([np.empty(0, np.int64)], np.arange(4), 8).tolist() == [[0, 0]]
    assert count_pages([], np.arange(4), 8).shape == (0, 2)
