"""What is not aggregated, and what aggregated features do not suit."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from penstock.errors import NotSupportedError
from penstock.store import ingest
from penstock.store.format import DATA_OFFSET
from penstock.train import aggregate, of_aggregated
from tests.refusals import TRAIN, refused, said
from tests.train.stores import make_typed_store


@pytest.fixture
def aggregated(tmp_path, store):
    aggregate(store, tmp_path / "mean")
    return tmp_path / "mean"


def test_stores_that_are_not_aggregated(tmp_path, store, aggregated, capfd):
    new = tmp_path / "new"
    assert "got 'max'" in said(capfd, "aggregate", store, new, "--by", "max")
    assert "aggregated already, by mean" in said(capfd, "aggregate", aggregated, new)
    make_typed_store(tmp_path / "typed")
    assert "3 node and" in said(capfd, "aggregate", tmp_path / "typed", new)
    ingest(Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3), tmp_path / "bare")
    assert "there is nothing to aggregate" in said(capfd, "aggregate", tmp_path / "bare", new)
    ingest(Data(x=torch.zeros(3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]])), tmp_path / "flat")
    assert "must be a matrix" in said(capfd, "aggregate", tmp_path / "flat", new)
    assert "batch_size" in said(capfd, "aggregate", store, new, "--batch-size", "0").replace("-", "_")
    assert "does not hold one batch" in said(capfd, "aggregate", store, new, "--host-memory", "1MiB")
    assert not new.exists()
    assert "is a store already" in said(capfd, "aggregate", store, aggregated)
    assert "the store itself" in said(capfd, "aggregate", store, store / ".", "--overwrite")
    assert "in the store" in said(capfd, "aggregate", store, store / "nodes" / "inner")
    assert "does not exist" in said(capfd, "aggregate", store, new / "further")


def test_a_disk_without_room(tmp_path, store, capfd, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    assert "for its features, and the disk has 10 B free" in said(capfd, "aggregate", store, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_damaged_where_it_is_copied(tmp_path, store, capfd, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EXDEV, "two file systems")

    monkeypatch.setattr(os, "link", refuse)
    store = Path(shutil.copytree(store, tmp_path / "store"))
    (store / "nodes/node/y.npy").chmod(0o644)
    with open(store / "nodes/node/y.npy", "r+b") as file:
        file.seek(DATA_OFFSET)
        file.write(b"\x07")
    assert "y.npy is damaged" in said(capfd, "aggregate", store, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_aggregated_features_do_not_suit(aggregated, capfd):
    assert "take sage" in said(capfd, "train", aggregated, *TRAIN, "--model", "gcn")
    assert "comes too late" in said(capfd, "train", aggregated, *TRAIN, "--normalize", "rows")
    assert "does not begin by" in refused(NotSupportedError, of_aggregated, nn.Linear(2, 4), torch.zeros(3, 4))
