"""Checkpoints: damaged ones and those of something else are refused; what a step leaves behind."""

import contextlib

import numpy as np
import pytest
import torch

from penstock.errors import CorruptStoreError
from penstock.feed import NeighborLoader
from penstock.inference.whole_graph import weights_digest
from penstock.store import Store
from penstock.train import TrainConfig, checkpoint
from penstock.train.data import read_training_data
from penstock.train.learner import Learner
from tests.train.stores import make_bare_store, make_store
from tests.train.test_run import QUICK, run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(make_store(tmp_path_factory.mktemp("data") / "store").path)


def test_damaged_checkpoints_are_refused(store, tmp_path):
    """Every byte that matters is in a checksum; torch itself compares none."""
    run(tmp_path, store, epochs=1)
    path, random = tmp_path / "checkpoint.pt", np.random.default_rng(0)
    whole, digest = path.read_bytes(), weights_digest_of(path)
    for at in random.integers(len(whole), size=60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << random.integers(8)]) + whole[at + 1 :])
        with contextlib.suppress(CorruptStoreError):
            assert weights_digest_of(path) == digest, at
    for content in (b"", b"hello", whole[:1], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(CorruptStoreError, match=r"cannot read the checkpoint .*: \w"):
            checkpoint.load(path)
    for other in ([1], {}, None, {"model": {}}):
        torch.save(other, path)
        with pytest.raises(CorruptStoreError, match="it is not a checkpoint of penstock train"):
            run(tmp_path, store, resume=True)


def test_a_checkpoint_that_is_replaced_while_it_is_read(tmp_path, monkeypatch):
    """Is the old one, whole: the run goes on meanwhile."""
    path, parts = tmp_path / "checkpoint.pt", ("config", "loader", "record", "history", "best")
    old, new = ({**dict.fromkeys(parts, number), "model": {"w": torch.full((9, 9), float(number))}} for number in (1, 2))
    checkpoint.save(path, old)

    def test_and_save(archive):
        checkpoint.save(path, new)

    monkeypatch.setattr("zipfile.ZipFile.testzip", test_and_save)
    state = checkpoint.load(path)
    monkeypatch.undo()
    assert state["record"] == 1
    assert (state["model"]["w"] == 1).all()
    assert checkpoint.load(path)["record"] == 2


@pytest.mark.parametrize("change", ["exp_avg", "exp_avg_sq", "step", "wide", "flat", "sparse", "more", "less"])
def test_what_adam_kept_must_be_of_the_model(change, store, tmp_path):
    """It would write beyond it."""
    run(tmp_path, store, epochs=1)
    path = tmp_path / "checkpoint.pt"
    state = checkpoint.load(path)
    kept = state["optimizer"]["state"]
    if change in kept[0]:
        kept[0][change] = torch.zeros(3)
    elif change == "wide":
        kept[1]["exp_avg"] = kept[1]["exp_avg"].double()
    elif change == "flat":
        kept[0]["exp_avg"] = torch.zeros(1).expand(kept[0]["exp_avg"].shape)
    elif change == "sparse":
        kept[0]["exp_avg"] = kept[0]["exp_avg"].to_sparse()
    elif change == "more":
        kept[len(kept)] = kept[0]
    else:
        del kept[0]["exp_avg"]
    checkpoint.save(path, state)
    with pytest.raises(CorruptStoreError, match="cannot read the checkpoint"):
        run(tmp_path, store, resume=True)


def weights_digest_of(path):
    return weights_digest(checkpoint.load(path)["model"])


def test_a_step_leaves_no_gradients(tmp_path):
    """Of rows that are learnt there are as many as nodes; and Adam passes over them once."""
    path = make_bare_store(tmp_path / "store").path
    config = TrainConfig(store=str(path), **QUICK)
    data = read_training_data(Store.open(path), config)
    learner = Learner(config, data, torch.device("cpu"))
    before = learner.weights()
    learner.step(0, NeighborLoader(data.source(), [4, 3], data.parts["train"], batch_size=32, seed=0)(range(32)), 0)
    assert all(weight.grad is None for weight in learner.model.parameters())
    assert any((before[name] != now).any() for name, now in learner.weights().items())
    assert learner.optimizer.defaults["fused"]
    assert learner.model.rows.take_gradient() is None
