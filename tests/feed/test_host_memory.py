"""A budget of host memory in a loader: the same batches bit for bit, whatever it comes to; too small ones are refused with the sum."""

import numpy as np
import pytest
import torch

import penstock
from penstock.cache.expected import expected_visits
from penstock.cache.hotness import degree_hotness
from penstock.errors import BudgetError, UsageError
from penstock.feed.fit.memory import _of_whole_batch
from penstock.feed.fit.profile import take_profile
from penstock.feed.fit.search import MARGIN, CacheSearch
from penstock.feed.fit.spool import GROUPS
from penstock.feed.held import hold, release
from penstock.feed.subgraph import number_edges, subgraph_of
from penstock.plan import RECIPES, Plan, make_plan
from penstock.plan.visited import VisitedLists
from penstock.records import CSC, EDGE
from penstock.sample import NeighborSampler
from penstock.store import ingest
from penstock.store.process_memory import resident_bytes, stop_keeping_freed_memory
from tests.feed.inputs import homogeneous_data, typed_data
from tests.feed.test_disk_plans import loader_of
from tests.feed.test_plans import digests


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("budget")
    return {kind: ingest(data, folder / kind, memory="4GiB") for kind, data in (("plain", homogeneous_data()), ("typed", typed_data()))}


@pytest.mark.parametrize("plan", [Plan(host_memory="8GiB"), make_plan(None, host_memory="8GiB", spool="64MiB")], ids=str)
def test_a_training_of_one_batch(plan, stores):
    loader = loader_of(stores["plain"], plan=plan, batch_size=10_000)
    assert len(loader) == 1
    assert digests(loader) == digests(loader_of(stores["plain"], batch_size=10_000))


@pytest.mark.parametrize("kind", ["plain", "typed"])
@pytest.mark.parametrize(
    "plan",
    [
        Plan(host_memory="8GiB"),
        make_plan(None, host_memory="8GiB", spool="64MiB"),
        make_plan("gnnlab", host_memory="8GiB", features="disk", spool="512KiB"),
        make_plan("bgl", host_memory="8GiB"),
        make_plan("gnnlab", host_memory="8GiB", features="disk"),
        make_plan("mmap", host_memory="8GiB"),
        make_plan("ali+pg", host_memory="8GiB", topology="disk"),
    ],
    ids=lambda plan: plan.recipe,
)
def test_same_batches_within_a_budget(kind, plan, stores):
    loader = loader_of(stores[kind], plan=plan, num_workers=2)
    order = loader_of(stores[kind], plan=make_plan(None, order=plan.order))
    assert digests(loader) == digests(order)
    stats = loader.stats()
    assert stats.memory.startswith("8.0 GiB = ")
    assert "left for caches" in stats.memory
    if plan.spool is not None:
        assert any(name.endswith("spool") for name in stats.tiers)
        assert loader.engine.caches.window in {2 * group for group in GROUPS}
    if plan.recipe == "custom":  # nothing said: that of ginex, or rows spooled
        assert any("cache" in name for name in stats.tiers)
        assert stats.disks


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("hold", ["samples", "ids"])
@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_what_is_held_ahead_changes_nothing(kind, hold, num_workers, stores):
    plan = make_plan("ginex", hold=hold, window=3)
    loader = loader_of(stores[kind], plan=plan, num_workers=num_workers)
    expected = loader_of(stores[kind])
    assert digests(loader) == digests(expected)
    assert digests(loader) == digests(expected)  # the second epoch


def test_a_step_is_tried_and_counted(stores):
    stop_keeping_freed_memory()  # a training in an earlier test may have begun to, and then steps are tried once more
    sizes = []

    def step(batch):
        sizes.append(batch.batch_size)
        torch.ones(30_000_000 + 1_000_000 * (batch.batch_size - 1))  # 120 MB whatever the batch, and 4 for each further seed

    loader = loader_of(stores["plain"], plan=Plan(host_memory="16GiB"), step=step)
    assert sizes == [1, 1, 2, 4, 8, 16]
    words = loader.stats().memory
    assert "step" in words
    amount, unit = words.split(" step")[0].split("+")[-1].split()
    assert float(amount) * {"MiB": 1, "GiB": 1024}[unit] == pytest.approx(MARGIN * 180e6 / 2**20, rel=0.1)  # pages of libraries come in too


def test_a_step_on_a_whole_batch_lies_on_the_line():
    for fixed, per_node in ((0, 7), (1000, 7), (1000, 0)):
        few, many, whole = (fixed + per_node * count for count in (10, 100, 800))
        assert _of_whole_batch(few, many, 10, 100, 800) == whole
        assert _of_whole_batch(few, many, 10, 100, 90) == many  # a profile of smaller batches
    assert _of_whole_batch(100, 150, 10, 15, 80) == 150 * 80 // 15  # too near each other: all of it grows
    assert _of_whole_batch(150, 100, 10, 100, 800) == 150 + 100 * 8


def test_what_is_kept_fits_and_nothing_is_left_where_all_does(stores, monkeypatch):
    searches = []

    class Noted(CacheSearch):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            searches.append(self)

    monkeypatch.setattr("penstock.feed.fit.memory.CacheSearch", Noted)
    loader_of(stores["plain"], plan=Plan(host_memory="16GiB"))
    (search,), csc = searches, stores["plain"].graph().adjacency[EDGE]
    (width,) = search._row_bytes.values()
    for cache_bytes in (0, 1000, 4000, 9000, 30_000, 10**9):
        search.use_lists(True)
        search.misses(search.ways(1)[0], cache_bytes)
        lists, rows = search.divide(cache_bytes)
        assert csc.degrees(lists[EDGE]).sum() * csc.indices.itemsize + sum(rows.values()) * width <= cache_bytes
    assert np.array_equal(np.sort(lists[EDGE]), np.flatnonzero(np.diff(csc.indptr)))


def test_what_is_free_is_given_back_between_batches_where_a_step_might_not_fit(stores, monkeypatch):
    held, given_back = [0], []
    monkeypatch.setattr("penstock.feed.fit.memory.anonymous_bytes", lambda: held[0])
    loader = loader_of(stores["plain"], plan=Plan(host_memory="8GiB"))
    most = loader.engine.bound.held_bytes
    assert 6 << 30 < most < 8 << 30
    monkeypatch.setattr("penstock.feed.fit.memory.give_back_freed_memory", lambda: given_back.append(len(given_back)))
    for held[0], count in ((most, 0), (most + 1, len(loader) + 1)):  # and when the end is asked for
        given_back.clear()
        assert len(list(loader)) == len(loader)
        assert len(given_back) == count


def test_too_small_a_budget_is_refused_with_the_sum(stores):
    with pytest.raises(BudgetError) as refused:
        loader_of(stores["plain"], plan=Plan(host_memory="64MiB"))
    message = str(refused.value)
    assert message.startswith("host_memory of 64.0 MiB does not hold one batch: ")
    assert "process" in message
    assert "at least" in message
    least = float(message.split(" at least")[0].split("= ")[-1].split()[0])
    unit = message.split(" at least")[0].split()[-1]
    least *= {"MiB": 1 << 20, "GiB": 1 << 30}[unit]
    assert resident_bytes() * 0.5 < least < resident_bytes() * 1.5 + (300 << 20)


def test_what_a_budget_is_not_for():
    with pytest.raises(UsageError, match="number of bytes"):
        Plan(host_memory="much")
    with pytest.raises(UsageError, match="hold must be one of samples, ids"):
        Plan(hold="all")
    assert make_plan(None, host_memory="2GiB").policy == RECIPES["ginex"].policy
    assert make_plan("mmap", host_memory="2GiB").policy is None


def test_an_induced_subgraph_is_not_profiled(stores):
    with pytest.raises(UsageError, match="directional"):
        loader_of(stores["plain"], plan=Plan(host_memory="8GiB"), subgraph_type="induced")


def test_reverses_of_bidirectional_batches_are_counted(stores):
    options = dict(plan=Plan(order="sequential"), batch_size=50)
    makers = (loader_of(stores["plain"], subgraph_type=kind, **options).engine.maker for kind in ("directional", "bidirectional"))
    drawn, both = (take_profile(maker, (), 4) for maker in makers)
    assert both.sample_bytes > 1.5 * drawn.sample_bytes
    assert both.held_bytes > 1.2 * drawn.held_bytes
    assert both.workspace_bytes > drawn.workspace_bytes


@pytest.mark.parametrize("kind", ["plain", "typed"])
@pytest.mark.parametrize("plan", ["ginex", "gnnlab", "bgl", "mmap"])
def test_a_loader_beside_another(kind, plan, stores):
    loader = loader_of(stores[kind], plan=make_plan(plan), num_workers=2)
    nodes = np.arange(40)[::-1].copy()
    wanted = nodes if kind == "plain" else ("paper", nodes)
    batches = iter(loader)
    first = penstock.digest(next(batches))
    expected = digests(loader_of(stores[kind], input_nodes=wanted, shuffle=False))
    assert digests(loader.beside(wanted)) == expected
    rest = [first, *(penstock.digest(batch) for batch in batches)]  # the pass it was beside goes on undisturbed
    assert rest == digests(loader_of(stores[kind], plan=Plan(order=make_plan(plan).order)))[: len(loader)]
    with pytest.raises(UsageError, match="empty"):
        loader.beside(nodes[:0] if kind == "plain" else ("paper", nodes[:0]))


@pytest.mark.parametrize("induced", [False, True])
def test_held_samples_come_back_bit_for_bit(stores, induced):
    rng = np.random.default_rng(0)
    for store in stores.values():
        graph = store.graph()
        seed_type = "node" if store.is_homogeneous else "paper"
        sampler = NeighborSampler(graph, [3, 2], seed=1, induced=induced)
        for index in range(5):
            seeds = rng.integers(0, graph.num_nodes[seed_type], 9)
            sample = sampler.sample({seed_type: seeds}, epoch=0, batch=index, workspace=sampler.workspace())
            subgraph = subgraph_of(sample)
            number_edges(subgraph, graph, np.empty)
            held = hold(subgraph, graph, np.empty)
            assert isinstance(held, np.ndarray)
            again = release(held, graph, np.empty)
            for t, ids in subgraph.nodes.items():
                assert again.nodes[t].dtype == ids.dtype
                assert torch.equal(again.nodes[t], ids)
            for e, one in subgraph.edges.items():
                for name in ("edge_index", "row_ptr", "positions", "edge_ids"):
                    assert torch.equal(getattr(again.edges[e], name), getattr(one, name)), (e, name)
                assert again.edges[e].num_per_hop == one.num_per_hop
            assert again.num_nodes_per_hop == subgraph.num_nodes_per_hop
            assert held.nbytes < sum(one.edge_index.nbytes + one.positions.nbytes for one in subgraph.edges.values())


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_a_short_profile_ranks_by_expected_visits_and_is_judged_by_the_rest(kind, stores, monkeypatch):
    profiles = []

    def take(*given):
        profiles.append(take_profile(*given))
        return profiles[-1]

    monkeypatch.setattr("penstock.feed.fit.memory.take_profile", take)
    monkeypatch.setattr("penstock.feed.fit.profile.MAX_BATCHES", 4)
    monkeypatch.setattr("penstock.feed.fit.profile.THINNING", 1)
    loader = loader_of(stores[kind], plan=Plan(host_memory="8GiB"), num_workers=2)
    (profile,), graph = profiles, stores[kind].graph()
    for node_type, cache in loader.engine.caches.top.items():
        first_half = np.concatenate(profile.traces[node_type][:2])
        assert np.array_equal(np.bincount(first_half, minlength=profile.trace_visits[node_type].size), profile.trace_visits[node_type])
        expected = expected_visits(profile.row_visits[node_type], degree_hotness(graph, node_type))
        assert profile.num_batches == 4 < len(loader)
        assert np.array_equal(np.sort(np.flatnonzero(cache.policy.slots >= 0)), np.flatnonzero(expected > 0))


def test_visited_lists_against_all_subsets():
    indptr = np.array([0, 3, 3, 4, 9, 11])
    csc = CSC(indptr, np.zeros(11, np.int32), None)
    visits = {EDGE: np.array([6, 5, 1, 10, 0], np.uint8)}  # node 1 has no list, node 4 is never read
    lists = VisitedLists(visits, {EDGE: csc})
    assert lists.num_bytes == (3 + 1 + 5) * 4
    ranking = [0, 3, 2, 4]  # reads per edge: 2, 2, 1; there is room for the last
    for count, num_bytes in ((0, 0), (0, 11), (1, 12), (1, 31), (2, 32), (3, 36), (3, 67), (4, 68), (4, 1000)):
        assert lists.keep(num_bytes)[EDGE].tolist() == ranking[:count]
        assert lists.misses(num_bytes) == 17 - sum([6, 10, 1, 0][:count])
