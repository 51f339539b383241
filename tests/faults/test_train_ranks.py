"""Trainings by several processes: steps over the batches of all, the same over a store and over its parts, after any stop."""

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
import torch
from tests.faults.ranked import FULL, LINKED, SETTINGS
from tests.faults.starting import start
from tests.feed.inputs import homogeneous_data
from tests.partitions import cut, on_all
from tests.refusals import assert_in_table, refused
from tests.train.stores import make_bare_store, make_labelled_store, make_store, make_typed_store, make_weighted_store

import penstock
from penstock.errors import StateError, UsageError
from penstock.exchange import aside
from penstock.feed import NeighborLoader
from penstock.feed.inputs.parts import PartsInput
from penstock.order import RandomOrder
from penstock.records import EDGE, NODE
from penstock.report.page import OF_THE_FIRST
from penstock.store import Store
from penstock.store.process_memory import usable_cores
from penstock.train import Observer, TrainConfig, checkpoint, infer_pairs, infer_run, ranks, train
from penstock.train.data import read_training_data
from penstock.train.learner import Learner
from penstock.train.parts import _Features
from penstock.train.ranks import Ranks
from penstock.train.rows import LearntRows
from penstock.train.run import _check_alike, _Run

NUM_RANKS = 2
STORE_OF = {"bare": "bare", "bare_parts": "bare", "typed": "typed", "typed_parts": "typed", "aggregated": "aggregated"}
"""Of runs over all neighbours, the store that they are over, or their parts are of."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store and a typed one, and parts of both."""
    path = tmp_path_factory.mktemp("runs")
    cut(make_store(path / "store"), path / "parts", NUM_RANKS)
    cut(make_typed_store(path / "typed"), path / "typed-parts", NUM_RANKS)
    cut(make_weighted_store(path / "weighted"), path / "weighted-parts", NUM_RANKS)
    cut(make_bare_store(path / "bare"), path / "bare-parts", NUM_RANKS)
    penstock.hold_out(path / "bare", path / "links")
    cut(Store.open(path / "links"), path / "links-parts", NUM_RANKS)
    penstock.hold_out(make_labelled_store(path / "labelled"), path / "labelled-links")
    cut(Store.open(path / "labelled-links"), path / "labelled-links-parts", NUM_RANKS)
    penstock.hold_out(path / "typed", path / "typed-links", edge_type=LINKED, reverse=("paper", "by", "author"))
    cut(Store.open(path / "typed-links"), path / "typed-links-parts", NUM_RANKS)
    penstock.aggregate(path / "store", path / "aggregated")
    cut(Store.open(path / "aggregated"), path / "aggregated-parts", NUM_RANKS)
    return path


def shared(one):
    """What a process says, but for its own messages and random numbers."""
    return {**one, "notes": [], "random": 0}


def start_all(module, *arguments, num_ranks=NUM_RANKS, cwd=None):
    """Start the processes; of each its output, its errors and its exit code."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(num_ranks)}
    processes = [start(module, *arguments, environment=known | {"RANK": str(rank)}, cwd=cwd) for rank in range(num_ranks)]
    try:
        return [(*process.communicate(timeout=240), process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()


def start_and_ask(folder, *whats, num_ranks=NUM_RANKS):
    """What each of the processes said of each of the things it did."""
    ended = start_all("tests.faults.ranked", folder, *whats, num_ranks=num_ranks)
    assert [code for *_, code in ended] == [0] * num_ranks, ended
    assert not any("warning" in errors.lower() for _, errors, _ in ended), ended
    said = [[json.loads(line) for line in output.splitlines() if line.startswith("{")] for output, *_ in ended]
    return {what: [lines[number] for lines in said] for number, what in enumerate(whats)}


@pytest.fixture(scope="module")
def killed(folder):
    """Of each process, of which one was killed in a training: what it printed, its errors and its exit code."""
    return start_all("tests.faults.ranked", folder, "killed")


@pytest.fixture(scope="module")
def said(folder, killed):
    whats = (
        "whole", "plain", "bare", "gcn", "typed", "few", "parts", "typed_parts", "split", "interrupted", "resumed", "ahead",
        "interrupted_ahead", "resumed_ahead", "predicted", "full", "full_again", "lost", "weighted", "weighted_parts", "weightless",
        "links", "links_in_parts", "edge_labels", "short",
        "bare_parts", "bare_whole", "bare_interrupted", "bare_resumed", "bare_swapped", "ahead_bare",
        "fewer", "after_the_kill", "unlike", "elsewhere", "other_order", "apart", "interrupted_late", "resumed_late",
        "another_has_it",
    )  # fmt: skip
    return start_and_ask(folder, *whats)


def test_all_end_with_the_same(said):
    for what in ("whole", "plain", "bare", "gcn", "typed", "few", "parts", "typed_parts", "split"):
        first, second = map(shared, said[what])
        assert first == second, what
        assert first["evaluation"] == "sampled"
        assert first["val"] > 0


@pytest.mark.parametrize(
    ("name", "store", "settings"),
    [
        ("plain", "store", {}),
        ("bare", "bare", {"num_neighbors": (2, 2), "weight_decay": 0.01}),
        ("typed", "typed", {"weight_decay": 0.1}),  # some weights have no gradient, and must not decay
    ],
)
def test_a_step_is_one_over_the_batches_of_all(name, store, settings, folder, said):
    """By hand, in one process: gradients of two batches, weighted by their seeds, and the last step over one."""
    config = TrainConfig(store=str(folder / store), **SETTINGS | {"dropout": 0.0} | settings)
    data = read_training_data(Store.open(config.store), config)
    learner = Learner(config, data, torch.device("cpu"))
    order = RandomOrder(data.parts["train"].size, config.seed)
    seeds = data.target, data.parts["train"]
    batches = list(NeighborLoader(data.source(), list(config.num_neighbors), seeds, batch_size=32, seed=0, order=order))
    assert len(batches) % NUM_RANKS == 1
    sizes = [batch.batch_size if store != "typed" else batch[data.target].batch_size for batch in batches]
    losses, tables = [], [each for each in learner.model.modules() if isinstance(each, LearntRows)]
    for first in range(0, len(batches), NUM_RANKS):
        step = list(zip(batches, sizes, strict=True))[first : first + NUM_RANKS]
        total = sum(size for _, size in step)
        sums = [torch.zeros_like(table.weight) for table in tables]
        are_read = [torch.zeros(len(each), dtype=torch.bool) for each in sums]
        for batch, size in step:
            loss = learner.loss(batch)[0]
            (loss * size / total).backward()
            losses += [loss.item()] * size
            for table, its_sums, is_read in zip(tables, sums, are_read, strict=True):
                ids, rows = table.take_gradient()
                its_sums[ids] += rows
                is_read[ids] = True
        learner.optimizer.step()
        learner.optimizer.zero_grad()
        learner.row_optimizer.step([(is_read.nonzero()[:, 0], its[is_read]) for its, is_read in zip(sums, are_read, strict=True)])
    one = said[name][0]
    assert one["losses"] == pytest.approx([np.mean(losses)], rel=1e-5)
    assert one["seeds"] == [data.parts["train"].size]
    assert one["steps"] == -(-len(batches) // NUM_RANKS)
    weights = checkpoint.load(folder / ("plain" if name == "plain" else f"{name}-run") / "checkpoint.pt")["model"]
    for key, expected in learner.weights().items():
        assert torch.allclose(weights[key], expected, rtol=1e-3, atol=1e-5), key


def test_each_has_a_dropout_of_its_own(said):
    assert len({one["random"] for one in said["whole"]}) == NUM_RANKS


def test_parts_are_trained_on_as_the_store_is(said):
    assert said["parts"][0]["digest"] == said["whole"][0]["digest"]
    assert said["typed_parts"][0]["digest"] == said["typed"][0]["digest"]
    assert said["bare_swapped"][0]["digest"] == said["bare"][0]["digest"]
    assert [one["parts"] for one in said["bare_swapped"]] == [[1], [0]]
    assert [said["bare_parts"][0][what] == said["bare"][0][what] for what in ("digest", "val", "test", "losses")] == [True] * 4
    assert said["weighted_parts"][0]["digest"] == said["weighted"][0]["digest"]
    assert said["split"][0]["digest"] != said["whole"][0]["digest"]


def test_a_run_over_parts_is_inferred_over_their_store(folder, said):
    rows = [
        np.load(infer_run(folder / run, folder / f"{run}.npy", store=folder / "store")["out"]) for run in ("whole", "parts-run")
    ]  # fmt: skip
    np.testing.assert_array_equal(*rows)


def test_all_stop_at_the_same_step_and_go_on_as_if_they_had_not(said):
    for one in said["interrupted"]:
        assert (one["error"], one["steps"]) == ("KeyboardInterrupt", 3)  # the others hear of it in the next step
    assert {one["digest"] for one in said["resumed"]} == {said["whole"][0]["digest"]}
    for one in said["interrupted_late"]:
        assert (one["error"], one["steps"]) == ("KeyboardInterrupt", 4)
    assert {one["digest"] for one in said["resumed_late"]} == {said["whole"][0]["digest"]}


def test_learnt_rows_go_on_wherever_they_are(said, folder):
    """Shares are whole in the checkpoint; so one process goes on with a run that is done, and all with one that is not."""
    for one in said["bare_interrupted"]:
        assert (one["error"], one["steps"]) == ("KeyboardInterrupt", 7)
    assert {one["digest"] for one in said["bare_resumed"]} == {one["digest"] for one in said["bare_whole"]}
    assert len({one["digest"] for one in said["ahead_bare"]}) == 1
    assert said["ahead_bare"][0]["losses"] == pytest.approx(said["bare_whole"][0]["losses"][:1], rel=1e-5)
    state = checkpoint.load(folder / "bare-interrupted" / "checkpoint.pt")
    assert {len(each) for each in (state["model"]["rows.weight"], state["best"]["model"]["rows.weight"])} == {400}
    config = TrainConfig(store=str(folder / "bare"), **SETTINGS | {"dropout": 0.0, "num_neighbors": (2, 2), "weight_decay": 0.01})
    result = train(config, folder / "bare-interrupted", resume=True)
    assert result.description["model"] == said["bare_whole"][0]["model"]
    assert (result.weights_digest, result.val) == (said["bare_whole"][0]["digest"], said["bare_whole"][0]["val"])


def test_all_stop_at_the_same_step_where_steps_are_looked_at_late(said):
    first, second = said["interrupted_ahead"]
    assert first == second
    assert first["error"] == "KeyboardInterrupt"
    assert {one["digest"] for one in said["resumed_ahead"]} == {said["ahead"][0]["digest"]}
    assert said["ahead"][0]["losses"] == pytest.approx(said["whole"][0]["losses"][:1], rel=1e-5)
    assert said["resumed_ahead"][0]["losses"] == pytest.approx(said["ahead"][0]["losses"], rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(torch.version.cuda is None, reason="processes of their own need a GPU")
def test_on_a_device(folder, monkeypatch):
    """All on the same where there are fewer of them than processes."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    said = start_and_ask(folder, "ahead", "interrupted_ahead", "resumed_ahead", "ahead_bare")
    for first, second in said.values():
        assert shared(second) == shared(first)
    assert said["interrupted_ahead"][0]["error"] == "KeyboardInterrupt"
    assert said["resumed_ahead"][0]["losses"] == pytest.approx(said["ahead"][0]["losses"], rel=1e-3)


def test_one_that_is_killed(killed, said):
    """The other says what to do, and what was saved goes on."""
    assert [code for *_, code in killed] == [0, -signal.SIGKILL]
    one = json.loads(killed[0][0])
    assert (one["error"], one["steps"]) == ("PipelineError", 6)
    assert_in_table(one["message"])
    after = said["after_the_kill"][0]
    assert after["digest"] == said["whole"][0]["digest"]
    assert after["notes"][-1] == "resumed at epoch 2, batch 1", "each step was saved"


def test_not_by_another_number_of_processes(folder, said):
    config = TrainConfig(store=str(folder / "store"), **SETTINGS)
    refused(StateError, train, config, folder / "stopped", resume=True)


def test_a_checkpoint_that_another_has(folder, said):
    """It would be started from the beginning."""
    first, second = said["another_has_it"]
    assert first["error"] == "StateError"
    assert_in_table(first["message"])
    assert second["message"] == "process 0 of 2 failed (StateError): see what it says"
    assert not (folder / "nothing").exists()


def test_predictions_are_those_of_one_process(folder, said):
    """A run that is done may be gone on with by any number of processes: nothing more is trained."""
    assert all(one["digest"] == said["whole"][0]["digest"] for one in said["predicted"])
    assert any("predicting the label of every node" in note for note in said["predicted"][0]["notes"])
    config = TrainConfig(store=str(folder / "store"), **SETTINGS | {"evaluation": "sampled"})
    with pytest.raises(StateError, match="evaluation"):
        train(config, folder / "whole", resume=True)
    result = train(TrainConfig(store=str(folder / "store"), **SETTINGS), folder / "whole", resume=True, predictions=folder / "alone.npy")
    assert (result.val, result.test) == (said["whole"][0]["val"], said["whole"][0]["test"])
    together, alone = (np.load(folder / name) for name in ("together.npy", "alone.npy"))  # over sampled, and over all neighbours
    assert together.shape == alone.shape
    assert (together == alone).mean() > 0.8


def test_links(said, folder):
    """All have the same scores, which are those of the rows that one process finds."""
    first, second = said["links"]
    for name in ("sampled", "full"):
        assert shared(first[name]) == shared(second[name])
        assert sum(first[name]["seeds"]) == 2 * Store.open(folder / "links").num_edges[EDGE]
    assert first["full"]["digest"] == first["sampled"]["digest"]
    assert first["full"]["test"] == pytest.approx(first["sampled"]["test"], abs=1e-3)
    made = infer_run(folder / "links-full", folder / "rows-of-links.npy")
    data = read_training_data(Store.open(folder / "links"), TrainConfig(store=str(folder / "links"), **SETTINGS))
    rows = {NODE: (np.arange(400), np.load(made["out"]))}
    assert data.edges.score(None, data.graph, "test", rows, data.task, Ranks()) == pytest.approx(first["full"]["test"], abs=1e-3)


def test_edge_labels(said, folder):
    """All have the same scores, which are those of the pairs that one process is asked for."""
    first, second = said["edge_labels"]
    store = Store.open(folder / "labelled-links")
    for name in ("sampled", "full"):
        assert shared(first[name]) == shared(second[name])
        assert first[name]["seeds"] == [store.num_edges[EDGE]] * 2
    for name in ("full", "sampled", "kind", "tags", "late"):
        for key in ("digest", "losses", "seeds", "steps"):
            assert first[f"{name} parts"][key] == second[f"{name} parts"][key] == first[name][key], name
        assert (first[f"{name} parts"]["val"], first[f"{name} parts"]["test"]) == (first[name]["val"], first[name]["test"])
    assert first["full"]["digest"] == first["sampled"]["digest"]
    assert first["full"]["test"] == pytest.approx(first["sampled"]["test"], rel=1e-3)
    found = np.load(infer_pairs(folder / "labels-full", "test")["out"])[:, 0]
    error = np.sqrt(np.mean(np.square(found - store.link_field("weight", "test"))))
    assert error == pytest.approx(first["full"]["test"], rel=1e-3)
    of_other = "failed (InputError): see what it says"
    for name, message in (("some", "has no label: leave such edges out"), ("halves", "must be classes, whole numbers from 0")):
        messages = sorted((one[name]["message"] for one in (first, second)), key=lambda said: of_other in said)
        assert message in messages[0]
        assert of_other in messages[1]
    assert first["none"]["message"] == second["none"]["message"]
    assert "have no field 'nothing' to learn" in first["none"]["message"]
    assert (first["none"]["is_said"], second["none"]["is_said"]) == (False, True)


def test_short_epochs(said):
    first, second = said["short"]
    for store in ("store", "parts"):
        assert shared(first[store]) == shared(second[store])
        assert first[store]["seeds"] == [2 * NUM_RANKS * SETTINGS["batch_size"]] * 2


def test_links_over_parts(said, folder):
    """Steps and scores are those over the store that was cut; the links of the typed one are found without being named."""
    first, second = said["links_in_parts"]
    for name in set(first) - {"unknown"}:
        assert shared(first[name]) == shared(second[name]), name
    of_store = said["links"][0]["full"]
    for key in ("digest", "losses", "seeds", "steps"):
        assert first["bare"][key] == of_store[key]
        assert first["typed"][key] == first["whole"][key] == first["named"][key] == first["sampled"][key]
    for name, expected in (("bare", of_store), ("typed", first["whole"]), ("named", first["whole"])):
        assert (first[name]["val"], first[name]["test"]) == (expected["val"], expected["test"])
    assert first["sampled"]["test"] == pytest.approx(first["whole"]["test"], abs=0.1)
    assert first["split"]["seeds"] == first["whole"]["seeds"] == [Store.open(folder / "typed-links").num_edges[LINKED]]
    assert first["split"]["digest"] != first["whole"]["digest"]
    assert first["nodes"]["seeds"] != first["whole"]["seeds"]
    assert "'a,b,c' is not a node type" in first["unknown"]["message"]
    assert "links were held out of, which are author,writes,paper" in first["unknown"]["message"]


@pytest.mark.parametrize("name", ["full", *FULL])
def test_together_over_all_neighbours(name, folder, said):
    """Each node's row is computed by one of them, from rows of all; as `penstock infer` has them."""
    first, second = said["full"] if name == "full" else (each[name] for each in said["full_again"])
    assert shared(first) == shared(second)
    assert "error" not in first, first
    assert first["evaluation"] == "full"
    run, store = folder / ("full" if name == "full" else f"full-{name}"), STORE_OF.get(name, "store")
    infer_run(run, folder / f"{run.name}-outputs.npy", store=folder / store)
    rows, classes = np.load(folder / f"{run.name}-outputs.npy"), np.load(folder / f"{run.name}.npy")
    two = np.sort(rows, axis=1)[:, -2:]
    is_clear = two[:, 1] - two[:, 0] > 1e-4
    assert is_clear.mean() > 0.95
    assert (rows.argmax(1) == classes)[is_clear].all()


def test_what_is_refused_is_said_by_all(said):
    first, second = said["weightless"]
    assert first["message"] == second["message"]
    assert (first["is_said"], second["is_said"]) == (False, True)
    assert_in_table(first["message"])
    for what, error, message in (
        ("lost", "NotAStoreError", "nowhere"),
        ("unlike", "UsageError", "lr=0.02, and process 0 has lr=0.01: give all processes the same"),
        ("other_order", "UsageError", "order='proximity', and process 0 has order='random': give"),
        ("apart", "NotSupportedError", "rows and neighbour lists of a partition are with its processes"),
        ("elsewhere", "UsageError", "and the store of process 0 has"),
    ):
        first, second = said[what]
        assert first["message"] == f"process 1 of 2 failed ({error}): see what it says"
        assert second["error"] == error
        assert message in second["message"]
        assert_in_table(first["message"])


def test_gradients_that_would_not_meet(folder, monkeypatch):
    """By NCCL where each process has a GPU of its own, by gloo where they share one or compute on the CPU."""
    groups = (["GPU-1 a:1", "GPU-2 a:2"], ["GPU-1 a:1", "GPU-1 b:1"], ["MIG-1 a:1", "MIG-2 a:1"], ["GPU-1 a:1", ""], ["", ""])
    assert [ranks.backend_of(devices) for devices in groups] == ["cpu:gloo,cuda:nccl", *["gloo"] * 4]
    here = Ranks(1, 2)
    found = {}
    for backends in ("cpu:gloo,cuda:nccl", "cpu:gloo,cuda:gloo,xpu:gloo", "cuda:nccl"):
        monkeypatch.setattr(torch.distributed, "get_backend_config", lambda group, backends=backends: backends)
        found[backends] = [here.carrier(device) for device in ("cpu", "cuda", "cuda:1")]
    assert [*found.values()] == [["gloo", "nccl", "nccl"], ["gloo"] * 3, [None, "nccl", "nccl"]]
    assert Ranks().carrier("cuda") is None
    configs = [TrainConfig(store=str(folder / "store"), **SETTINGS, device=device) for device in ("cpu", "cuda", "cuda:1")]
    of_cpu, of_gpu, of_another = (("digest", *each) for each in zip(configs, ("gloo", "nccl", "nccl"), strict=True))
    _check_alike(of_another, of_gpu)
    _check_alike(of_cpu, ("digest", configs[1], "gloo"))
    assert "gradients go by nccl here, and by gloo in process 0" in refused(
        UsageError, _check_alike, of_gpu, ("digest", configs[1], "gloo")
    )
    assert "gradients go by gloo here, and by nccl in process 0" in refused(UsageError, _check_alike, of_cpu, of_gpu)


def test_the_command(folder, tmp_path):
    """One of them speaks, chooses the folder of the run, and says why it is refused."""
    options = ["--num-neighbors", "4,3", "--batch-size", "32", "--epochs", "1", "--hidden", "16"]
    (output, errors, code), *others = start_all("penstock", "train", str(folder / "parts"), *options, cwd=tmp_path)
    assert code == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["parts-1"]
    assert "test accuracy" in output
    assert "batches of 32 by each of 2 processes" in errors
    assert "epoch   1" in errors
    assert OF_THE_FIRST in (tmp_path / "runs" / "parts-1" / "report.html").read_text()
    assert others == [("", "", 0)]
    again = ["--resume", "--epochs", "2", "--predictions", "classes.csv"]
    (_, errors, code), *others = start_all("penstock", "train", str(folder / "parts"), *again, cwd=tmp_path)
    assert code == 0
    assert "classes.csv has numbers of nodes" in errors
    assert (tmp_path / "classes.csv").read_text().startswith("node,class\n0,")
    assert "resumed at the end, after 2" not in errors
    assert "epoch   2" in errors
    assert others == [("", "", 0)]
    assert json.loads((tmp_path / "runs" / "parts-1" / "config.json").read_text())["epochs"] == 2
    (_, errors, code), *others = start_all("penstock", "train", str(folder / "parts"), "--epochs", "0", cwd=tmp_path)
    assert errors == "penstock: --epochs must be at least 1, got 0\n"
    assert code == 2
    assert others == [("", "", 2)]


def test_a_port_that_is_taken(folder):
    with socket.create_server(("127.0.0.1", 0)) as door:
        known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(door.getsockname()[1]), "WORLD_SIZE": "2", "RANK": "0"}
        process = start("penstock", "train", folder / "store", environment=known)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 2
    (line,) = (line for line in errors.splitlines() if line.startswith("penstock: "))
    assert_in_table(line.removeprefix("penstock: "))


def test_others_that_do_not_come(folder):
    """Who waits for them can be told to end."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": "0"}
    waiting = start("penstock", "train", folder / "store", environment=known)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and waiting.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break  # it listens
            time.sleep(0.1)
        waiting.send_signal(signal.SIGTERM)
        _, errors = waiting.communicate(timeout=20)
    finally:
        waiting.kill()
    assert waiting.returncode == 130
    assert "penstock: interrupted" in errors


def test_one_that_stands_still(folder, tmp_path):
    """Who waits for it can be told to end: once, as between steps; or twice, in the middle of one."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(door.getsockname()[1]), "WORLD_SIZE": "2"}
    command = ["penstock", "train", folder / "store", "--out", tmp_path / "run", "--epochs", "100000"]
    waiting, still = (start(*command, environment=known | {"RANK": rank}) for rank in "01")
    try:
        until = time.monotonic() + 90
        while not (tmp_path / "run" / "checkpoint.pt").exists():
            assert time.monotonic() < until
            time.sleep(0.1)
        still.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        waiting.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            waiting.wait(5.0)
        if waiting.poll() is None:
            waiting.send_signal(signal.SIGTERM)
        _, errors = waiting.communicate(timeout=20)
    finally:
        still.kill()
        waiting.kill()
    assert waiting.returncode in (130, -signal.SIGTERM)  # the second may come as Python ends
    assert "penstock: interrupted" in errors


RESTARTED = """
import os, sys
from penstock.train import started_together
with started_together() as ranks:
    if ranks.number == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit(3)
    print(ranks.gather((ranks.number, os.environ["TORCHELASTIC_RESTART_COUNT"])), flush=True)
"""


@pytest.mark.deep
def test_a_restart_does_not_meet_the_processes_of_before(tmp_path):
    """As `torchrun --max-restarts` keeps what they wrote to its store, their addresses too."""
    (tmp_path / "restarted.py").write_text(RESTARTED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.run([*command, "--max-restarts", "1", "restarted.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("[(0, '1'), (1, '1')]") == 2


def test_who_waits_says_so(monkeypatch, caplog):
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7", "WORLD_SIZE": "2", "RANK": "1"}
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "_SAY_S", 0.0)
    monkeypatch.setattr(aside, "_LOOK_S", 0.01)
    store = torch.distributed.HashStore()
    monkeypatch.setattr(torch.distributed, "rendezvous", lambda *_, **__: iter([(store, 1, 2)]))
    monkeypatch.setattr(ranks, "meet", lambda *_: ("first", ["", ""]))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: time.sleep(0.2))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    monkeypatch.setattr(ranks, "aside_of", lambda _: aside.Aside())
    with ranks.started_together():
        pass
    assert "process 1 of 2 waits for the others at 127.0.0.1:7" in caplog.text


def test_who_waits_in_a_step_says_so(monkeypatch, caplog):
    """Twice as long each time; and not of short waits, however many."""
    monkeypatch.setattr(aside, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(aside, "_LOOK_S", 0.01)
    waits = aside.Aside()
    for _ in range(20):
        waits.do(lambda: time.sleep(0.03))
    assert not caplog.records
    for _ in range(2):
        waits.do(lambda: time.sleep(1.0))
    said = [record.args[0] for record in caplog.records]
    assert 2 <= len(said) <= 6
    assert all(one >= 0.2 for one in said)


def test_whoever_has_which_part(folder):
    """Gradients of three are summed in the order in which they would be over the store."""
    cut(Store.open(folder / "store"), folder / "thirds", 3)
    cut(Store.open(folder / "bare"), folder / "bare-thirds", 3)
    for said in start_and_ask(folder, "rotated", num_ranks=3)["rotated"]:
        assert said["parts"]["digest"] == said["store"]["digest"]
        assert said["bare parts"]["digest"] == said["bare"]["digest"]


@pytest.mark.deep
def test_several_for_each_part(folder):
    """Then, too, the weights are those over the store."""
    said = start_and_ask(folder, "whole", "parts", "interrupted", "resumed", "bare", "bare_parts", num_ranks=4)
    for one, other in (("whole", "parts"), ("whole", "resumed"), ("bare", "bare_parts")):
        assert len({each["digest"] for each in (*said[one], *said[other])}) == 1
    assert {one["steps"] for one in said["interrupted"]} == {3 - 1}


def test_each_has_its_share_of_a_machine(folder, tmp_path, monkeypatch):
    """And what the page cache has is not copied by each."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    threads, store = torch.get_num_threads(), Store.open(folder / "store")
    try:
        for ranks, share in ((Ranks(), usable_cores()), (Ranks(1, 2), max(usable_cores() // 2, 1))):
            torch.set_num_threads(usable_cores())
            config = TrainConfig(store=str(store.path), **SETTINGS | {"torch_threads": 0})
            run = _Run(config, store, tmp_path, Observer(), ranks)
            assert torch.get_num_threads() == share
            assert run.plan.huge_pages == (ranks.num_ranks == 1)
            told = _Run(TrainConfig(store=str(store.path), **SETTINGS, huge_pages=True), store, tmp_path, Observer(), ranks)
            assert told.plan.huge_pages
    finally:
        torch.set_num_threads(threads)


def test_of_edges_nothing_is_read(tmp_path):
    """Numbers and fields of theirs, which lie with several processes and no model asks for."""
    store = penstock.ingest(homogeneous_data(), tmp_path / "store")

    def look(graph):
        ours, all_of_it = _Features(graph, None), PartsInput(graph)
        return list(ours.tables()), list(all_of_it.tables()), [csc.numbers for csc in ours.graph.adjacency.values()]

    for ours, all_of_it, numbers in on_all(cut(store, tmp_path / "parts", 2), 2, look):
        assert ours == [NODE]
        assert EDGE in all_of_it
        assert numbers == [None]


def test_one_alone_needs_nobody():
    ranks = Ranks.of()
    assert (ranks.number, ranks.num_ranks, ranks.is_first) == (0, 1, True)
    assert ranks.gather(3) == [3]
    assert ranks.from_first(lambda: 4) == 4
    assert list(ranks.in_step([1, 2], 2, 2)) == [1, 2]
    assert ranks.merge([np.arange(2), np.arange(3)]).tolist() == [0, 1, 0, 1, 2]
