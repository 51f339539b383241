"""Kernels of a device whose programs run at the same time, against what is right in any order, byte for byte. In the interpreter only: on
a device all tests are such tests."""

import numpy as np
import pytest
import torch

from penstock.kernels import _triton

if not _triton.is_interpreted():
    pytest.skip("programs of a device run at the same time anyway", allow_module_level=True)

import triton
import triton.language as tl

from penstock.kernels.cache_fifo import gpu as cache_fifo
from penstock.kernels.relabel import gpu as relabel
from penstock.kernels.sample_neighbors import gpu as sampling
from penstock.records import NODE
from penstock.sample import NeighborSampler
from penstock.sample.device_graph import device_sampler
from tests.differential import test_device_fifo as fifo
from tests.differential import test_device_rows as rows
from tests.differential.test_device_sampler import compare, random_lists
from tests.graphs import homogeneous_graph, typed_graph
from tests.interleaving import interleaved

CPU = torch.device("cpu")


@triton.jit
def _add_one(counter, IS_ATOMIC: tl.constexpr):
    if IS_ATOMIC:
        tl.atomic_add(counter, 1)
    else:
        tl.store(counter, tl.load(counter) + 1)


def test_a_race_is_seen():
    """A sum that programs read and write is wrong; an atomic one is right."""
    sums = torch.zeros(2, dtype=torch.int64)
    with interleaved(np.random.default_rng(0)) as interleaving:
        for number in range(2):
            _add_one[(40,)](sums[number:], IS_ATOMIC=bool(number))
    assert interleaving.num_switches > 80
    assert sums[0] < 40
    assert sums[1] == 40


@pytest.fixture
def small_blocks(monkeypatch):
    """Many programs for small graphs."""
    for kernels in (relabel, sampling):
        monkeypatch.setattr(kernels, "BLOCK", 16)
    monkeypatch.setattr(sampling, "_TILES", {4: (4, 1)})


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("small_blocks")
def test_samples(seed):
    """Hubs, whose claims meet in one place of a table; tiles and single edges; the same table for two batches."""
    random = np.random.default_rng(seed)
    graph = homogeneous_graph(random, 40, 80, hub_degree=150 * (seed % 2))
    sampler = NeighborSampler(graph, [[3, 2], [-1, 2], [70, 2]][seed % 3], replace=seed > 3, seed=seed)
    with interleaved(random) as interleaving:
        ours = device_sampler(sampler, CPU, "pinned" if seed % 2 else "device", random_lists(random, graph) if seed % 2 else None)
        workspace = ours.workspace()
        for batch in range(2):
            compare(ours, sampler, NODE, random.integers(0, 40, 9), workspace, batch=batch)
    assert interleaving.num_switches > 50


@pytest.mark.usefixtures("small_blocks")
def test_samples_of_typed_graphs():
    random = np.random.default_rng(0)
    graph = typed_graph(random)
    sampler = NeighborSampler(graph, {edge_type: [3, 2] for edge_type in graph.adjacency}, seed=1)
    with interleaved(random):
        ours = device_sampler(sampler, CPU)
        compare(ours, sampler, "paper", random.integers(0, 900, 8), ours.workspace())


@pytest.mark.parametrize("seed", range(3))
def test_what_a_cache_decides(seed, monkeypatch):
    for name in ("BLOCK", "TILE"):
        monkeypatch.setattr(cache_fifo, name, 8)
    random = np.random.default_rng(seed)
    with interleaved(random) as interleaving:
        fifo.compare(random, 60, [7, 40, 57][seed], CPU, num_filled=[0, 30, 57][seed])
    assert interleaving.num_switches > 50


@pytest.mark.parametrize(("row_bytes", "offset"), [(132, 4), (131, 3)])
def test_rows(row_bytes, offset):
    with interleaved(np.random.default_rng(row_bytes)) as interleaving:
        rows.test_gather_rows(row_bytes, offset, CPU)
        rows.test_move_rows(row_bytes, offset, np.int64, CPU)
        for by_position in (False, True):
            rows.test_gather_cached(row_bytes, offset, by_position, CPU)
    assert interleaving.num_switches > 100
