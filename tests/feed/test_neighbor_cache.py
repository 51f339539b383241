"""Loaders whose neighbour lists live in tiers: the same batches bit for bit, whatever is kept where; and what is counted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.cache.choose import LIST_POLICIES, list_values
from penstock.cache.presample import draw_apart, iterate_samples, lists_read
from penstock.cache.workload import Workload
from penstock.errors import TierError, UsageError
from penstock.feed.setup import slopes, topology
from penstock.order import RandomOrder
from penstock.plan import Plan, make_plan, plan_lists, plan_shared
from penstock.records import EDGE, NODE
from penstock.sample import NeighborSampler
from penstock.sample.seeds import NodeSeeds
from penstock.store import ingest
from penstock.store.tiers import HostTier, SlowTier
from tests.contract.tiers import FailingTier
from tests.feed.inputs import check_homogeneous, homogeneous_data, typed_data
from tests.graphs import homogeneous_graph, typed_graph

OPTIONS = dict(num_neighbors=[4, 3], batch_size=16, shuffle=True, seed=3)
SLOW = "1GB/s,10us,64 rows"
CAPACITIES = ("0", "1 list", "30%", "100%", "16KiB")
DATA = {"homogeneous": homogeneous_data(), "typed": typed_data()}


def digests(loader, num_epochs=2):
    return [penstock.digest(batch) for _ in range(num_epochs) for batch in loader]


def make_loader(data, **options):
    chosen = data.train_mask if isinstance(data, Data) else ("paper", "train")
    return penstock.NeighborLoader(data, **{**OPTIONS, "input_nodes": chosen, **options})


@pytest.fixture(scope="module")
def plain():
    return {kind: digests(make_loader(data)) for kind, data in DATA.items()}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return {kind: ingest(data, folder / kind, memory="4GiB") for kind, data in DATA.items()}


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("layout", ["direct", "prefix"])
@pytest.mark.parametrize("kind", DATA)
def test_same_batches_at_every_capacity(plain, kind, layout, num_workers):
    for capacity in CAPACITIES:
        plan = Plan(neighbor_policy="ratio", neighbor_cache=capacity, neighbor_layout=layout, slow_topology=SLOW)
        loader = make_loader(DATA[kind], plan=plan, num_workers=num_workers)
        assert digests(loader) == plain[kind], capacity


@pytest.mark.parametrize("policy", LIST_POLICIES)
@pytest.mark.parametrize("kind", DATA)
def test_same_batches_under_every_policy(plain, kind, policy):
    for more in (dict(), dict(policy="fifo", cache="10%"), dict(policy="belady", cache="10%", window=3, slow=SLOW)):
        plan = Plan(neighbor_policy=policy, neighbor_cache="20%", slow_topology=SLOW, **more)
        assert digests(make_loader(DATA[kind], plan=plan, num_workers=2)) == plain[kind]


@pytest.mark.parametrize(
    "plan",
    [
        Plan(topology="memory"),
        Plan(neighbor_policy="presample", neighbor_cache="10%"),
        make_plan("ducati", slow_topology="1GB/s,2ms,64 rows"),
    ],
    ids=["memory", "presample", "ducati"],
)
@pytest.mark.parametrize("kind", DATA)
def test_stores_in_memory_mapped_or_kept_in_part(stores, kind, plan):
    given = {"input_nodes": ("paper", "train") if kind == "typed" else "train"}
    loader = make_loader(stores[kind], plan=plan, num_workers=2, **given)
    assert digests(loader) == digests(make_loader(stores[kind], **given))
    stats = loader.stats()
    if plan.topology == "memory":
        assert stats.lists == {}
        arrays = [csc for csc in stores[kind].graph().adjacency.values()]
        assert stats.loaded_bytes == sum(csc.indptr.nbytes + csc.indices.nbytes for csc in arrays)
        assert not any(isinstance(csc.indices.base, np.memmap) for csc in loader.engine.maker.sampler.graph.adjacency.values())
    else:
        if plan.neighbor_cache != "shared":  # that one keeps what saves time as it is measured: perhaps no lists
            assert any(name.endswith("cache") and counts["num_lists"] for name, counts in stats.lists.items())
        assert any(name.endswith("mmap") for name in stats.lists)


@pytest.mark.parametrize("options", [dict(disjoint=True), dict(replace=True), dict(subgraph_type="induced"), dict(num_neighbors=[-1, 2])])
def test_other_ways_to_sample(options):
    data = DATA["homogeneous"]
    plan = Plan(neighbor_policy="presample", neighbor_cache="20%", neighbor_layout="prefix", slow_topology=SLOW)
    expected = digests(make_loader(data, **options))
    loader = make_loader(data, plan=plan, num_workers=2, **options)
    assert digests(loader) == expected
    if "subgraph_type" not in options:
        for batch in loader:
            check_homogeneous(batch, data)


def test_lists_and_edges_add_up_on_any_number_of_threads():
    seen = []
    for num_workers in (0, 1, 4):
        plan = Plan(neighbor_policy="ratio", neighbor_cache="40%", slow_topology=SLOW)
        loader = make_loader(DATA["homogeneous"], plan=plan, num_workers=num_workers)
        filled = loader.stats().lists["slow host"]
        batches = [batch for _ in range(2) for batch in loader]
        counted = loader.stats().lists
        assert sum(counts["num_edges"] for counts in counted.values()) - filled["num_edges"] == sum(b.edge_index.shape[1] for b in batches)
        num_lists = sum(int((b.row_ptr.diff() > 0).sum()) for b in batches)
        assert sum(counts["num_lists"] for counts in counted.values()) - filled["num_lists"] == num_lists
        seen.append({name: (counts["num_lists"], counts["num_edges"]) for name, counts in counted.items()})
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["cache"][0] > 0


def test_everything_kept_asks_nothing_of_the_slow_tier():
    plan = Plan(neighbor_policy="degree", neighbor_cache="100%", slow_topology=SLOW)
    loader = make_loader(DATA["typed"], plan=plan)
    before = loader.stats().lists
    digests(loader)
    after = loader.stats().lists
    assert [after[name] for name in after if "slow" in name] == [before[name] for name in before if "slow" in name]


@pytest.mark.parametrize("capacity", ["6KiB", "8KiB", "12KiB", "1MiB"])
@pytest.mark.parametrize("layout", ["direct", "prefix"])
def test_bytes_cover_lists_and_tables(layout, capacity):
    for data in DATA.values():
        plan = Plan(neighbor_policy="presample", neighbor_cache=capacity, neighbor_layout=layout)
        stats = make_loader(data, plan=plan).stats()
        assert 0 < stats.list_bytes <= int(capacity[:-3]) * (1024 if "K" in capacity else 1 << 20)
        assert stats.cache_bytes == stats.list_bytes


@pytest.mark.parametrize("capacity", ["20%", "16KiB"])
@pytest.mark.parametrize("kind", DATA)
def test_one_budget_for_rows_and_lists(plain, kind, capacity, monkeypatch):
    def fixed(workload, tables, bottoms):  # what is measured varies with the machine: at times it would keep rows alone
        return dict.fromkeys(workload.sampler.graph.adjacency, 1e-6), dict.fromkeys(tables, 2e-7)

    monkeypatch.setattr("penstock.feed.setup.choices.measure_slopes", fixed)
    plan = Plan(
        policy="presample", cache=capacity, neighbor_policy="presample", neighbor_cache="shared", neighbor_layout="prefix",
        slow="1GB/s,2ms,64 rows", slow_topology="same",
    )  # fmt: skip
    loader = make_loader(DATA[kind], plan=plan, num_workers=2)
    assert digests(loader) == plain[kind]
    stats = loader.stats()
    assert 0 < stats.list_bytes < stats.cache_bytes
    if capacity == "16KiB":
        assert stats.cache_bytes <= 16 << 10


def test_one_budget_after_few_batches_is_divided_by_expected_visits(monkeypatch):
    """What nobody asked for in the batches that were sampled is kept all the same, as far as its degree says that it will be."""
    chosen = {}

    def equal(workload, tables, bottoms):
        chosen["visited"] = np.count_nonzero(workload.visits().nodes[NODE])
        return {EDGE: 1e-6}, {NODE: 1e-6}

    monkeypatch.setattr("penstock.feed.setup.choices.measure_slopes", equal)
    plan = make_plan("ducati", cache="90%", slow=SLOW, slow_topology=SLOW, presample_batches=1)
    loader = make_loader(DATA["homogeneous"], plan=plan, num_neighbors=[2])
    assert loader.engine.caches.tables[NODE].tier.policy.capacity > 1.5 * chosen["visited"]


def test_a_failing_tier_of_lists_says_where(monkeypatch):
    def torn(plan, csc, **options):
        return SlowTier(FailingTier(HostTier([csc.indices]), lambda number: OSError("torn") if number == 5 else None))

    monkeypatch.setattr("penstock.feed.setup.bottoms.bottom_of_lists", torn)
    loader = make_loader(DATA["homogeneous"], plan=Plan(neighbor_policy="ratio", neighbor_cache="20%"), num_workers=2)
    with pytest.raises(TierError, match=r"torn.*stage sample, batch"):
        digests(loader)
    assert digests(loader, 1)


def test_values_of_lists():
    for graph, seed_type in ((homogeneous_graph(np.random.default_rng(2)), NODE), (typed_graph(np.random.default_rng(2)), "paper")):
        seeds = np.arange(50)
        sampler = NeighborSampler(graph, [4, 3], seed=1)
        workload = Workload(sampler, NodeSeeds(seed_type, seeds), RandomOrder(50, 1), 16, num_epochs=2)
        reads = {e: np.zeros(csc.num_dst) for e, csc in graph.adjacency.items()}
        for sample in iterate_samples(replace(workload, sampler=draw_apart(sampler)), epochs=range(2)):
            for e in graph.adjacency:
                np.add.at(reads[e], lists_read(sampler, sample, e), 0.5)
        counted = list_values("presample", workload)
        ratio = list_values("ratio", workload)
        for e, csc in graph.adjacency.items():
            lengths = np.maximum(np.diff(csc.indptr), 1)
            np.testing.assert_array_equal(workload.visits().lists[e], reads[e] * 2)
            np.testing.assert_allclose(counted[e] * lengths, workload.list_visits(e) / 2, rtol=1e-6)
            sources = sum(np.bincount(c.indices, minlength=csc.num_dst) for t, c in graph.adjacency.items() if t[0] == e[2])
            np.testing.assert_allclose(ratio[e], sources / lengths, rtol=1e-6)
    with pytest.raises(UsageError, match="neighbor_policy must be one of"):
        list_values("best", workload)


def test_the_best_lists_are_kept_best_first():
    csc = homogeneous_graph(np.random.default_rng(0), 50, 200).adjacency[EDGE]
    values, lengths = np.random.default_rng(1).random(50), np.diff(csc.indptr)
    ranking = [v for v in np.argsort(-values) if lengths[v]]
    assert plan_lists("7 lists", {EDGE: values}, {EDGE: csc}, "direct")[EDGE].tolist() == ranking[:7]
    assert plan_lists("100%", {EDGE: values}, {EDGE: csc}, "direct")[EDGE].tolist() == ranking
    for share in range(0, 101, 20):
        kept = plan_lists(f"{share}%", {EDGE: values}, {EDGE: csc}, "direct")[EDGE]
        assert lengths[kept].sum() == csc.num_edges * share // 100  # the short ones fill what is left
    with pytest.raises(UsageError, match=r"neighbor_cache='100' does not even hold the table: 208 bytes for lists of 50 nodes"):
        plan_lists("100", {EDGE: values}, {EDGE: csc}, "direct")


def test_a_budget_goes_where_a_byte_saves_most():
    csc = homogeneous_graph(np.random.default_rng(0), 60, 600).adjacency[EDGE]
    visits = np.arange(1.0, 61.0)
    for per_list, per_row in ((1e-3, 1e-9), (1e-9, 1e-3)):
        one_by_one = np.where(visits > 30, per_list, 0)
        some, _ = plan_shared(
            "2KiB", {EDGE: visits}, {NODE: visits}, {NODE: 40}, {EDGE: csc}, "direct",
            seconds_per_list_hit={EDGE: one_by_one}, seconds_per_row_hit={NODE: per_row},
        )  # fmt: skip
        assert (visits[some[EDGE]] > 30).all()
        lists, rows = plan_shared(
            "2KiB", {EDGE: visits}, {NODE: visits}, {NODE: 40}, {EDGE: csc}, "direct",
            seconds_per_list_hit={EDGE: per_list}, seconds_per_row_hit={NODE: per_row},
        )  # fmt: skip
        used = np.diff(csc.indptr)[lists[EDGE]].sum() * 4 + rows[NODE].size * 40
        assert used + 4 * 60 + 4 * 60 <= 2048
        assert (rows[NODE].size == 0) == (per_list > per_row)
    with pytest.raises(UsageError, match="does not even hold the tables of rows and lists"):
        plan_shared(
            "100", {EDGE: visits}, {NODE: visits}, {NODE: 40}, {EDGE: csc}, "direct",
            seconds_per_list_hit={EDGE: 1}, seconds_per_row_hit={NODE: 1},
        )  # fmt: skip


def test_slopes_find_the_slow_side():
    loader = make_loader(DATA["homogeneous"], plan=Plan(features="memory"))
    maker, csc = loader.engine.maker, loader.engine.maker.sampler.graph.adjacency[EDGE]
    workload = Workload(maker.sampler, maker.seeds, maker.order, 16)
    fast = topology.bottom_of_lists(Plan(), csc, is_mapped=False)
    slow = topology.bottom_of_lists(Plan(slow_topology="1GB/s,20ms,10 rows,depth 1"), csc, is_mapped=False)
    of_slow, of_rows = slopes.measure_slopes(workload, loader.engine.caches.tables, {EDGE: slow}, num_batches=1)
    of_fast, _ = slopes.measure_slopes(workload, {}, {EDGE: fast}, num_batches=1)
    assert of_slow[EDGE] > 3e-3  # 20 ms for 10 neighbours, about 3 of a list
    assert of_slow[EDGE] > max(of_rows[NODE], of_fast[EDGE])
    nothing, _ = slopes.measure_slopes(workload, {}, {}, num_batches=0)
    assert nothing == {EDGE: slopes.LEAST_S}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(topology="tape"), "topology must be one of given"),
        (dict(neighbor_policy="fifo"), "neighbor_policy must be one of random"),
        (dict(neighbor_layout="tree"), "neighbor_layout must be one of direct"),
        (dict(neighbor_policy="ratio", neighbor_cache="5 rows"), r"cannot read neighbor_cache='5 rows'.*5000 lists"),
        (dict(neighbor_policy="ratio", neighbor_cache="130%"), "more than all lists"),
        (dict(neighbor_cache="10%"), "keeps nothing without neighbor_policy"),
        (dict(neighbor_policy="presample", neighbor_cache="shared"), "it needs policy='presample' and neighbor_policy='presample'"),
        (dict(policy="presample", neighbor_policy="presample", neighbor_cache="shared", cache="9 rows"), "counts rows"),
        (dict(slow_topology="fast"), "cannot read 'fast' of slow_topology='fast'"),
        (dict(slow_topology="1GB/s,4 rows,4KiB blocks"), "brings rows or a block"),
        (dict(slow_topology="same"), "is the simulated device of slow, which is not given"),
    ],
    ids=str,
)
def test_impossible_plans_are_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        Plan(**wrong)


def test_resume_under_another_cache_of_lists(plain):
    loader = make_loader(DATA["homogeneous"], plan=Plan(neighbor_policy="ratio", neighbor_cache="20%", slow_topology=SLOW))
    for number, _ in enumerate(loader, 1):
        if number == 3:
            break
    resumed = make_loader(DATA["homogeneous"], plan=Plan(topology="memory"), num_workers=2)
    resumed.load_state_dict(loader.state_dict())
    num_batches = len(loader)
    assert [penstock.digest(batch) for batch in resumed] == plain["homogeneous"][3:num_batches]
    assert torch.is_tensor(next(iter(resumed)).x)
