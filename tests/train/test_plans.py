"""Training under plans: the same weights whatever is kept where, and what the run says about it."""

import json

import pytest

from penstock.cache.choose import POLICIES
from penstock.errors import UsageError
from penstock.report import write_report
from penstock.report.live import introduction
from penstock.train import TrainConfig, train
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
    plans += [dict(policy="fifo", cache=cache) for cache in ("0", "1 rows", "100%", "64KiB")]
    plans += [
        dict(features="memory"),
        dict(features="disk"),
        dict(features="disk", policy="belady", cache="10%", window=3),
        dict(slow="1GB/s,10us"),
        dict(policy="belady", cache="10%", window=3, slow="1GB/s,10us", num_workers=0),
    ]
    for number, plan in enumerate(plans):
        assert run(tmp_path / str(number), stores[kind], **plan).weights_digest == expected, plan


@pytest.mark.parametrize("recipe", ["pyg", "mmap", "pagraph", "gnnlab", "bgl"])
def test_recipes_train(recipe, stores, tmp_path):
    result = run(tmp_path, stores["plain"], recipe=recipe)
    assert result.description["config"]["recipe"] == recipe
    expected = run(tmp_path / "same order", stores["plain"], order="proximity" if recipe == "bgl" else "random")
    assert result.weights_digest == expected.weights_digest
    if recipe in ("pagraph", "gnnlab", "bgl"):
        assert 0 < result.history[-1].hit_rate < 1
        assert result.description["cache_bytes"] > 0


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


def test_what_a_disk_was_made_to_read_is_said(stores, tmp_path):
    result = run(tmp_path, stores["plain"], features="disk", policy="lru", cache="20%")
    for record in result.history:
        assert sum(counts["num_rows"] for counts in record.tiers.values()) == record.num_nodes
        assert record.tiers["disk"]["read_bytes"] >= record.tiers["disk"]["num_bytes"] > 0
    assert "blocks of" in result.description["disks"]["disk"]
    assert f"disk: {result.description['disks']['disk']}" in introduction(result.description, 2)
    page = write_report(result, tmp_path).read_text()
    assert "per byte asked" in page
    assert "read from disk" in page


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
