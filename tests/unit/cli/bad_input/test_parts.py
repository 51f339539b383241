"""Partitions that are refused."""

import numpy as np
import pytest

from penstock.errors import NodeIdError, NotSupportedError, UsageError
from penstock.partition import MAX_PARTS, assign, metis
from penstock.records import NODE
from tests.graphs import homogeneous_graph
from tests.refusals import refused

GRAPH = homogeneous_graph(np.random.default_rng(0), 10, 20)


@pytest.mark.parametrize("num_parts", [-1, 0, MAX_PARTS + 1])
def test_numbers_of_parts(num_parts):
    refused(UsageError, assign, GRAPH, num_parts, "random", train={}, seed=0)


def test_methods(monkeypatch):
    assert "got 'kahip'" in refused(UsageError, assign, GRAPH, 2, "kahip", train={}, seed=0)
    assert "got 0" in refused(UsageError, assign, GRAPH, 0, "random", train={}, seed=0)

    def is_missing(name):
        raise ImportError(name)

    monkeypatch.setattr(metis, "import_module", is_missing)
    refused(NotSupportedError, assign, GRAPH, 2, "metis", train={}, seed=0)


def test_train_nodes():
    assert "'paper'" in refused(UsageError, assign, GRAPH, 2, "random", train={"paper": np.array([1])}, seed=0)
    for bad in (10, -1):
        assert "1 of 2 ids" in refused(NodeIdError, assign, GRAPH, 2, "random", train={NODE: np.array([1, bad])}, seed=0)
