"""Training under plans: the same weights whatever is kept where, and what the run says about it."""

import json
import re

import pytest

from penstock.cache.choose import POLICIES
from penstock.errors import MismatchError, UsageError
from penstock.feed.maker import BatchMaker
from penstock.plan import RECIPES
from penstock.report.live import introduction, summary_of
from penstock.report.page import write_report
from penstock.train import Observer, TrainConfig, checkpoint, train
from tests.train.stores import make_store, make_typed_store

QUICK = dict(num_neighbors=(4, 3), batch_size=32, hidden=8, epochs=2, num_workers=2, lr=0.01, dropout=0.1, torch_threads=1)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return {"plain": str(make_store(folder / "plain").path), "typed": str(make_typed_store(folder / "typed").path)}


def run(folder, store, **options):
    resume = options.pop("resume", False)
    return train(TrainConfig(store=store, **{**QUICK, **options}), folder, resume=resume)


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_weights_do_not_depend_on_policy_capacity_or_tier(kind, stores, tmp_path):
    expected = run(tmp_path / "none", stores[kind]).weights_digest
    plans = [dict(policy=policy, cache="15%") for policy in POLICIES]
    plans += [dict(policy="fifo", cache=cache) for cache in ("0%", "1 rows", "100%", "64KiB")]
    plans += [
        dict(features="memory"),
        dict(features="disk"),
        dict(features="disk", policy="belady", cache="10%", window=3),
        dict(recipe="ginex", window=3),
        dict(features="disk", policy="presample", cache="10%", window=4, spool="64MiB"),
        dict(slow="1GB/s,10us"),
        dict(policy="belady", cache="10%", window=3, slow="1GB/s,10us", num_workers=0),
        dict(non_stop=True),
        dict(features="disk", policy="belady", cache="10%", window=5, non_stop=True, num_workers=1),
        dict(topology="memory"),
        dict(slow_topology="1GB/s,10us,4KiB blocks"),
        dict(neighbor_policy="presample", neighbor_cache="15%", slow_topology="1GB/s,1us"),
        dict(neighbor_policy="ratio", neighbor_cache="64KiB", neighbor_layout="prefix"),
        dict(recipe="ducati", cache="16KiB", slow="1GB/s,1us", slow_topology="1GB/s,1us"),
    ]
    for number, plan in enumerate(plans):
        assert run(tmp_path / str(number), stores[kind], **plan).weights_digest == expected, plan


def test_batches_are_verified_while_training(stores, tmp_path, monkeypatch):
    result = run(tmp_path / "right", stores["plain"], policy="lru", cache="10%", verify=2)
    num_batches = result.history[0].num_batches
    assert [record.num_verified for record in result.history] == [-(-num_batches // 2)] * len(result.history)
    assert result.weights_digest == run(tmp_path / "without", stores["plain"]).weights_digest
    finish = BatchMaker.finish

    def finish_wrongly(maker, assembler, sampled, *others):
        batch, stats = finish(maker, assembler, sampled, *others)
        if sampled.index == 2 and not assembler._caches.is_aside:
            batch.x[0] += 1
        return batch, stats

    monkeypatch.setattr(BatchMaker, "finish", finish_wrongly)
    run(tmp_path / "not looked at", stores["plain"], policy="lru", cache="10%", verify=3)
    with pytest.raises(MismatchError, match=r"^batch 2 of epoch 0: x differs in 1 of "):
        run(tmp_path / "wrong", stores["plain"], policy="lru", cache="10%", verify=2)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_train(recipe, stores, tmp_path):
    result = run(tmp_path, stores["plain"], recipe=recipe)
    assert result.description["config"]["recipe"] == recipe
    expected = run(tmp_path / "same order", stores["plain"], order="proximity" if recipe == "bgl" else "random")
    assert result.weights_digest == expected.weights_digest
    if RECIPES[recipe].policy is not None:
        assert result.description["cache_bytes"] > 0
    if RECIPES[recipe].policy is not None and recipe != "ducati":  # that one takes what saves time: over fast memory, perhaps no rows
        assert 0 < result.history[-1].hit_rate < 1
    if RECIPES[recipe].neighbor_policy is not None and recipe != "ducati":
        assert 0 < result.history[-1].list_hit_rate < 1
        assert result.description["list_bytes"] > 0
    if recipe == "pyg":
        assert result.description["loaded_bytes"] > 400 * 4 * 4  # features at least


def test_rows_that_waited_in_a_spool_are_counted_once(stores, tmp_path):
    spooled = dict(features="disk", policy="presample", cache="20%", spool="64MiB", window=4)
    for record in run(tmp_path, stores["plain"], **spooled).history:
        rows = {tier: counts["num_rows"] for tier, counts in record.tiers.items()}
        assert rows["spool"] > 0
        assert rows["cache"] + rows["disk"] == record.num_nodes
        assert record.hit_rate == rows["cache"] / record.num_nodes


def test_rows_are_counted_and_shown(stores, tmp_path):
    result = run(tmp_path, stores["plain"], policy="lru", cache="20%", slow="1GB/s,10us")
    for record in result.history:
        assert sum(counts["num_rows"] for counts in record.tiers.values()) == record.num_nodes
    page = write_report(result, tmp_path).read_text()
    assert "Where rows came from" in page
    assert "slow mmap" in page
    assert json.loads((tmp_path / "report.json").read_text())["description"]["plan"]["policy"] == "lru"
    plain = write_report(run(tmp_path / "b", stores["plain"]), tmp_path / "b").read_text()
    assert "Where rows came from" not in plain


def test_lists_are_counted_and_shown(stores, tmp_path):
    settings = dict(neighbor_policy="ratio", neighbor_cache="20%", slow_topology="1GB/s,10us,4KiB blocks", policy="degree", cache="10%")
    result = run(tmp_path, stores["plain"], **settings)
    for record in result.history:
        assert sum(counts["num_edges"] for counts in record.lists.values()) == record.num_edges
        assert set(record.lists) == {"cache", "slow mmap"}
    page = write_report(result, tmp_path).read_text()
    assert "Where neighbour lists came from" in page
    assert "kept neighbour lists" in page
    lines = introduction(result.description, 2)
    assert re.search(r"ratio keeps 20% of the neighbour lists: [\d.]+ KiB with their table, [\d.]+ KiB together", lines)
    assert re.search(r"cache hits [\d.]+ %  list hits [\d.]+ %", summary_of(result.history[-1], result.metric))
    shared = run(tmp_path / "shared", stores["plain"], recipe="ducati", topology="memory").description
    assert re.search(r"keeps a share of the neighbour lists: .*, read into memory: .*together", introduction(shared, 2))


def test_finding_out_what_is_hot_is_told(stores, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.store.progress._FIRST_S", 0.0)
    noted = []

    class Listener(Observer):
        def note(self, message):
            noted.append(message)

        def opened(self, description):
            assert not noted, "what is there is said first"
            noted.append("opened")

    config = TrainConfig(store=stores["plain"], **QUICK, policy="presample", cache="10%")
    result = train(config, tmp_path, observer=Listener())
    assert noted[0] == "opened"
    assert any(re.fullmatch(r"finding out what is hot: batch 1 of \d+", line) for line in noted)
    assert "calculating what a batch reaches, a pass over the edges a hop: hop 1 of 2" in noted
    assert result.description["setup_s"] > 0
    assert "to find out what is hot" in write_report(result, tmp_path).read_text()
    assert "; found out and filled in 1 min 15 s" in introduction({**result.description, "setup_s": 75.0}, 2)


def test_a_run_of_before_neighbour_lists_goes_on(stores, tmp_path):
    expected = run(tmp_path / "whole", stores["plain"], epochs=3).weights_digest
    run(tmp_path / "run", stores["plain"], epochs=1)
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    for name in ("topology", "neighbor_policy", "neighbor_cache", "neighbor_layout", "slow_topology"):
        del state["config"][name]
    for record in (state["record"], *state["history"]):
        del record["lists"]
    checkpoint.save(tmp_path / "run" / "checkpoint.pt", state)
    resumed = run(tmp_path / "run", stores["plain"], epochs=3, resume=True, neighbor_policy="ratio", neighbor_cache="10%")
    assert resumed.weights_digest == expected


def test_what_a_disk_was_made_to_read_is_said(stores, tmp_path):
    result = run(tmp_path, stores["plain"], features="disk", policy="lru", cache="20%")
    for record in result.history:
        assert sum(counts["num_rows"] for counts in record.tiers.values()) == record.num_nodes
        assert record.tiers["disk"]["read_bytes"] >= record.tiers["disk"]["num_bytes"] > 0
    assert "blocks of" in result.description["disks"]["features, disk"]
    assert f"features, disk: {result.description['disks']['features, disk']}" in introduction(result.description, 2)
    page = write_report(result, tmp_path).read_text()
    assert "per byte asked" in page
    assert "<th>features, disk</th>" in page


def test_a_run_goes_on_under_another_policy_but_not_another_order(stores, tmp_path):
    expected = run(tmp_path / "whole", stores["plain"], epochs=3).weights_digest
    run(tmp_path / "run", stores["plain"], epochs=1, policy="fifo", cache="10%")
    with pytest.raises(Exception, match="order"):
        run(tmp_path / "run", stores["plain"], epochs=3, resume=True, recipe="bgl")
    assert run(tmp_path / "run", stores["plain"], epochs=3, resume=True, policy="belady", cache="30%").weights_digest == expected


def test_impossible_plans_are_refused_before_anything_is_made(stores, tmp_path):
    with pytest.raises(UsageError, match="policy must be one of"):
        run(tmp_path / "run", stores["plain"], policy="best")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_within_a_budget_of_memory(kind, stores, tmp_path):
    expected = run(tmp_path / "none", stores[kind]).weights_digest
    result = run(tmp_path / "budget", stores[kind], host_memory="8GiB")
    assert result.weights_digest == expected  # the step that was tried has left no trace
    assert result.description["memory"].startswith("8.0 GiB = ")
    assert "\nmemory: 8.0 GiB = " in introduction(result.description, 2)
    assert result.description["evaluation"] == "sampled"
    assert 0 < result.val <= 1
    assert 0 < result.test <= 1
    again = run(tmp_path / "ids", stores[kind], recipe="ginex", window=2, hold="ids", evaluation="sampled")
    assert (again.weights_digest, again.val, again.test) == (expected, result.val, result.test)
    spooled = run(tmp_path / "spooled", stores[kind], host_memory="8GiB", spool="64MiB")
    assert (spooled.weights_digest, spooled.val, spooled.test) == (expected, result.val, result.test)
    full = run(tmp_path / "full", stores[kind], host_memory="8GiB", evaluation="full")
    assert (full.weights_digest, full.val) == (expected, run(tmp_path / "other", stores[kind]).val)


def test_resumed_under_another_budget(stores, tmp_path):
    expected = run(tmp_path / "whole", stores["plain"], epochs=3).weights_digest
    run(tmp_path / "parts", stores["plain"], epochs=1, host_memory="8GiB")
    run(tmp_path / "parts", stores["plain"], epochs=2, host_memory="6GiB", evaluation="auto", resume=True)
    assert run(tmp_path / "parts", stores["plain"], epochs=3, recipe="pyg", evaluation="auto", resume=True).weights_digest == expected


def test_a_budget_and_sizes_exclude_each_other(stores, tmp_path):
    with pytest.raises(UsageError, match="host_memory decides cache: give one of the two"):
        run(tmp_path, stores["plain"], host_memory="8GiB", cache="10%")
    with pytest.raises(UsageError, match=r"host_memory of 100\.0 MiB does not hold one batch"):
        run(tmp_path, stores["plain"], host_memory="100MiB")
    assert not list(tmp_path.iterdir())
