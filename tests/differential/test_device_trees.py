"""Disjoint samples of a device, and those by time, against the CPU's, byte for byte: trees, their moments, and the table they are in."""

from itertools import product
from unittest import mock

import numpy as np
import pytest
import torch

from penstock.kernels.relabel import gpu as relabel
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.device_graph import device_sampler
from penstock.sample.times import Timestamps, with_times
from penstock.store.device_memory import settle
from tests.differential.test_device_sampler import compare
from tests.differential.ways import weighted_graph
from tests.graphs import assert_same_sample, homogeneous_graph, typed_graph


@pytest.fixture
def device(reader):
    return reader


@pytest.mark.parametrize(
    ("name", "fanouts"),
    [("by weight", [3, 12]), *product(["uniform", "by time", "the last"], [[3, 12], [2, 70], [3, -1]])],
    ids=str,
)
def test_trees_over_long_lists(name, fanouts, device):
    """Two hops, so that a frontier begins behind the seeds, from lists that are longer than the fanout and, for most moments, their windows
    too; lists that lie in the order of time, and others; in the device's memory, pinned, and with the best on it; seeds that repeat."""
    random = np.random.default_rng()
    csc = CSC(np.arange(9) * 200, random.integers(0, 8, 1600).astype(np.int32))
    for number, (where, again) in enumerate([("device", False), ("device", True), ("pinned", False), ("pinned", True)]):
        graph, options, moments = Graph({NODE: 8}, {EDGE: csc}, True), {"disjoint": True}, None
        if name == "by weight":
            graph = weighted_graph(random, graph)
        elif name != "uniform":
            times = np.tile(np.arange(200), 8) if number % 2 else random.integers(0, 200, 1600)
            graph, moments = with_times(graph, Timestamps({}, {EDGE: times})), np.array([199, 150, 90, 30, 5, -1])
            options = {"takes_last": name == "the last", "reach": (-1, 40)[number // 2]}
        sampler = NeighborSampler(graph, fanouts, replace=again, seed=int(random.integers(99)), **options)
        ours = device_sampler(sampler, device, where, {EDGE: np.arange(0, 8, 2)} if where == "pinned" else None)
        workspace = ours.workspace()
        for batch in range(3):
            compare(ours, sampler, NODE, np.array([5, 0, 5, 1, 2, 0]), workspace, batch=batch, moments=moments)


def test_trees_of_seeds_of_two_types(device):
    """Fewer than there is room for: trees and moments are numbered by those that are there."""
    random = np.random.default_rng()
    for options in ({"disjoint": True}, {}):
        graph = typed_graph(random)
        if not options:
            graph = with_times(graph, Timestamps({}, {e: random.integers(0, 99, csc.num_edges) for e, csc in graph.adjacency.items()}))
        sampler = NeighborSampler(graph, [3, 2], seed=4, **options)
        ours = device_sampler(sampler, device)
        workspace = ours.workspace()
        for batch, (papers, authors) in enumerate([(12, 9), (12, 9), (12, 9), (7, 9), (12, 3), (0, 5), (1, 1)]):
            seeds = {"paper": random.integers(0, 100, papers), "author": random.integers(0, 20, authors)}
            times = None if options else {t: random.integers(0, 99, ids.size) for t, ids in seeds.items()}
            place = dict(epoch=0, batch=batch, times=times)
            sample = ours.sample(seeds, **place, workspace=workspace).to_host()
            assert_same_sample(sample, sampler.sample(seeds, **place, workspace=sampler.workspace()))
        assert workspace.run is not None


def test_a_table_of_trees_grows_and_is_emptied(device):
    """What was recorded with a smaller one is not asked for again; nothing of a batch is left in the next one."""
    random = np.random.default_rng()
    graph = homogeneous_graph(random, 300, 3000)
    sampler = NeighborSampler(graph, [4, 3], disjoint=True, seed=1)
    ours = device_sampler(sampler, device)
    workspace = ours.workspace()
    table, sizes = workspace.tables[NODE], []
    for batch, size in enumerate([12, 12, 12, 200, 12, 12, 12, 200, 12, 200, 200, 12]):
        compare(ours, sampler, NODE, random.integers(0, 300, size), workspace, batch=batch)
        settle(device)
        num_nodes = sampler.sample({NODE: np.arange(size)}, epoch=0, batch=batch, workspace=sampler.workspace()).nodes[NODE].size
        num_keys = int((table.keys != relabel.FREE).sum())
        assert abs(num_keys - num_nodes) < num_nodes / 4, "of this batch alone"
        assert table.keys.numel() == table.numbers.numel() >= 2 * num_keys
        sizes.append(table.keys.numel())
    assert sizes[0] < sizes[3] == sizes[-1]


def test_a_table_of_trees_that_has_grown_for_a_batch_that_is_not_recorded(device):
    """For its seeds, before anything is asked; and where there was no memory for it."""
    random = np.random.default_rng()
    degrees = random.integers(0, 6, 500)
    lists = CSC(np.append(0, degrees.cumsum()), random.integers(0, 3000, degrees.sum()).astype(np.int32))
    graph = Graph({"paper": 3000, "author": 500}, {("paper", "by", "author"): lists}, False)
    sampler = NeighborSampler(graph, [3], disjoint=True, seed=1)
    ours = device_sampler(sampler, device)
    workspace = ours.workspace()
    for batch, papers in enumerate([50, 50, 50, 600, 50, 50, 50, 2000, 50, 50]):
        seeds = {"paper": random.integers(0, 3000, papers), "author": random.integers(0, 500, 10)}
        if papers == 2000:
            with mock.patch.object(torch, "full", side_effect=torch.OutOfMemoryError), pytest.raises(torch.OutOfMemoryError):
                ours.sample(seeds, epoch=0, batch=batch, workspace=workspace)
            continue
        sample = ours.sample(seeds, epoch=0, batch=batch, workspace=workspace).to_host()
        assert_same_sample(sample, sampler.sample(seeds, epoch=0, batch=batch, workspace=sampler.workspace()))
