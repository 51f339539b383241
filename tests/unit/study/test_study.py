"""A study's figures are those of the simulation it stands for; its files are complete."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from penstock.cache import (
    FIFO,
    Belady,
    Static,
    degree_hotness,
    oracle_hotness,
    plan_static,
    sample_batches,
    simulate,
)
from penstock.cache.workload import Workload
from penstock.cli import run
from penstock.errors import MissingFieldError, NotSupportedError, UsageError
from penstock.order import RandomOrder
from penstock.sample import NeighborSampler
from penstock.sample.seeds import NodeSeeds
from penstock.sample.weights import store_weights, with_weights
from penstock.store import Store, generate, ingest
from penstock.study import ORDERS, STUDIED, CacheStudy, measures, plots, study_cache
from penstock.study.config import ALL
from penstock.study.replay import expand
from penstock.study.run import choose_seeds
from penstock.study.trace import Trace

SETTINGS = dict(num_neighbors=(4, 3), batch_size=20, capacities=("20%", "5%"), epochs=2, seed=3)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "toy"
    return generate("communities", path, num_nodes=1000, num_edges=8000, train=0.2, feature_dim=8, seed=1)


@pytest.fixture(scope="module")
def result(store):
    policies = ("random", "degree", "ratio", "presample", "inclusion", "oracle", "fifo", "belady", "belady-plain", "superbatch")
    return study_cache(store, CacheStudy(policies=policies, orders=("random", "proximity"), windows=(1, 3, 0), **SETTINGS))


@pytest.fixture(scope="module")
def batches(store):
    """(workload, batches of the three epochs) sampled without the study."""
    seeds = store.split("train")
    sampler, order = NeighborSampler(store.graph(), (4, 3), seed=3), RandomOrder(seeds.size, 3)
    given = sample_batches(sampler, "node", seeds, order, batch_size=20, epochs=range(3))
    return Workload(sampler, NodeSeeds("node", seeds), order, 20), [nodes["node"] for nodes in given]


def test_static_curves_agree_with_a_cache_played_directly(result, store, batches):
    workload, ids = batches
    per_epoch = len(ids) // 3
    hotness = {
        "degree": degree_hotness(store.graph(), "node"),
        "oracle": oracle_hotness(ids[per_epoch:], 1000),
        "presample": workload.row_visits("node"),
    }
    for name, hot in hotness.items():
        policy = Static(1000, 200)
        policy.fill(plan_static(hot, 200))
        hits, asked = simulate(policy, ids[per_epoch:])
        curve = result["orders"]["random"]["curves"][name]
        assert curve["missed_rows"][1] == (asked - hits).sum() / 2, name
        assert curve["hit_rate"][1] == pytest.approx(hits.sum() / asked.sum())
        assert curve["mean_batch_hit_rate"][1] == pytest.approx((hits / asked).mean())
        assert curve["moved_bytes"][1] == curve["missed_rows"][1] * 8 * 4


def test_dynamic_curves_agree_with_a_cache_played_directly(result, batches):
    workload, ids = batches
    per_epoch, hot = len(ids) // 3, workload.row_visits("node")
    played = {
        "fifo": simulate(FIFO(1000, 50), ids),
        "belady 3": simulate(Belady(1000, 50, 3, hot), ids),
        "belady all": simulate(Belady(1000, 50, len(ids), hot), ids),
        "belady-plain 3": simulate(Belady(1000, 50, 3), ids),
        "superbatch 3": simulate(Belady(1000, 50, 3, hot), ids, superbatch=True),
    }
    for label, (hits, asked) in played.items():
        missed = (asked - hits)[per_epoch:].reshape(2, -1).sum(1)
        assert result["orders"]["random"]["curves"][label]["by_epoch"][0] == missed.tolist(), label


def test_bounds_hold(result):
    for order in result["orders"].values():
        best = np.array(order["curves"]["belady all"]["hit_rate"])
        assert (np.array(order["ceiling"]) >= best - 1e-6).all()
        for label, curve in order["curves"].items():
            assert (np.array(curve["hit_rate"]) <= best + 1e-6).all(), label
        for name in ("random", "degree", "ratio", "presample", "inclusion"):
            assert (np.array(order["curves"]["oracle"]["hit_rate"]) >= order["curves"][name]["hit_rate"]).all(), name


def test_schema(result):
    assert [each["rows"] for each in result["capacities"]] == [50, 200], "ascending"
    assert set(result["orders"]) == {"random", "proximity"}
    order = result["orders"]["random"]
    labels = ["random", "degree", "ratio", "presample", "inclusion", "oracle", "fifo", "belady 1", "belady 3", "belady all"]
    assert list(order["curves"]) == [*labels, "belady-plain 1", "belady-plain 3", "belady-plain all", "superbatch 3"]
    assert result["row_bytes"] == 32
    assert result["num_seeds"] == Store.open(result["store"]).split("train").size
    assert json.loads(json.dumps(result, allow_nan=False)) == result or result["settings"]["orders"] == ("random", "proximity")
    assert 0 < order["accesses"]["lists"]["skew"]["needed"]["0.98"] <= 1
    assert 0 < order["accesses"]["similarity_between_epochs"][0] < 1


def test_lists_are_read_once_per_node_before_the_last_hop(result, store, batches):
    workload, _ = batches
    sampler, seeds, order = workload.sampler, workload.seeds.ids, workload.order
    reads, workspace = 0, sampler.workspace()
    for batch in range(order.num_batches(20, False)):
        for epoch in (1, 2):
            sample = sampler.sample({"node": seeds[order.batch(epoch, batch, 20)]}, epoch=epoch, batch=batch, workspace=workspace)
            reads += sum(sample.num_nodes_per_hop["node"][:-1])
    assert result["orders"]["random"]["accesses"]["lists"]["lists_read_per_epoch"] == reads / 2


def test_what_does_not_fit_is_spilled_and_read_back(store, result):
    few = study_cache(store, CacheStudy(policies=("fifo", "belady"), windows=(1, 0), memory="10KiB", **SETTINGS))
    order = few["orders"]["random"]
    assert order["spilled_bytes"] > 0
    assert order["left_out"] == ["belady all"], "it would know more accesses than fit"
    for label in ("fifo", "belady 1"):
        assert order["curves"][label] == result["orders"]["random"]["curves"][label]


def test_a_trace_gives_back_epochs():
    for memory in (0, 20, 1000):
        trace = Trace(10, 3, memory)
        batches = [np.arange(size) for size in (3, 1, 2, 0, 4, 5)]
        for ids in batches:
            trace.append(ids)
        trace.finish()
        for first, stop in ((0, 3), (1, 2), (2, 3)):
            found = [ids.tolist() for ids in trace.batches(first, stop)]
            assert found == [ids.tolist() for ids in batches[2 * first : 2 * stop]]
        assert trace.visits(2, 3).tolist() == [2, 2, 2, 2, 1, 0, 0, 0, 0, 0]


def test_similarity_is_the_overlap_of_the_hot_tenth_weighted_by_visits():
    one, other = np.zeros((2, 20), dtype=np.int64)
    one[[3, 4]], other[[4, 5]] = (6, 2), (4, 4)
    assert measures.similarity([one, one]) == [1.0]
    assert measures.similarity([one, other]) == [2 / 8]
    assert measures.similarity([one]) == []


def test_skew_takes_what_serves_most_for_its_size():
    found = measures.skew(np.array([10, 80, 10, 0]), np.array([1, 2, 4, 3]))
    assert found["needed"] == {"0.5": 0.2, "0.9": pytest.approx(0.3), "0.98": pytest.approx(0.7)}


def test_rank_correlation():
    assert measures.rank_correlation(np.arange(9), np.arange(9) ** 2) == pytest.approx(1)
    assert measures.rank_correlation(np.array([1, 1, 2]), np.array([2, 2, 1])) == pytest.approx(-1)
    assert measures.rank_correlation(np.ones(4), np.arange(4)) == 0


def test_a_share_of_all_nodes_in_place_of_a_split(store):
    settings = CacheStudy(policies=("degree",), train_fraction=0.05, **SETTINGS)
    assert study_cache(store, settings)["num_seeds"] == 50


@pytest.fixture(scope="module")
def weighted(store, tmp_path_factory):
    """The same graph, where what comes from the last hundred nodes weighs a thousand times as much."""
    import torch
    from torch_geometric.data import Data

    csc = store.csc()
    ends = np.stack([csc.indices, np.repeat(np.arange(1000), np.diff(csc.indptr))])
    data = Data(num_nodes=1000, edge_index=torch.from_numpy(ends.astype(np.int64)))
    data.edge_weight = torch.from_numpy(np.where(ends[0] >= 900, 1000.0, 1.0).astype(np.float32))
    return ingest(data, tmp_path_factory.mktemp("study") / "weighted", memory="4GiB")


def test_a_study_by_weight_samples_by_weight(weighted):
    policies = ("degree", "presample", "presample-2", "oracle", "belady")
    options = dict(policies=policies, windows=(0,), train_fraction=0.2, **SETTINGS)
    plain = study_cache(weighted, CacheStudy(**options))["orders"]["random"]
    found = study_cache(weighted, CacheStudy(weight="weight", **options))
    order = found["orders"]["random"]
    assert found["settings"]["weight"] == "weight"
    rates = {name: curve["hit_rate"][1] for name, curve in order["curves"].items()}
    assert rates["oracle"] >= max(rates["presample"], rates["presample-2"])
    without = {name: curve["hit_rate"][1] for name, curve in plain["curves"].items()}
    for name in ("presample", "presample-2"):
        assert rates[name] / rates["degree"] > 1.1 * without[name] / without["degree"], "degree does not know of weights"

    seeds = choose_seeds(weighted, CacheStudy(**options)).ids
    graph = with_weights(weighted.graph(), store_weights(weighted, "weight"))
    sampler, order_of_seeds = NeighborSampler(graph, (4, 3), seed=3), RandomOrder(seeds.size, 3)
    given = list(sample_batches(sampler, "node", seeds, order_of_seeds, batch_size=20, epochs=(1, 2)))
    for name, num_epochs in (("presample", 1), ("presample-2", 2)):
        hot = Workload(sampler, NodeSeeds("node", seeds), order_of_seeds, 20, num_epochs=num_epochs).row_visits("node")
        policy = Static(1000, 200)
        policy.fill(plan_static(hot, 200))
        hits, asked = simulate(policy, [nodes["node"] for nodes in given])
        assert order["curves"][name]["missed_rows"][1] == (asked - hits).sum() / 2


def test_what_a_study_by_weight_refuses(weighted, store):
    with pytest.raises(MissingFieldError, match="edges have no field 'nothing' to weigh them by; they have 'weight'"):
        study_cache(weighted, CacheStudy(weight="nothing", train_fraction=0.1))
    with pytest.raises(MissingFieldError, match="edges have no field 'weight' to weigh them by; they have none"):
        study_cache(store, CacheStudy(weight="weight"))
    with pytest.raises(NotSupportedError, match="inclusion probabilities are known for uniform draws only"):
        study_cache(weighted, CacheStudy(weight="weight", policies=("inclusion",), train_fraction=0.1, **SETTINGS))


def test_settings_are_checked():
    for wrong in (dict(batch_size=0), dict(epochs=0), dict(row_bytes=0), dict(capacities=()), dict(policies=()), dict(memory="much")):
        with pytest.raises(UsageError):
            CacheStudy(**wrong)
    with pytest.raises(UsageError, match="superbatch needs"):
        study_cache(None, CacheStudy(policies=("superbatch",), windows=(1,)))


def test_the_command_writes_tables_and_pictures(store, tmp_path, capsys):
    arguments = ["study", "cache", str(store.path), "--num-neighbors", "4,3", "--batch-size", "20", "--orders", "random,sequential"]
    arguments += ["--policies", "degree,fifo,belady", "--windows", "2", "--capacities", "5%,100 rows", "--epochs", "1"]
    arguments += ["--out", str(tmp_path)]
    assert run(arguments[:-2]) == 0
    text, progress = capsys.readouterr()
    assert "belady 2" in text
    assert "sequential order" in text
    assert "random: sampling: 20 batches" in progress
    assert run([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {**shown, "files": []} == {**json.loads((tmp_path / "study.json").read_text()), "files": []}
    names = {path.split("/")[-1] for path in shown["files"]}
    pictures = ("misses-random", "misses-sequential", "accesses-random", "accesses-sequential", "orders")
    assert names == {"study.json", *(f"{name}.{kind}" for name in pictures for kind in ("svg", "png"))}
    for name in pictures:
        drawn = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) > 20
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
    assert "in 1 epoch, %" in (tmp_path / "accesses-random.svg").read_text()  # each picture names its texts in comments


def test_every_policy_and_every_order_is_drawn(result):
    labels = [*expand((*STUDIED, "of tomorrow"), (1, 16, ALL))]
    lines = [tuple(plots.line_of(label).items()) for label in labels]
    assert len({*lines}) == len(lines), "two policies look alike"
    order = result["orders"]["random"]
    figure = plots.draw_orders({**result, "orders": dict.fromkeys(ORDERS, order)})
    assert figure.legends[0].get_texts()[-1].get_text() == ORDERS[-1]


def test_typed_stores_are_studied_by_type(tmp_path):
    from penstock.store import ingest
    from tests.feed.inputs import typed_data

    typed = ingest(typed_data(), tmp_path / "typed")
    for node_type in Store.open(typed.path).node_types:
        settings = CacheStudy(num_neighbors=(3, 2), batch_size=8, policies=("degree", "fifo"), seed_type=node_type, train_fraction=0.5)
        found = study_cache(typed, settings)
        assert found["graph"]["node_type"] == node_type
    with pytest.raises(UsageError, match="not a node type"):
        study_cache(typed, CacheStudy(seed_type="nothing"))
