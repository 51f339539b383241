"""Training on a device: in the interpreter the same weights as on the CPU, and what only a device needs, as far as a CPU can say.

`TRITON_INTERPRET=0 pytest -m gpu` runs the first of them on a device.
"""

import json
import re

import pytest
import torch

from penstock.cli import run as command
from penstock.feed import Layer
from penstock.kernels import _triton
from penstock.report.live import introduction
from penstock.store import hold_out, ingest
from penstock.train import DivergedError, EpochRecord, TrainConfig, checkpoint, convs, train
from penstock.train import run as running
from penstock.train.ranks import STOP, Ranks
from tests.train.stores import make_bare_store, make_data, make_store, make_typed_store, make_weighted_store

QUICK = dict(num_neighbors=(4, 3), batch_size=100, hidden=8, epochs=2, num_workers=2, lr=0.01, dropout=0.1, torch_threads=1)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder, makers = tmp_path_factory.mktemp("data"), {"plain": make_store, "typed": make_typed_store, "bare": make_bare_store}
    found = {kind: str(make(folder / kind).path) for kind, make in makers.items()}
    hold_out(found["plain"], folder / "links")
    hold_out(found["typed"], folder / "typed-links", edge_type=("author", "writes", "paper"), reverse="paper,by,author")
    hold_out(make_weighted_store(folder / "weighted"), folder / "labelled")
    return {**found, **{name: str(folder / name) for name in ("links", "typed-links", "labelled")}}


def run(folder, store, *, resume=False, **options):
    return train(TrainConfig(store=store, **{**QUICK, **options}), folder, resume=resume)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("plain", dict(model="sage")),
        ("plain", dict(model="gcn", recipe="pagraph")),
        ("typed", dict(model="rgcn", device_policy="fifo", device_cache="20%", features="disk")),
        ("bare", dict(model="gcn", recipe="ducati", cache="40%")),
        ("plain", dict(model="gin", evaluation="sampled", device_topology="pinned")),
        ("links", dict(model="gcn", num_negatives=2, metric="auc", batches_per_epoch=3)),
        ("typed-links", dict(evaluation="sampled", recipe="gnnlab", eval_negatives=5, batches_per_epoch=2)),
        ("labelled", dict(edge_label="w", metric="rmse", batches_per_epoch=3)),
    ],
    ids=["sage", "gcn, rows kept", "rgcn, over a disk", "no features", "gin, sampled evaluation", "links", "links of two types", "edges"],
)
def test_it_learns_what_the_cpu_learns(kind, options, device, stores, tmp_path):
    options |= dict(dropout=0.0)  # a GPU draws other random numbers; rounding remains
    ours = run(tmp_path / "device", stores[kind], device=device, **options)
    others = {name: value for name, value in options.items() if "device" not in name}
    theirs = run(tmp_path / "cpu", stores[kind], **others)
    assert ours.description["sampling"].startswith(f"by {_triton.tensor_device(device)}")
    assert "samples are drawn by" in introduction(ours.description, 2)
    assert ours.val == pytest.approx(theirs.val, abs=0.1)
    if _triton.is_interpreted():
        assert ours.weights_digest == theirs.weights_digest


def test_what_steps_came_to_is_counted_late_and_whole(device, stores, tmp_path):
    ours, theirs = (run(tmp_path / where, stores["plain"], device=where, dropout=0.0) for where in (device, "cpu"))
    for one, other in zip(ours.history, theirs.history, strict=True):
        assert (one.num_seeds, one.num_batches) == (other.num_seeds, other.num_batches)
        assert (one.loss, one.train_score) == pytest.approx((other.loss, other.train_score), abs=0.1)
        if _triton.is_interpreted():
            assert (one.loss, one.train_score) == (other.loss, other.train_score)


def test_numbers(device, tmp_path):
    store = str(ingest(make_data(labels=torch.arange(400) % 4 + 0.5), tmp_path / "store").path)
    ours, theirs = (run(tmp_path / where, store, device=where, dropout=0.0) for where in (device, "cpu"))
    assert ours.metric == "rmse"
    assert ours.test == pytest.approx(theirs.test, rel=1e-3)
    if _triton.is_interpreted():
        assert ours.weights_digest == theirs.weights_digest


def test_a_diverging_run_names_the_batch(device, tmp_path):
    data = make_data()
    data.x[:] = torch.finfo(torch.float32).max
    store, said = str(ingest(data, tmp_path / "store", memory="4GiB").path), []
    for where in (device, "cpu"):
        with pytest.raises(DivergedError) as diverged:
            run(tmp_path / where, store, device=where)
        said.append(re.sub("the loss is (nan|inf)", "", str(diverged.value)))
    assert said[0] == said[1]


def test_resume_on_a_device_and_elsewhere(device, stores, tmp_path):
    expected = run(tmp_path / "whole", stores["plain"], device=device)
    for name, first, second in (("device", device, device), ("to the cpu", device, "cpu"), ("to the device", "cpu", device)):
        run(tmp_path / name, stores["plain"], device=first, epochs=1)
        resumed = run(tmp_path / name, stores["plain"], device=second, resume=True)
        assert resumed.epochs == 2
        if _triton.is_interpreted():
            assert resumed.weights_digest == expected.weights_digest
    saved = checkpoint.load(tmp_path / "device" / running.CHECKPOINT)
    assert {tensor.device.type for tensor in saved["best"]["model"].values()} == {"cpu"}


def test_the_command(device, stores, tmp_path, capfd):
    options = ["--num-neighbors", "3,2", "--batch-size", "100", "--epochs", "1", "--num-workers", "0", "--torch-threads", "1"]
    predictions = tmp_path / "classes.csv"
    where = ["--out", str(tmp_path / "run"), "--predictions", str(predictions), "--json", "--device", device]
    assert command(["train", stores["plain"], *options, *where]) == 0
    out, _ = capfd.readouterr()
    assert json.loads(out)["epochs"] == 1
    assert len(predictions.read_text().splitlines()) == 401
    report = (tmp_path / "run" / "report.html").read_text()
    assert "samples drawn by" in report
    assert "memory of the device" in report


def test_a_budget_of_memory(device, stores, tmp_path):
    options = dict(host_memory="8GiB", device_policy="presample", device_cache="10%")
    ours = run(tmp_path / "device", stores["plain"], device=device, **options)
    theirs = run(tmp_path / "cpu", stores["plain"], host_memory="8GiB")
    assert (ours.description["plan"]["recipe"], ours.description["evaluation"]) == ("ginex", "sampled")
    assert "staging" in ours.description["memory"]
    assert min(ours.history[-1].tiers[name]["num_rows"] for name in ("device cache", "host cache")) > 0
    assert "disk" in ours.history[-1].tiers  # which nobody asks any more: all rows fit, and Belady begins with them
    if _triton.is_interpreted():
        assert ours.weights_digest == theirs.weights_digest


def test_two_levels_of_caches_are_shown(device, stores, tmp_path, capfd):
    options = ["--num-neighbors", "3,2", "--batch-size", "50", "--epochs", "2", "--torch-threads", "1", "--out", str(tmp_path / "run")]
    levels = ["--policy", "fifo", "--cache", "60%", "--device-policy", "lru", "--device-cache", "20%", "--features", "disk"]
    assert command(["train", stores["plain"], *options, *levels, "--device", device, "--device-topology", "host"]) == 0
    _, lines = capfd.readouterr()
    assert re.search(r"fifo keeps 60% of the rows: [\d.]+ MiB with directory and state, lru keeps 20% of the rows on the device", lines)
    report, saved = (tmp_path / "run" / "report.html").read_text(), json.loads((tmp_path / "run" / "report.json").read_text())
    assert "lru on the device (20%), above fifo in memory (60%)" in report
    for record in saved["history"]:
        tiers = {name: counts["num_rows"] for name, counts in record["tiers"].items()}
        assert list(tiers) == ["device cache", "upload of host cache", "host cache", "disk"]
        assert tiers["upload of host cache"] == tiers["host cache"] + tiers["disk"] == record["num_nodes"] - tiers["device cache"]
        assert min(tiers.values()) > 0
    [last] = [EpochRecord(**saved["history"][-1])]
    assert last.hit_rate == pytest.approx((tiers["device cache"] + tiers["host cache"]) / last.num_nodes)


class WithoutOthers(Ranks):
    """Of two processes, whose other one says nothing."""

    def _wait(self, work):
        pass


def test_what_processes_tell_each_other_in_a_step(device):
    where = _triton.tensor_device(device)
    weights = [torch.nn.Parameter(torch.ones(3, device=where)) for _ in range(2)]
    weights[0].grad = torch.arange(3.0, device=where)
    told = WithoutOthers(0, 2).share_step(weights, torch.tensor(0.5, device=where), 4, STOP)
    assert told.tolist() == [0.5, 4.0, 1.0, 0.0]
    assert weights[0].grad.tolist() == [0.0, 1.0, 2.0]
    assert weights[1].grad is None


def test_without_a_device_it_is_one_line(stores, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command(["train", stores["plain"], "--device", "cuda", "--out", str(tmp_path / "run")]) == 2
    _, error = capfd.readouterr()
    assert error == "penstock: --device cuda needs a GPU, and torch finds none: see `penstock doctor`, or use the CPU\n"
    assert not (tmp_path / "run").exists()


def test_nothing_of_a_model_is_made_elsewhere_than_its_batch():
    """On torch's device without memory: an operand that was left on the CPU is refused there."""
    edges = torch.empty(2, 24, dtype=torch.int64, device="meta")
    layer = Layer(30, 12, torch.empty(13, dtype=torch.int64, device="meta"), edges[0], edges, None)
    for made in (
        convs.scale(layer, torch.ones(30, device="meta")),
        convs.gcn_matrix(layer, torch.ones(30, device="meta")),
        layer.adj_t(),
    ):
        assert made.device.type == "meta"
    with pytest.raises(RuntimeError, match="not on the expected device"):
        convs.gcn_matrix(layer, torch.ones(30))
