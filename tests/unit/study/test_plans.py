"""Plans are tried as they are, in processes of their own; what cannot be is a line of the result."""

import copy
import json
import os
import shlex
import stat
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from typer.main import get_command

import penstock
from penstock.cli import make_app, run
from penstock.cli.plan import as_text, options, plan_in_python, typed_options
from penstock.errors import PenstockError, UsageError, argument
from penstock.feed import NeighborLoader
from penstock.feed.stats import BatchStats, LoaderStats
from penstock.plan import RECIPES, Plan
from penstock.store import Store
from penstock.study import PlanStudy, plans, study_plans
from penstock.study import trial as trial_process
from penstock.study.text import UNSURE
from penstock.train import Observer, TrainConfig
from penstock.train.ranks import Ranks
from penstock.train.run import _Run
from tests.train.stores import make_data, make_store, make_typed_data, make_typed_store

GIB = 1 << 30
WRITES = ("author", "writes", "paper")
QUICK = dict(num_neighbors=(3, 2), batch_size=32, seconds=0.05)


def trial(rate, memory=100, threads=2, **changes):
    return {"changes": changes, "num_workers": threads, "seeds_per_s": rate, "memory_bytes": memory}


def names(settings, num_bytes, free, disk=1000 * GIB):
    return list(plans.candidates(PlanStudy(**settings), num_bytes, free, disk))


def test_what_is_tried_depends_on_what_fits(tmp_path):
    assert names({}, GIB, 10 * GIB) == [{"recipe": "mmap"}, {"recipe": "uva"}, {"recipe": "pyg"}]
    beyond = names({}, 10 * GIB, 2 * GIB)
    maps = [{"recipe": "mmap", "map_threads": 64}, {"recipe": "mmap"}]
    assert [one for one in beyond if "host_memory" not in one] == maps
    assert {one["host_memory"] for one in beyond if one not in maps} == {"1024MiB"}, "half of what is free"
    within = names({"host_memory": "2GiB"}, GIB, 10 * GIB)
    kept = [{**one, "host_memory": "2GiB"} for one in beyond if one not in maps]
    assert within == [{**kept[0], "spool": "1024MiB"}, *kept[1:]], "a budget was given, and others do not keep it"
    assert within[0]["spool"] == beyond[0]["spool"].replace("10240", "1024") == "1024MiB", "as much as is read"
    assert names({"host_memory": "2GiB"}, GIB, 10 * GIB, disk=2 * GIB)[0]["spool"] == "512MiB"
    assert names({"host_memory": "2GiB"}, 1000, GIB) == [{**one, "host_memory": "2GiB"} for one in kept[1:]], "too little to be spooled"
    spool = {"spool": "8GiB", "spool_folder": str(tmp_path)}
    assert names({"host_memory": "2GiB", **spool}, GIB, 10 * GIB) == [{"host_memory": "2GiB", **spool}, *within[1:]]
    assert [one["recipe"] for one in names({"device": "cuda"}, GIB, 10 * GIB)] == list(plans.ON_DEVICE)
    assert names({"device": "cuda"}, 10 * GIB, 2 * GIB) == beyond
    chosen = {"recipes": ("ginex", "gnnlab"), "host_memory": "2GiB"}
    assert names(chosen, GIB, GIB) == [{"recipe": name, "host_memory": "2GiB"} for name in ("ginex", "gnnlab")]


def test_all_that_is_tried_is_a_plan():
    for settings in ({}, {"host_memory": "2GiB", "spool": "8GiB"}, {"device": "cuda"}):
        for num_bytes in (1, 10 * GIB):
            for changes in names(settings, num_bytes, GIB):
                assert eval(f"make({plan_in_python(changes)})", {"make": plans.make_plan, "penstock": sys.modules["penstock"]}) == (
                    plans.plan_of(changes)
                )


def test_of_plans_that_are_alike_the_one_with_least_memory():
    trials = [trial(100.0, 300, recipe="uva"), trial(97.0, 200, recipe="pyg"), trial(90.0, 100, recipe="mmap"), {"failed": "x"}]
    assert plans.choose(trials) == 1
    assert plans.choose([{"failed": "x"}, trial(1.0)]) == 1


def test_of_threads_that_are_alike_the_fewest():
    """Of the plan that was chosen, whatever others took."""
    changes = {"recipe": "uva"}
    trials = [trial(100.0, 1, 4, **changes), trial(500.0, 1, 1, recipe="pyg"), trial(97.0, 1, 2, **changes), trial(50.0, 1, 1, **changes)]
    assert plans.choose(trials, changes=changes) == 2


def test_nothing_works():
    with pytest.raises(PenstockError, match=r"none of 2 plans works here: no room"):
        plans.choose([{"failed": "no room"}, {"failed": "x"}])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("plans") / "store")


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """Stores that edges were held out of: a plain one with labels of edges, and a typed one, whose edges have their reverses."""
    folder, plain, typed = tmp_path_factory.mktemp("held"), make_data(), make_typed_data()
    plain.stars, plain.w = torch.arange(plain.num_edges) % 5, torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(1))
    typed["paper", "rev_writes", "author"].edge_index = typed[WRITES].edge_index.flip(0)
    for name, data, edge_type in (("plain", plain, None), ("typed", typed, WRITES)):
        penstock.ingest(data, folder / f"whole-{name}")
        penstock.hold_out(folder / f"whole-{name}", folder / name, edge_type=edge_type)
    return {name: penstock.open(folder / name) for name in ("plain", "typed", "whole-typed")}


@pytest.fixture(scope="module")
def result(store):
    return study_plans(store, PlanStudy(**QUICK, num_workers=1, recipes=("ginex",)))


def test_a_study(result, store):
    assert [one["changes"] for one in result["trials"]] == [{"recipe": "ginex"}]
    for one in (*result["trials"], result["again"]):
        assert 0 <= one["hit_rate"] <= 1
        assert one["batch_ms"] == pytest.approx(1e3 * 32 / one["seeds_per_s"], rel=0.5)
        assert one["memory_bytes"] > 50 << 20
        assert {"order", "sample", "gather", "assemble"} <= one["stage_ms"].keys()
    assert result["chosen"] == 0
    assert result["error"] == pytest.approx(result["again"]["seeds_per_s"] / result["trials"][0]["seeds_per_s"] - 1)
    features, lists = store.node_field("x").nbytes, store.csc()
    assert result["read_bytes"] == features + lists.indptr.nbytes + lists.indices.nbytes
    assert json.loads(json.dumps(result))["chosen"] == result["chosen"]


def test_a_study_as_text(result):
    text = as_text(
        {**result, "chosen": 1, "trials": [{"changes": {"recipe": "pyg"}, "num_workers": 1, "failed": "no room"}, result["trials"][0]]}
    )
    assert "--recipe pyg: no room" in text
    assert "--num-neighbors 3,2 --batch-size 32 --recipe ginex --num-workers 1" in text.splitlines()[-2]
    assert text.splitlines()[-1] == "NeighborLoader(..., plan='ginex', num_workers=1)"
    assert ("not known well" in text) == (abs(result["error"]) > UNSURE)
    failed = as_text({**result, "error": None, "again": {"failed": "the disk is gone"}})
    assert "it failed: the disk is gone" in failed


def test_fewer_threads_are_tried_until_they_are_much_slower(store, capfd, monkeypatch):
    """Each over an epoch of its own; what is chosen then is run again."""
    rates, epochs = {16: 100.0, 8: 99.0, 4: 60.0, 2: 50.0}, []

    def pretend(store, settings, changes, num_workers, *, epoch, to_beat, spell):
        epochs.append(epoch)
        assert to_beat == (100.0 if epoch else 0.0)
        if changes == {"recipe": "pyg"}:
            return {"failed": PenstockError(f"{argument('cache', '5')} is too much").spelled(spell)}
        return {**dict.fromkeys(("memory_bytes", "batch_ms", "ready_s"), 1.0), "seeds_per_s": rates[num_workers],
                "read_bytes_per_batch": None, "hit_rate": None, "is_hopeless": False}  # fmt: skip

    monkeypatch.setattr(plans, "_try", pretend)
    monkeypatch.setattr(plans, "usable_cores", lambda: 16)
    assert run(["plan", str(store.path), "--recipes", "uva,pyg", "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert [one["num_workers"] for one in said["trials"]] == [16, 16, 8, 4], "2 would be slower still"
    assert said["trials"][said["chosen"]]["num_workers"] == said["again"]["num_workers"] == 8
    assert epochs == [0, 1, 2, 3, 4]
    assert said["trials"][1]["failed"] == "--cache 5 is too much"


def test_a_trial_of_a_typed_store(tmp_path):
    settings = PlanStudy(**QUICK, seed_type="paper")
    loader = plans.make_loader(make_typed_store(tmp_path / "typed"), settings, Plan(), num_workers=1)
    found = trial_process.measure(loader, settings.seconds, None)
    assert found["batches"] >= trial_process.LEAST_BATCHES
    assert found["hit_rate"] is None
    assert not found["is_hopeless"]
    with pytest.raises(PenstockError, match="person"):
        plans.make_loader(make_typed_store(tmp_path / "typed2"), PlanStudy(seed_type="person"), Plan(), num_workers=1)


@pytest.mark.parametrize(
    ("script", "failed"),
    [
        ("kill -9 $$", "was ended by SIGKILL, as the system does where memory is short"),
        ("kill -15 $$", "was ended by SIGTERM"),
        ("echo one >&2; echo two >&2; exit 3", "two"),
        ("exit 3", "ended with code 3"),
        ("exec sleep 60", "was not done after 0 s"),
    ],
    ids=["killed", "terminated", "said", "silent", "late"],
)
def test_a_plan_that_cannot_be(store, tmp_path, monkeypatch, script, failed):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(plans.sys, "executable", str(path))
    monkeypatch.setattr(plans, "PATIENCE_S", 0.3 if "sleep" in script else 30.0)
    started = time.monotonic()
    found = plans._try(store, PlanStudy(**QUICK), {"recipe": "uva"}, 1, epoch=0, to_beat=0.0, spell=plans.as_python)
    assert found == {"failed": failed}
    assert time.monotonic() - started < 20, "nobody waits for what is late"


def test_a_trial_ends_with_who_waits_for_it(store):
    """However that ends."""
    asked = {"store": str(store.path), "settings": PlanStudy(**{**QUICK, "seconds": 600.0}).as_dict(), "changes": {"recipe": "mmap"}}
    words = [sys.executable, "-P", "-m", "penstock.study.trial", json.dumps({**asked, "num_workers": 1, "epoch": 0, "to_beat": 0.0})]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3.0)
        process.stdin.close()
        assert process.wait(30.0) == 1


def test_modules_are_those_of_who_asks(store, tmp_path, monkeypatch):
    """And not what lies in the current folder by their name."""
    (tmp_path / "numba.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    found = plans._try(store, PlanStudy(**QUICK), {"recipe": "mmap"}, 1, epoch=0, to_beat=0.0, spell=plans.as_python)
    assert "failed" not in found


class Pretended:
    """A loader whose batches take as long as they are said to, by a clock of its own."""

    batch_size, num_workers, is_settled = 10, 2, True

    def __init__(self, durations):
        self.now, self._durations, self.counted = 0.0, iter(durations), LoaderStats()

    def __iter__(self):
        for took in self._durations:
            self.now += took
            self.counted.add(BatchStats(num_seeds=10, num_nodes=50, num_edges=40, stage_s={"sample": took / 2}))
            rows = {"x cache": 20, "spool": 25, "upload of x": 30, "x": 30}  # those that passed rows of others on are no sources
            self.counted.tiers = {name: {"num_rows": each * self.counted.num_batches} for name, each in rows.items()}
            yield None

    def stats(self):
        return copy.deepcopy(self.counted)


def measured(monkeypatch, durations, seconds, to_beat=0.0):
    loader = Pretended(durations)
    monkeypatch.setattr(trial_process, "time", SimpleNamespace(perf_counter=lambda: loader.now))
    monkeypatch.setattr(trial_process, "_read_bytes", lambda: 7 * loader.counted.num_batches)
    return trial_process.measure(loader, seconds, None, to_beat)


def test_what_is_measured_are_the_batches_after_those_that_warm_up(monkeypatch):
    found = measured(monkeypatch, [1.0] * 5 + [0.125] * 1000, seconds=3.0)
    assert found["batches"] == 24
    assert found["seeds_per_s"] == pytest.approx(80.0)
    assert found["batch_ms"] == pytest.approx(125.0)
    assert (found["nodes_per_batch"], found["edges_per_batch"], found["read_bytes_per_batch"]) == (50, 40, 7)
    assert found["stage_ms"] == {"sample": pytest.approx(62.5)}
    assert found["hit_rate"] == pytest.approx(0.4)
    assert not found["is_hopeless"]


def test_few_batches_are_not_enough(monkeypatch):
    assert measured(monkeypatch, [9.0] * 100, seconds=3.0)["batches"] == trial_process.LEAST_BATCHES + Pretended.num_workers


def test_who_is_slow_at_first_is_not_hopeless(monkeypatch):
    """Neither by a first batch that takes long, nor by those that warm a cache."""
    for durations in ([100.0] + [0.1] * 1000, [0.9] * 5 + [0.01] * 1000):
        found = measured(monkeypatch, durations, seconds=3.0, to_beat=300.0)
        assert not found["is_hopeless"]
        assert found["seeds_per_s"] == pytest.approx(10 / durations[-1])
    late = measured(monkeypatch, [9.0] * 100, seconds=3.0, to_beat=1500.0)
    assert (late["is_hopeless"], late["batches"]) == (True, trial_process.LEAST_BATCHES)
    assert late["seeds_per_s"] == pytest.approx(10 / 9)


def test_the_loader_is_that_of_the_training(store, monkeypatch):
    given = {}
    monkeypatch.setattr(plans, "NeighborLoader", lambda *arguments, **options: given.update(options, arguments=arguments))
    settings = PlanStudy(
        num_neighbors=(4, 3), batch_size=7, order="community", weight="w", split="s", device="cuda", seed=5, shared_draws=2, layer_wise=True
    )
    monkeypatch.setattr(Store, "split", lambda store, *of: of)
    monkeypatch.setattr(plans, "order_by_name", lambda *arguments, **options: (arguments, options))
    plans.make_loader(store, settings, Plan(), num_workers=3)
    nodes = ("node", ("train", "s", "node"))
    assert [each.store for each in given.pop("arguments")] == [store]
    assert given == dict(
        num_neighbors=[4, 3],
        input_nodes=nodes,
        batch_size=7,
        order=(("community", store, nodes), dict(seed=5, batch_size=7)),
        weight_attr="w",
        seed=5,
        num_workers=3,
        plan=Plan(),
        device="cuda",
        shared_draws=2,
        layer_wise=True,
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("plain", dict(target="node")),
        ("plain", dict(target="node", order="community")),
        ("plain", dict(num_negatives=3)),
        ("plain", dict(order="proximity", weight="w")),
        ("plain", dict(edge_label="stars", shared_draws=2)),
        ("typed", dict(target="author,writes,paper")),
        ("typed", dict(target="paper", layer_wise=True)),
    ],
    ids=str,
)
def test_batches_are_those_of_the_training(name, settings, held_out, tmp_path):
    store, sizes = held_out[name], {each: QUICK[each] for each in ("num_neighbors", "batch_size")}
    config = TrainConfig(store=str(store.path), num_workers=0, seed=4, **sizes, **settings)
    expected = _Run(config, store, tmp_path / "run", Observer(), Ranks())._make_loader()
    study = PlanStudy(seed=4, seed_type=settings.get("target"), **sizes, **{each: settings[each] for each in settings.keys() - {"target"}})
    found = plans.make_loader(store, study, Plan(), num_workers=0)
    assert len(found) == len(expected)
    for batch in (0, len(found) - 1):
        assert penstock.digest(found(epoch=1, batch=batch)) == penstock.digest(expected(epoch=1, batch=batch))


def test_each_trial_has_an_epoch_of_its_own(store):
    loaders = [plans.make_loader(store, PlanStudy(**QUICK), Plan(), num_workers=0, epoch=epoch) for epoch in (0, 3)]
    seeds = [next(iter(loader)).input_id.tolist() for loader in loaders]
    assert [loader.epoch for loader in loaders] == [0, 3]
    assert seeds[0] != seeds[1]


def test_what_is_printed_can_be_typed():
    """And means the same."""
    settings = PlanStudy(
        num_neighbors=(4,),
        batch_size=7,
        order="community",
        weight="my weight",
        split="it's",
        device="cuda",
        seed=5,
        seed_type="a, b",
        shared_draws=4,
        layer_wise=True,
        edge_label="my label",
        num_negatives=3,
    )
    changes = {"recipe": "ginex", "host_memory": "2GiB", "spool": "8GiB", "spool_folder": "/mnt/a, b"}
    typed = typed_options(options(settings.as_dict(), {"changes": changes, "num_workers": 3}))
    command = get_command(make_app()).commands["train"]
    parsed = command.make_context("train", ["store", *shlex.split(typed)]).params
    expected = {**changes, "num_neighbors": "4", "batch_size": 7, "order": "community", "weight": "my weight", "split": "it's",
                "device": "cuda", "seed": 5, "shared_draws": 4, "layer_wise": True, "target": "a, b", "edge_label": "my label",
                "num_negatives": 3, "num_workers": 3}  # fmt: skip
    assert {name: parsed[name] for name in expected} == expected


def test_a_budget_that_is_too_small_is_said(store):
    with pytest.raises(PenstockError, match=r"none of 1 plans works here: host_memory of 1.0 MiB does not hold one batch"):
        study_plans(store, PlanStudy(**QUICK, host_memory="1MiB", num_workers=1, recipes=("ginex",)))


def test_what_counts_begins_when_maps_are_where_they_stay(store, monkeypatch):
    asked = []
    monkeypatch.setattr(NeighborLoader, "is_settled", property(lambda loader: len(asked) > 50 or asked.append(0)))
    loader = plans.make_loader(store, PlanStudy(**QUICK), Plan(), num_workers=1)
    found = trial_process.measure(loader, 1e-6, None)
    assert len(asked) == 51
    assert found["batches"] == trial_process.LEAST_BATCHES + 1, "those before do not count"


def test_settings_come_back_from_plain_data():
    settings = PlanStudy(num_neighbors=(4, 3), recipes=("uva",), host_memory="2GiB")
    assert plans.settings_of(json.loads(json.dumps(settings.as_dict()))) == settings
    assert repr(settings) == "PlanStudy(num_neighbors=(4, 3), host_memory='2GiB', recipes=('uva',))"


def test_plans_by_changes():
    assert plans.plan_of({"recipe": "gnnlab"}) == RECIPES["gnnlab"]
    assert plans.plan_of({"features": "disk", "policy": "presample", "host_memory": "2GiB"}) == Plan(
        features="disk", policy="presample", host_memory="2GiB"
    )


def test_settings_that_cannot_be():
    for settings, message in (
        ({"recipes": ("uva", "arc")}, "'arc'"), ({"seconds": 0.0}, "above 0"), ({"num_workers": 0}, "at least 1"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            PlanStudy(**settings)


def test_reading_a_store_once_touches_what_training_reads(store, monkeypatch):
    seen = []
    progress = type("Seen", (), {"begin": lambda *_: None, "end": lambda *_: None, "advance": lambda _, n: seen.append(n)})()
    plans._read_once(Store(store.path), PlanStudy(), progress)
    assert len(seen) == 3, "features, pointers and neighbours of one type each"


def test_labels_of_edges_are_read_too(held_out):
    store = held_out["plain"]
    of_links, of_labels = (plans.bytes_read(store, PlanStudy(edge_label=label)) for label in (None, "stars"))
    assert of_labels - of_links == store.edge_field("stars").nbytes


def test_a_training_by_the_plan_that_is_fastest(result, store, tmp_path, monkeypatch, capfd):
    """It is told what the training is, and the run goes on by what it chose."""
    told = []

    def study(path, settings, **_):
        told.append((str(path), settings))
        trials = [trial(50.0, recipe="uva"), trial(90.0, host_memory="4GiB", policy="presample", threads=3)]
        shown = {name: result["trials"][0][name] for name in result["trials"][0].keys() - trials[0].keys()}
        trials = [{**shown, **one} for one in trials]
        return {**result, "trials": trials, "chosen": 1, "again": trials[1], "error": 0.0}

    monkeypatch.setattr("penstock.study.study_plans", study)
    given = [
        "--num-neighbors",
        "4,3",
        "--batch-size",
        "50",
        "--host-memory",
        "4GiB",
        "--spool",
        "64MiB",
        "--seed",
        "7",
        "--order",
        "sequential",
    ]
    command = ["train", str(store.path), *given, "--recipe", "auto", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert run(command) == 0
    assert "Use --host-memory 4GiB --policy presample, 3 threads: 90 seeds/s." in capfd.readouterr().err
    [(path, settings)] = told
    assert path == str(store.path)
    wanted = {
        "num_neighbors": (4, 3),
        "batch_size": 50,
        "host_memory": "4GiB",
        "spool": "64MiB",
        "seed": 7,
        "order": "sequential",
        "num_workers": None,
    }
    assert settings == PlanStudy(**wanted, seed_type="node")
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {name: saved[name] for name in ("recipe", "host_memory", "policy", "num_workers", "order")} == {
        "recipe": None, "host_memory": "4GiB", "policy": "presample", "num_workers": 3, "order": "sequential",
    }  # fmt: skip
    assert saved["spool"] is None, "the plan that was fastest has none"
    assert run(command) == 2, "the run is there"
    assert run([*command, "--resume"]) == 2
    assert len(told) == 1
    assert "is for new runs" in capfd.readouterr().err


def test_a_training_tells_the_study_all_it_has_to_know(store, tmp_path, monkeypatch, capfd):
    told = []

    def study(path, settings, **_):
        told.append(settings)
        raise UsageError("that is enough")

    monkeypatch.setattr("penstock.study.study_plans", study)
    monkeypatch.setattr("penstock.train.run.refuse_new", lambda config, out: "paper")
    given = ["--weight", "w", "--shared-draws", "2", "--layer-wise", "--split", "second", "--device", "cuda:1", "--num-workers", "3"]
    given += ["--edge-label", "stars", "--num-negatives", "4"]
    assert run(["train", str(store.path), "--recipe", "auto", "--out", str(tmp_path / "run"), *given]) == 2
    edges = dict(edge_label="stars", num_negatives=4)
    assert told == [
        PlanStudy(weight="w", shared_draws=2, layer_wise=True, split="second", seed_type="paper", device="cuda:1", num_workers=3, **edges)
    ]


def in_this_process(store, settings, changes, num_workers, *, epoch, **_):
    """A trial, without a process of its own, which takes seconds to start."""
    loader = plans.make_loader(store, settings, plans.plan_of(changes), num_workers, epoch)
    return {"ready_s": 0.0, **trial_process.measure(loader, 1e-3, None)}


@pytest.mark.parametrize(
    ("name", "options", "seeds"),
    [
        ("plain", (), "links (node,to,node)"),
        ("plain", ("--edge-label", "stars"), "edges (node,to,node)"),
        ("typed", ("--num-negatives", "2"), "links (author,writes,paper)"),
    ],
    ids=["links", "labels", "typed"],
)
def test_edges_are_learnt_by_the_plan_that_is_fastest(name, options, seeds, held_out, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(plans, "_try", in_this_process)
    sizes = ("--num-neighbors", "3,2", "--batch-size", "128", "--hidden", "8", "--epochs", "1", "--num-workers", "1")
    command = ["train", str(held_out[name].path), *sizes, *options, "--recipe", "auto", "--out", str(tmp_path / "run")]
    assert run(command) == 0
    (out, said), unit = capfd.readouterr(), f" {seeds.split()[0]}/s"
    assert f"batches of 128 {seeds}, " in said
    assert said.count(unit) > 4, "of the trials, and of the epoch"
    assert f"{unit}, peak memory" in out
    assert " seeds/s" not in said + out
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["recipe"] in plans.ON_CPU
    assert f"Use --recipe {saved['recipe']}, 1 thread: " in said


@pytest.mark.parametrize("plan", [Plan(host_memory="2GiB"), *(RECIPES[name] for name in ("ginex", "bgl", "gnnlab"))], ids=str)
def test_plans_that_look_at_batches_first_are_tried_with_edges(plan, held_out):
    """What is hot, what a batch takes and which are near is found out by seeds that are edges, too."""
    loader = plans.make_loader(held_out["typed"], PlanStudy(**QUICK), plan, num_workers=1)
    assert trial_process.measure(loader, 1e-3, None)["seeds_per_s"] > 0


def test_edges_of_a_type_are_tried_before_any_are_held_out(held_out, capfd):
    """And after: by default they are those."""
    quick = ("--num-neighbors", "3,2", "--batch-size", "64", "--seconds", "0.05", "--recipes", "mmap", "--num-workers", "1")
    assert run(["plan", str(held_out["whole-typed"].path), "--seed-type", "author, writes,paper", *quick]) == 0
    *table, hint, loader = capfd.readouterr().out.splitlines()
    assert "batches of 64 links (author,writes,paper), " in table[0]
    assert " links/s " in table[2]
    assert hint.endswith(f"penstock hold-out {held_out['whole-typed'].path} DEST --edge-type author,writes,paper")
    assert loader == "LinkNeighborLoader(..., plan='mmap', num_workers=1)"
    assert plans.choose_type(held_out["typed"], PlanStudy()) == WRITES
    assert plans.choose_type(held_out["typed"], PlanStudy(seed_type="paper")) == "paper"


def test_what_learns_held_out_edges_is_printed(result):
    of_edges = {**result, "seeds": "links", "seed_type": "a,b,c", "is_learnt": True}
    assert "penstock train" in as_text(of_edges).splitlines()[-2]
    assert "penstock hold-out" in as_text({**of_edges, "is_learnt": False}).splitlines()[-2]
