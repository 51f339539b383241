"""Loaders with plans: the same batches as without, bit for bit, whatever is kept where; and what is counted."""

import threading
import time

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.cache import FIFO
from penstock.cache.choose import POLICIES
from penstock.errors import InputError, PipelineError, UsageError
from penstock.gather import CachedTier, RowKind, TieredTable
from penstock.plan import RECIPES, Plan, make_plan, parse_capacity, plan_rows, slow_options
from penstock.store import ingest
from penstock.store.tiers import HostTier, SlowTier
from tests.contract.tiers import FailingTier
from tests.feed.inputs import check_homogeneous, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=16, shuffle=True, seed=3)


def digests(loader, num_epochs=2):
    return [penstock.digest(batch) for _ in range(num_epochs) for batch in loader]


def make_loader(data, **options):
    return penstock.NeighborLoader(
        data, **{**OPTIONS, "input_nodes": data.train_mask if isinstance(data, Data) else ("paper", "train"), **options}
    )


@pytest.fixture(scope="module")
def plain():
    return {kind: digests(make_loader(data)) for kind, data in (("homogeneous", homogeneous_data()), ("typed", typed_data()))}


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize("policy", POLICIES)
def test_same_batches_under_every_policy(plain, policy, num_workers):
    for kind, data in (("homogeneous", homogeneous_data()), ("typed", typed_data())):
        for cache in ("0%", "3 rows", "20%"):
            plan = Plan(policy=policy, cache=cache, window=4, slow="1GB/s,10us,64 rows")
            loader = make_loader(data, plan=plan, num_workers=num_workers)
            assert digests(loader) == plain[kind]
            counted = loader.stats().tiers
            hits = sum(stats["num_rows"] for name, stats in counted.items() if name.endswith("cache"))
            assert (hits > 0) or cache != "20%"


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes(plain, recipe, tmp_path):
    data, expected, options = homogeneous_data(), plain["homogeneous"], {}
    if recipe == "ginex":
        with pytest.raises(UsageError, match="in memory: ingest the graph into a store"):
            make_loader(data, plan=recipe)
        data, options = ingest(data, tmp_path / "store", memory="4GiB"), {"input_nodes": "train"}
        expected = digests(make_loader(data, **options))
    loader = make_loader(data, plan=make_plan(recipe, order="random"), num_workers=2, **options)
    assert digests(loader) == expected


def test_rows_are_whole_and_in_place():
    data = homogeneous_data()
    for batch in make_loader(data, plan=Plan(policy="lru", cache="10%"), num_workers=2):
        check_homogeneous(batch, data)


def test_repeated_seeds_and_disjoint_trees():
    data = homogeneous_data()
    seeds = torch.tensor([5, 5, 9, 5, 9, 40] * 5)
    for options in (dict(), dict(disjoint=True), dict(replace=True), dict(subgraph_type="bidirectional")):
        common = dict(input_nodes=seeds, batch_size=8, **options)
        expected = digests(make_loader(data, **common))
        assert digests(make_loader(data, plan=Plan(policy="fifo", cache="5%"), **common)) == expected


def test_hits_and_misses_add_up():
    data = homogeneous_data()
    results = {}
    for policy in ("degree", "fifo", "belady"):
        loader = make_loader(data, plan=Plan(policy=policy, cache="30%", window=8), num_workers=2)
        filled = loader.stats().tiers["host"]["num_rows"]
        assert filled == (0 if policy == "fifo" else 90)
        asked = sum(batch.n_id.numel() for _ in range(3) for batch in loader)
        stats = loader.stats()
        assert stats.tiers["cache"]["num_rows"] + stats.tiers["host"]["num_rows"] - filled == asked
        assert stats.cache_bytes > 90 * 10
        results[policy] = stats.tiers["cache"]["num_rows"] / asked
    assert results["belady"] > results["fifo"]


def test_hit_rate_does_not_depend_on_the_threads():
    counts = []
    for num_workers in (0, 1, 3):
        loader = make_loader(homogeneous_data(), plan=Plan(policy="s3-fifo", cache="20%"), num_workers=num_workers)
        digests(loader)
        counts.append({name: stats["num_rows"] for name, stats in loader.stats().tiers.items()})
    assert counts[0] == counts[1] == counts[2]


@pytest.mark.parametrize("policy", ["fifo", "belady"])
def test_resume_at_every_batch(plain, policy):
    data, plan = homogeneous_data(), Plan(policy=policy, cache="20%", window=3)
    loader, states = make_loader(data, plan=plan), []
    for _ in loader:
        states.append(loader.state_dict())
    for number, state in enumerate(states, 1):
        resumed = make_loader(data, plan=plan, num_workers=2)
        resumed.load_state_dict(state)
        num_left = len(plain["homogeneous"]) // 2 - number
        assert [penstock.digest(batch) for batch in resumed][:num_left] == plain["homogeneous"][number : number + num_left]


@pytest.mark.parametrize("policy", ["fifo", "belady"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_leaving_early_and_starting_again(plain, policy, num_workers):
    before = threading.active_count()
    loader = make_loader(homogeneous_data(), plan=Plan(policy=policy, cache="20%", window=3), num_workers=num_workers)
    for _ in range(4):
        for number, _batch in enumerate(loader):
            if number == 2:
                break
    rest = [penstock.digest(batch) for batch in loader]
    fresh = make_loader(homogeneous_data(), num_workers=num_workers)
    assert rest == digests(fresh, 5)[-len(rest) :]
    del loader, fresh
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= before


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("policy", ["fifo", "belady"])
def test_a_tier_that_fails_says_where(policy, num_workers):
    data = homogeneous_data()
    kinds = [RowKind("x", np.dtype(np.float32), (2,))]
    tier = SlowTier(FailingTier(HostTier([data.x.numpy()]), lambda number: OSError("torn") if number == 5 else None))
    loader = make_loader(data, tables={"node": TieredTable(tier, kinds)}, plan=Plan(policy=policy, cache="20%"), num_workers=num_workers)
    with pytest.raises(OSError, match=r"torn.*stage gather, batch"):
        for _ in loader:
            pass
    assert len(list(loader)) == len(loader)  # the next epoch is whole


def test_an_error_in_sampling_arrives_at_its_batch_however_far_ahead():
    def spoil(output):
        if int(output.metadata[0][0]) == int(expected[4]):
            raise ValueError("spoilt")
        return output

    data = homogeneous_data()
    expected = [int(batch.input_id[0]) for batch in make_loader(data)]
    loader = make_loader(data, plan=Plan(policy="belady", cache="20%", window=6), transform_sampler_output=spoil, num_workers=2)
    batches = iter(loader)
    assert [int(next(batches).input_id[0]) for _ in range(4)] == expected[:4]
    with pytest.raises(PipelineError, match="spoilt"):
        next(batches)


def test_held_samples_take_no_buffers_of_batches(monkeypatch):
    """There are many of them, for long: the buffers of batches, several times as large, would all be theirs in the end."""
    monkeypatch.setattr("penstock.feed.buffers.SMALLEST_BYTES", 1)
    peaks = {}
    for window in (2, 12):
        loader = make_loader(homogeneous_data(), plan=Plan(policy="belady", cache="20%", window=window), num_workers=1)
        digests(loader)
        peaks[window] = loader.engine.maker.pool.peak_bytes, loader.engine.maker.held_pool.peak_bytes
    assert peaks[12][0] < 1.5 * peaks[2][0]  # as many batches are under way
    assert peaks[12][1] > 2 * peaks[2][1] > 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_passes_at_once(plain, num_workers):
    loader = make_loader(homogeneous_data(), plan=Plan(policy="belady", cache="20%", window=4), num_workers=num_workers)
    first, second = iter(loader), iter(loader)
    pairs = [(penstock.digest(a), penstock.digest(b)) for a, b in zip(first, second, strict=True)]
    assert [a for a, _ in pairs] + [b for _, b in pairs] == plain["homogeneous"]


def test_batches_outside_any_pass():
    data = homogeneous_data()
    loader = make_loader(data, plan=Plan(policy="belady", cache="20%", window=4))
    assert penstock.digest(loader([1, 2, 3])) == penstock.digest(make_loader(data)([1, 2, 3]))


def test_tables_of_the_users():
    data = homogeneous_data()
    x = (data.x * 2).numpy()
    table = TieredTable(CachedTier(lambda: FIFO(300, 30), HostTier([x])), [RowKind("x", x.dtype, x.shape[1:])])
    for batch in make_loader(data, tables={"node": table}, num_workers=2):
        assert torch.equal(batch.x, torch.from_numpy(x)[batch.n_id])
        assert torch.equal(batch.y, data.y[batch.n_id])
    short = TieredTable(HostTier([x[:10]]), [RowKind("x", x.dtype, x.shape[1:])])
    with pytest.raises(InputError, match="10 rows for 300 nodes"):
        make_loader(data, tables={"node": short})
    with pytest.raises(UsageError, match="'paper' is no type of this graph"):
        make_loader(data, tables={"paper": short})


@pytest.mark.parametrize("options", [dict(), dict(replace=True), dict(subgraph_type="induced")], ids=str)
def test_edge_features_in_tiers(options):
    data = homogeneous_data()
    attributes = data.edge_attr.numpy()
    slow = SlowTier(HostTier([attributes]), delay_s=1e-5)
    kinds = [RowKind("edge_attr", attributes.dtype, attributes.shape[1:])]
    table = TieredTable(CachedTier(lambda: FIFO(len(attributes), 200), slow), kinds)
    expected = digests(make_loader(data, **options))
    loader = make_loader(data, tables={("node", "to", "node"): table}, num_workers=2, **options)
    assert digests(loader) == expected
    assert loader.stats().tiers["cache"]["num_rows"] > 0


def test_a_slow_tier_hides_behind_the_threads():
    data = homogeneous_data()
    plan = Plan(slow="1GB/s,5ms,10000 rows")
    started = time.monotonic()
    num_batches = len(list(make_loader(data, plan=plan, num_workers=3)))
    assert time.monotonic() - started < 10 + num_batches * 0.005


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(policy="best"), "policy must be one of random"),
        (dict(order="up"), "order must be one of random"),
        (dict(features="tape"), "features must be one of given"),
        (dict(cache="many"), "cannot read cache='many'"),
        (dict(cache="130%"), "more than all rows"),
        (dict(window=0), "window must be at least 1, got 0"),
        (dict(presample_epochs=0), "presample_epochs must be at least 1, got 0"),
        (dict(window="3"), "window must be of type int, got '3'"),
        (dict(map_threads=2.5), "map_threads must be of type int, got 2.5"),
        (dict(huge_pages="no"), "huge_pages must be of type bool, got 'no'"),
        (dict(slow="fast"), "cannot read 'fast' of slow='fast'"),
        (dict(spool="8GiB", policy="degree"), "spool='8GiB' is for rows that come from a disk: give features='disk'"),
        (
            dict(spool="8GiB", features="disk", policy="belady"),
            "must know what policy will miss: give a static one: random, degree",
        ),
        (dict(spool="8GiB", host_memory="2GiB", cache="10%"), "spool='8GiB' is for rows that come from a disk"),
        (dict(spool="much", host_memory="2GiB"), "cannot read 'much'"),
        (dict(spool="much", features="disk", policy="degree"), "cannot read 'much'"),
    ],
    ids=str,
)
def test_impossible_plans_are_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        Plan(**wrong)
    with pytest.raises(UsageError, match=r"there is no recipe '.*': choose one of pyg"):
        make_plan("cake")


def test_settings_are_plain_and_shown_where_they_are_given(tmp_path):
    plan = Plan(host_memory=1 << 30, spool=8 << 30, spool_folder=tmp_path)
    assert type(Plan(window=np.int64(3)).window) is int
    assert (repr(Plan()), repr(RECIPES["pagraph"])) == ("Plan()", "Plan(recipe='pagraph', policy='degree', cache='20%')")
    assert eval(repr(plan)) == plan
    assert plan.spool_folder == str(tmp_path)


def test_neighbour_lists_are_passed_over_where_they_are_at_hand():
    """To find out what is hot by inclusion probabilities: not on a disk, nor within a budget."""
    assert {name for name, plan in RECIPES.items() if not plan.is_by_inclusion} == {"ginex"}
    for options in (dict(slow_topology="1GB/s,1ms"), dict(map_threads=4), dict(host_memory="2GiB"), dict(topology="disk")):
        assert not Plan(**options).is_by_inclusion


def test_capacities():
    assert parse_capacity("12.5 %") == ("share", 0.125)
    assert parse_capacity("40 rows") == ("rows", 40)
    assert parse_capacity("2MiB") == ("bytes", 2 << 20)
    rows, widths = {"a": 1000, "b": 3000}, {"a": 100, "b": 4}
    assert plan_rows("10%", rows, widths) == {"a": 100, "b": 300}
    assert plan_rows("40 rows", rows, widths) == {"a": 10, "b": 30}
    assert plan_rows("1GiB", rows, widths) == plan_rows("9" * 30 + " rows", rows, widths) == rows
    with pytest.raises(UsageError, match="cannot read cache="):
        parse_capacity("9" * 400 + " rows")
    for budget in (40_000, 60_000, 100_000):
        kept = plan_rows(str(budget), rows, widths)
        assert 8 * 4000 + sum(kept[t] * (widths[t] + 24) for t in rows) <= budget
        kept = plan_rows(str(budget), rows, widths, is_static=True)
        assert 4 * 4000 + sum(kept[t] * widths[t] for t in rows) <= budget < 4 * 4000 + sum((kept[t] + 1) * widths[t] for t in rows) + 100
    with pytest.raises(UsageError, match="does not even hold the directory"):
        plan_rows("100", rows, widths)
    assert slow_options("1GB/s,100us, 64 rows, depth 8") == dict(bytes_per_s=10**9, delay_s=100 * 1e-6, rows_per_request=64, depth=8)
