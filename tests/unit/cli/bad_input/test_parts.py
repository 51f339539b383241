"""Partitions that are refused."""

import numpy as np
import pytest

from penstock.errors import BudgetError, NodeIdError, NotSupportedError, UsageError
from penstock.partition import MAX_PARTS, assign, metis, partition_store
from penstock.records import NODE
from penstock.store import ingest
from tests.graphs import homogeneous_graph
from tests.refusals import refused
from tests.train.stores import make_data

GRAPH = homogeneous_graph(np.random.default_rng(0), 10, 20)


@pytest.mark.parametrize("num_parts", [-1, 0, MAX_PARTS + 1])
def test_numbers_of_parts(num_parts):
    refused(UsageError, assign, GRAPH, num_parts, "random", train={}, seed=0)


def test_methods(monkeypatch, tmp_path):
    assert "got 'kahip'" in refused(UsageError, assign, GRAPH, 2, "kahip", train={}, seed=0)
    assert "got 0" in refused(UsageError, assign, GRAPH, 0, "random", train={}, seed=0)

    def is_missing(name):
        raise ImportError(name)

    monkeypatch.setattr(metis, "import_module", is_missing)
    refused(NotSupportedError, assign, GRAPH, 2, "metis", train={}, seed=0)
    store = ingest(make_data(), tmp_path / "store")
    monkeypatch.setattr("penstock.store.budget.free_in_container", lambda: 1000)
    for method, advice in (("metis", "take method='ldg'"), ("ldg", "take more memory")):
        assert advice in refused(BudgetError, partition_store, store, tmp_path / "parts", 2, method=method)


def test_train_nodes():
    assert "'paper'" in refused(UsageError, assign, GRAPH, 2, "random", train={"paper": np.array([1])}, seed=0)
    for bad in (10, -1):
        assert "1 of 2 ids" in refused(NodeIdError, assign, GRAPH, 2, "random", train={NODE: np.array([1, bad])}, seed=0)
