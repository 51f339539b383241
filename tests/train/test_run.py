"""Training runs: exact under any number of threads and after any stop, and clear where they cannot work."""

import fcntl
import json
import math
import os
import re
import signal
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import penstock
from penstock.errors import CorruptStoreError, MissingFieldError, StateError, StoreBusyError, StoreError, UsageError
from penstock.order import ORDERS
from penstock.report.live import introduction
from penstock.report.page import write_report
from penstock.store import ingest
from penstock.train import DivergedError, Observer, TrainConfig, checkpoint, train
from penstock.train.config import PLAIN_MODELS, TYPED_MODELS
from penstock.train.folder import lock_folder
from penstock.train.run import _Run
from penstock.train.task import Task
from tests.train.stores import make_bare_store, make_data, make_store, make_typed_store, multi_labels

QUICK = dict(num_neighbors=(4, 3), batch_size=32, hidden=16, epochs=3, num_workers=0, lr=0.01, dropout=0.1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(make_store(tmp_path_factory.mktemp("data") / "store").path)


@pytest.fixture(scope="module")
def typed_store(tmp_path_factory):
    return str(make_typed_store(tmp_path_factory.mktemp("data") / "typed").path)


def run(folder, store, **options):
    resume, observer = options.pop("resume", False), options.pop("observer", None)
    return train(TrainConfig(store=store, **{**QUICK, **options}), folder, resume=resume, observer=observer)


@pytest.mark.parametrize("model", PLAIN_MODELS)
def test_models_learn(model, store, tmp_path):
    result = run(tmp_path, store, model=model, epochs=15)
    assert result.metric == "accuracy"
    assert result.test > 0.55
    assert result.history[-1].loss < result.history[0].loss
    assert result.best_epoch >= 0
    assert len(result.history) == result.epochs == 15
    assert result.val == max(record.val for record in result.history)


@pytest.mark.parametrize("model", TYPED_MODELS)
def test_typed_models_learn(model, typed_store, tmp_path):
    result = run(tmp_path, typed_store, model=model, epochs=15)
    assert (result.val + result.test) / 2 > 0.43  # of three classes


@pytest.mark.parametrize("model", PLAIN_MODELS)
def test_nodes_without_features_learn_their_own(model, tmp_path):
    store = str(make_bare_store(tmp_path / "store").path)
    options = dict(model=model, epochs=15, num_neighbors=(-1, -1))
    result = run(tmp_path / "run", store, **options)
    assert result.test > 0.25  # of 400 nodes not much can be learnt
    sampled = run(tmp_path / "sampled", store, **options, evaluation="sampled", num_workers=2)
    assert (sampled.val, sampled.test, sampled.weights_digest) == (result.val, result.test, result.weights_digest)
    assert run(tmp_path / "run", store, **{**options, "epochs": 16}, resume=True).epochs == 16
    planned = run(tmp_path / "planned", store, **options, recipe="ginex", neighbor_cache="100%", cache="100%")
    assert planned.weights_digest == result.weights_digest
    words = introduction(planned.description, 15)
    assert "of the neighbour lists" in words
    assert "of the rows" not in words
    assert "together" not in words


class Notes(Observer):
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def note(self, message):
        self.said.append(message)


@pytest.mark.parametrize(("part", "labels"), [("train", 1), ("test", 1), ("test", 3)])
def test_nodes_without_a_label_are_left_out(part, labels, tmp_path):
    """Hidden labels of a test set, for instance: what is left of it is scored, and that is said."""
    notes, data = Notes(), make_data(labels=multi_labels()) if labels > 1 else make_data()
    mask = data[f"{part}_mask"]
    hidden = mask.nonzero().view(-1)[::2]
    smaller, partly = data.clone(), data.clone()
    smaller[f"{part}_mask"][hidden] = False
    expected = run(tmp_path / "smaller", str(ingest(smaller, tmp_path / "store-1").path), epochs=3)
    partly.y = partly.y.long()
    partly.y[hidden] = -1
    result = run(tmp_path / "partly", str(ingest(partly, tmp_path / "store-2").path), epochs=3, observer=notes)
    assert (result.weights_digest, result.val, result.test) == (expected.weights_digest, expected.val, expected.test)
    assert notes.said == [f"{len(hidden)} of {int(mask.sum())} {part} nodes have no label, and are left out"]


def test_a_part_without_any_label_has_no_score(tmp_path):
    data = make_data()
    data.y[data.test_mask] = -1
    assert run(tmp_path / "run", str(ingest(data, tmp_path / "store").path), epochs=1).test is None


def test_multi_label_and_binary(tmp_path):
    many = ingest(make_data(labels=multi_labels()), tmp_path / "many")
    result = run(tmp_path / "a", str(many.path), epochs=15)
    assert result.metric == "micro-f1"
    assert result.test > 0.55
    two = make_store(tmp_path / "two", num_classes=2)
    result = run(tmp_path / "b", str(two.path), epochs=10)
    assert result.metric == "auc"
    assert result.test > 0.7


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_threads_do_not_matter(model, store, tmp_path):
    digests = {run(tmp_path / str(n), store, model=model, num_workers=n).weights_digest for n in (0, 1, 2, 4)}
    assert len(digests) == 1


def test_torch_has_no_more_threads_than_a_container_has_cores(store, tmp_path, monkeypatch):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        monkeypatch.setattr("penstock.train.run.usable_cores", lambda: 3)
        assert run(tmp_path / "few", store).description["torch_threads"] == 3
        assert run(tmp_path / "told", store, torch_threads=5).description["torch_threads"] == 5
    finally:
        torch.set_num_threads(before)


def test_a_seed_decides_the_weights(store, tmp_path):
    digests = [run(tmp_path / str(i), store, seed=seed).weights_digest for i, seed in enumerate((1, 1, 2))]
    assert digests[0] == digests[1] != digests[2]


def test_neighbours_by_weight(store, tmp_path):
    """The run samples by weight, says so, and goes on exactly; equal weights of 0 leave every node alone."""
    data = make_data()
    data.edge_weight = torch.linspace(0, 1, data.edge_index.shape[1])
    weighted = str(ingest(data, tmp_path / "weighted", memory="4GiB").path)
    whole = run(tmp_path / "a", weighted, weight="weight", epochs=2)
    assert whole.description["weight_bytes"] > 8 * data.edge_index.shape[1]
    assert "by weight, " in write_report(whole, tmp_path / "a").read_text()
    assert whole.weights_digest != run(tmp_path / "b", weighted, epochs=2).weights_digest
    run(tmp_path / "c", weighted, weight="edge_weight", epochs=1)
    with pytest.raises(StateError, match="weight"):
        run(tmp_path / "c", weighted, epochs=2, resume=True)
    assert run(tmp_path / "c", weighted, weight="edge_weight", epochs=2, resume=True).weights_digest == whole.weights_digest
    with pytest.raises(MissingFieldError, match="edges have no field 'weight' to weigh them by"):
        run(tmp_path / "d", store, weight="weight")


class Stop(Observer):
    """Stops a run after a number of batches, as a crash would."""

    def __init__(self, after):
        self.left = after

    def batch_done(self, record, batches_per_epoch):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("model", ["sage", "gat", "gin"])
def test_resume_is_exact(model, store, tmp_path):
    whole = run(tmp_path / "whole", store, model=model)
    folder, stops = tmp_path / "stopped", 0
    for after in (0, 1, 5, 7, 8, 30):
        try:
            result = run(folder, store, model=model, resume=stops > 0, observer=Stop(after), checkpoint_every_s=0.0, num_workers=stops % 3)
            break
        except KeyboardInterrupt:
            stops += 1
    else:
        result = run(folder, store, model=model, resume=True)
    assert stops >= 4
    assert result.weights_digest == whole.weights_digest
    assert (result.val, result.test, result.best_epoch) == (whole.val, whole.test, whole.best_epoch)
    assert [record.loss for record in result.history] == [record.loss for record in whole.history]
    assert [record.num_seeds for record in result.history] == [200, 200, 200]


@pytest.mark.parametrize(
    "how", [{}, {"policy": "belady", "cache": "20%"}, {"policy": "presample", "cache": "20%"}, {"order": "community"}], ids=str
)
def test_short_epochs(how, store, tmp_path):
    """Of other seeds every time, as of the first batches of whole ones; and exactly the same after a stop."""
    short = run(tmp_path / "short", store, batches_per_epoch=2, epochs=4, **how)
    assert [(record.num_seeds, record.num_batches) for record in short.history] == [(64, 2)] * 4
    seeds = [loader_of(store, epoch, order=how.get("order", "random")) for epoch in range(4)]
    assert len(np.unique(np.concatenate(seeds))) > 120
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", store, batches_per_epoch=2, epochs=4, observer=Stop(5), checkpoint_every_s=0.0, **how)
    again = run(tmp_path / "stopped", store, batches_per_epoch=2, epochs=4, resume=True, num_workers=2, **how)
    assert again.weights_digest == short.weights_digest
    with pytest.raises(StateError, match="batches_per_epoch"):
        run(tmp_path / "stopped", store, batches_per_epoch=3, epochs=7, resume=True, **how)
    if not how:
        long = run(tmp_path / "long", store, batches_per_epoch=100, epochs=2)
        assert long.weights_digest == run(tmp_path / "whole", store, epochs=2).weights_digest


def loader_of(store, epoch, order):
    """The seeds of a short epoch."""
    loader = penstock.NeighborLoader(str(store), [2], "train", order=order, batch_size=32, batches_per_epoch=2, seed=0)
    loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
    return np.concatenate([batch.n_id[: batch.batch_size].numpy() for batch in loader])


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_resume_is_exact_in_proximity(kind, store, typed_store, tmp_path):
    path = store if kind == "plain" else typed_store
    options = dict(order="proximity", epochs=2, checkpoint_every_s=0.0)
    whole = run(tmp_path / "whole", path, **options)
    assert json.loads((tmp_path / "whole" / "config.json").read_text())["order"] == "proximity"
    folder = tmp_path / "stopped"
    for after, resume in ((1, False), (6, True)):
        with pytest.raises(KeyboardInterrupt):
            run(folder, path, resume=resume, observer=Stop(after), num_workers=after % 3, **options)
    result = run(folder, path, resume=True, **options)
    assert result.weights_digest == whole.weights_digest
    with pytest.raises(StateError, match="order='proximity', not with order='random'"):
        run(folder, path, resume=True, epochs=2)


def test_orders_differ(store, tmp_path):
    assert len({run(tmp_path / order, store, order=order, epochs=1).weights_digest for order in ORDERS}) == len(ORDERS)
    with pytest.raises(UsageError, match=f"order must be one of {', '.join(ORDERS)}"):
        TrainConfig(store=store, order="near")


def test_a_checkpoint_without_an_order_is_of_the_random_one(store, tmp_path):
    run(tmp_path, store, epochs=1)
    state = checkpoint.load(tmp_path / "checkpoint.pt")
    del state["config"]["order"]
    checkpoint.save(tmp_path / "checkpoint.pt", state)
    assert run(tmp_path, store, epochs=2, resume=True).epochs == 2


def test_resume_is_exact_from_every_checkpoint(store, tmp_path, monkeypatch):
    whole = run(tmp_path / "whole", store, epochs=2)
    save = checkpoint.save
    for number in range(1, 12):  # 7 batches, the end of an epoch, 3 batches
        left = [number]

        def save_and_stop(path, state, left=left):
            save(path, state)
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        monkeypatch.setattr(checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / str(number), store, epochs=2, checkpoint_every_s=0.0)
        monkeypatch.setattr(checkpoint, "save", save)
        result = run(tmp_path / str(number), store, epochs=2, resume=True)
        assert result.weights_digest == whole.weights_digest, f"stopped after checkpoint {number}"
        assert [record.loss for record in result.history] == [record.loss for record in whole.history]


@pytest.fixture
def usual_handlers():
    yield
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.default_int_handler])  # in a process of the user's, and of the command
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_control_c_saves_where_it_stands(number, before, usual_handlers, store, tmp_path):
    notes = []
    for which in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, before)

    class ControlC(Observer):
        def batch_done(self, record, batches_per_epoch):
            if (record.epoch, record.num_batches) == (1, 3):
                for _ in range(1 + (number == signal.SIGHUP)):
                    os.kill(os.getpid(), number)

        def note(self, message):
            notes.append(message)

    whole = run(tmp_path / "whole", store)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", store, observer=ControlC())
    assert notes[-1] == "saved at epoch 2, batch 3: --resume goes on from there"
    assert run(tmp_path / "stopped", store, resume=True).weights_digest == whole.weights_digest
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [signal.getsignal(which) for which in (signal.SIGTERM, signal.SIGHUP)] == [before, before]


@pytest.mark.parametrize("moment", ["_save", "_check_store", "_count_feed", "_check_bytes", "_is_due"])
def test_control_c_between_two_epochs(moment, usual_handlers, store, tmp_path, monkeypatch):
    whole, notes, calls = run(tmp_path / "whole", store), Notes(), []
    usual = getattr(_Run, moment)

    def interrupted(self, *arguments):
        calls.append(self.history.record.epoch)
        if calls.count(1) == 1 and self.history.record.epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return usual(self, *arguments)

    monkeypatch.setattr(_Run, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", store, observer=notes)
    assert re.fullmatch(r"saved at epoch \d, batch \d+: --resume goes on from there", notes.said[-1])
    saved = notes.said[-1].split(":")[0].removeprefix("saved at ")
    assert run(tmp_path / "stopped", store, resume=True, observer=notes).weights_digest == whole.weights_digest
    assert notes.said[-1] == f"resumed at {saved}"


def test_control_c_while_a_checkpoint_is_written(usual_handlers, store, tmp_path, monkeypatch):
    """The first waits for the file; the second ends it, and torch then says that the file is not whole."""
    whole, usual = run(tmp_path / "whole", store), torch.save

    def once(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        usual(*arguments)

    def twice(*arguments):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            raise RuntimeError("unexpected pos")

    for number, saving in enumerate((once, twice)):
        monkeypatch.setattr(torch, "save", saving)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "stopped", store, resume=bool(number))
        monkeypatch.undo()
        assert sorted(path.name for path in (tmp_path / "stopped").iterdir()) == [".lock", "checkpoint.pt", "config.json"]
    assert run(tmp_path / "stopped", store, resume=True).weights_digest == whole.weights_digest


def test_settings_are_plain_values(store):
    given = TrainConfig(store=Path(store), num_neighbors=[np.int64(4), 3], lr=np.float32(0.5), device=torch.device("cpu"))
    assert given == TrainConfig(store=store, num_neighbors=(4, 3), lr=0.5, device="cpu")
    assert TrainConfig.from_dict(json.loads(json.dumps(given.as_dict()))) == given


def test_control_c_while_it_evaluates(store, tmp_path):
    notes = []

    class ControlC(Observer):
        num_evaluated = 0

        def evaluating(self, done, total):
            self.num_evaluated += done == total
            if self.num_evaluated == 2:
                raise KeyboardInterrupt

        def batch_done(self, record, batches_per_epoch):
            assert not notes, "no batch is trained on again"

        def note(self, message):
            notes.append(message)

    whole = run(tmp_path / "whole", store, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", store, epochs=2, observer=ControlC())
    assert re.fullmatch(r"saved at (epoch 2, batch \d+): --resume goes on from there", notes[-1])
    saved = notes[-1].split(":")[0].removeprefix("saved at ")
    observer = ControlC()
    observer.num_evaluated = 9
    result = run(tmp_path / "stopped", store, epochs=2, resume=True, observer=observer)
    assert notes[-1] == f"resumed at {saved}"
    assert (result.weights_digest, result.val, result.test) == (whole.weights_digest, whole.val, whole.test)


def test_resume_of_a_finished_run_can_go_on(store, tmp_path):
    run(tmp_path, store, epochs=2)
    longer = run(tmp_path, store, epochs=4, resume=True)
    assert longer.weights_digest == run(tmp_path / "other", store, epochs=4).weights_digest


def test_early_stopping(store, tmp_path):
    result = run(tmp_path, store, epochs=60, patience=3)
    assert result.epochs < 60
    assert result.epochs == result.best_epoch + 1 + 3


def test_evaluation_every_other_epoch(store, tmp_path):
    result = run(tmp_path, store, epochs=5, eval_every=2)
    assert [record.val is not None for record in result.history] == [False, True, False, True, True]


def test_a_store_without_val_and_test(tmp_path):
    data = make_data()
    del data.val_mask, data.test_mask
    store = ingest(data, tmp_path / "store")
    result = run(tmp_path / "run", str(store.path))
    assert result.val is None
    assert result.test is None
    assert result.best_epoch is None
    assert write_report(result, tmp_path / "run").exists()
    assert len(repr(result)) < 400, "scores and speed, not the whole history"


def test_settings_are_saved(store, tmp_path):
    run(tmp_path, store)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["hidden"] == 16
    assert TrainConfig.from_dict(saved) == TrainConfig(store=store, **QUICK)
    with pytest.raises(UsageError, match="unknown setting 'colour'"):
        TrainConfig.from_dict({**saved, "colour": "blue"})
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert {"model", "optimizer", "loader", "random", "history"} <= state.keys()


def test_settings_are_those_of_the_last_resume(store, tmp_path):
    run(tmp_path, store, epochs=1)
    run(tmp_path, store, epochs=2, patience=7, resume=True)
    saved = TrainConfig.from_dict(json.loads((tmp_path / "config.json").read_text()))
    assert (saved.epochs, saved.patience) == (2, 7)


@pytest.mark.parametrize(("error", "is_kept"), [(KeyboardInterrupt, True), (UsageError, False)])
def test_settings_are_there_before_the_loader(error, is_kept, store, tmp_path, monkeypatch):
    """To find out what is hot may take as long as an epoch: who stops it there can resume; what is refused leaves nothing."""
    monkeypatch.setattr("penstock.train.run._Loader", mock.Mock(side_effect=error))
    with pytest.raises(error):
        run(tmp_path / "new" / "run", store)
    assert (tmp_path / "new" / "run" / "config.json").exists() == is_kept
    assert (tmp_path / "new").exists() == is_kept


def test_settings_that_are_refused_are_not_kept(store, tmp_path):
    with mock.patch("penstock.train.run._Loader", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run(tmp_path, store)
    for before in ((tmp_path / "config.json").read_bytes(), b"\xff\xfe of somebody"):
        (tmp_path / "config.json").write_bytes(before)
        with pytest.raises(UsageError, match="does not hold one batch"):
            run(tmp_path, store, host_memory="1MiB", resume=True)
        assert (tmp_path / "config.json").read_bytes() == before


def test_a_lock_that_was_taken_away_is_none(tmp_path):
    """One process has opened the file, another ends and takes it away, a third makes a new one."""
    folder, flock, others = tmp_path / "run", fcntl.flock, []

    def late(file, how):
        if not others:
            others.append(file)
            (folder / ".lock").unlink()
        flock(file, how)

    with mock.patch.object(fcntl, "flock", late), lock_folder(folder):
        with pytest.raises(StoreBusyError), lock_folder(folder):
            pass
        assert (folder / ".lock").exists()
    assert not folder.exists()


def test_a_train_score_is_the_mean_over_batches_that_have_one(store, tmp_path, monkeypatch):
    seen, score = [], Task.score

    def rare(task, logits, labels):
        seen.append((math.nan if len(seen) % 3 == 0 else score(task, logits, labels), len(labels)))
        return seen[-1][0]

    monkeypatch.setattr(Task, "score", rare)
    (record,) = run(tmp_path / "some", store, epochs=1).history
    known = [(value, count) for value, count in seen if not math.isnan(value)]
    assert record.train_score == pytest.approx(sum(value * count for value, count in known) / record.num_scored)
    assert record.num_scored == sum(count for _, count in known) < record.num_seeds
    monkeypatch.setattr(Task, "score", lambda *ignored: math.nan)
    result = run(tmp_path / "none", store, epochs=1)
    assert result.history[0].train_score is None
    assert write_report(result, tmp_path / "none").exists()


def test_a_val_that_is_not_known_is_no_better_one(store, tmp_path, monkeypatch):
    """Such as micro-f1 where nothing is positive and nothing is said to be."""
    values = iter([0.5, 0.4, math.nan, 0.6, math.nan, math.nan])
    monkeypatch.setattr(Task, "score", lambda *ignored: 0.5)
    monkeypatch.setattr(Task, "score_digest", lambda *ignored: next(values))
    result = run(tmp_path, store, epochs=3)
    assert (result.val, result.test, result.best_epoch) == (0.5, 0.4, 0)


def test_a_diverging_run_says_so(tmp_path):
    data = make_data()
    data.x[:] = torch.finfo(torch.float32).max
    store = ingest(data, tmp_path / "store")
    with pytest.raises(DivergedError, match=r"the loss is (nan|inf) at epoch 1, batch \d+: lower lr"):
        run(tmp_path / "run", str(store.path))


def test_folders_of_runs(store, tmp_path):
    run(tmp_path / "run", store, resume=True)  # nothing there: from the beginning
    with pytest.raises(StateError, match="holds a run already"):
        run(tmp_path / "run", store)
    with pytest.raises(StateError, match="was trained with hidden=16, not with hidden=8: resume"):
        run(tmp_path / "run", store, hidden=8, resume=True)
    with lock_folder(tmp_path / "run"), pytest.raises(StoreBusyError, match="another process trains"):
        run(tmp_path / "run", store, resume=True)
    checkpoint = tmp_path / "run" / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(CorruptStoreError, match="cannot read the checkpoint"):
        run(tmp_path / "run", store, resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose another out"):
        run(tmp_path / "file" / "run", store)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "rgcn"}, UsageError, "does not suit this graph"),
        ({"model": "mlp"}, UsageError, "model must be one of"),
        ({"target": "paper"}, UsageError, "is not a node type"),
        ({"split": "7"}, UsageError, "has no split '7'"),
        ({"num_neighbors": ()}, UsageError, "one fanout per layer"),
        ({"num_neighbors": (5, 0)}, UsageError, "0 at hop 1"),
        ({"epochs": 0}, UsageError, "epochs must be at least 1"),
        ({"lr": 0.0}, UsageError, "lr must be positive"),
        ({"dropout": 1.0}, UsageError, "dropout must lie"),
        ({"num_workers": 1000}, UsageError, "num_workers must lie"),
        ({"seed": -1}, UsageError, "seed must"),
    ],
    ids=str,
)
def test_bad_settings(options, error, message, store, tmp_path):
    with pytest.raises(error, match=message):
        run(tmp_path / "run", store, **options)


@pytest.mark.parametrize(("field", "message"), [("y", "no labels"), ("train_mask", "no train nodes")])
def test_missing_fields(field, message, tmp_path):
    data = make_data()
    delattr(data, field)
    data.num_nodes = 400
    store = ingest(data, tmp_path / "store")
    with pytest.raises(MissingFieldError, match=message):
        run(tmp_path / "run", str(store.path))


def test_classes_kept_as_floats_are_classes(store, tmp_path):
    """As pandas writes them; NaN is no label."""
    data = make_data()
    data.y = data.y.float()
    data.y[~(data.train_mask | data.val_mask | data.test_mask)] = float("nan")
    as_floats = ingest(data, tmp_path / "store", allow_nan=True)
    assert run(tmp_path / "floats", str(as_floats.path)).weights_digest == run(tmp_path / "whole", store).weights_digest


def test_bfloat16_and_float16_features_train(tmp_path):
    scores = []
    for dtype in ("float32", "float16", "bfloat16"):
        store = ingest(make_data(), tmp_path / dtype, feature_dtype=dtype)
        scores.append(run(tmp_path / f"run-{dtype}", str(store.path), epochs=8).test)
    assert np.ptp(scores) < 0.08
