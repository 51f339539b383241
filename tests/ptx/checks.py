"""What only compiled kernels show. Run as `TRITON_INTERPRET=0 python -m pytest -p tests.ptx tests/ptx/checks.py`, which
`tests/gpu/test_compiled.py` does."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from penstock.kernels.cache_fifo import gpu as cache_fifo
from penstock.kernels.gather_cached.gpu import gather_cached
from penstock.kernels.gather_rows.gpu import gather_rows
from penstock.kernels.links import gpu as links
from penstock.kernels.relabel import gpu as relabel
from penstock.kernels.sample_neighbors import gpu as sampling
from penstock.kernels.sample_shared import gpu as shared
from penstock.kernels.time_windows import gpu as time_windows
from penstock.records import EDGE, NODE
from penstock.sample import NeighborSampler
from penstock.sample.device_graph import device_sampler
from tests.devices import address_rows
from tests.differential import test_device_fifo as fifo
from tests.differential.test_device_sampler import compare, random_edges, random_lists
from tests.differential.ways import random_moments, timed_graph, weighted_graph
from tests.graphs import homogeneous_graph
from tests.ptx import interleaved, watched

CPU = torch.device("cpu")


@triton.jit
def _add_one(counter, IS_ATOMIC: tl.constexpr):
    if IS_ATOMIC:
        tl.atomic_add(counter, 1)
    else:
        tl.store(counter, tl.load(counter) + 1)


def test_a_race_is_seen():
    """A sum that programs read and write is wrong, whether they take turns by chance or not; an atomic one is right."""
    sums = torch.zeros(3, dtype=torch.int64)
    _add_one[(40,)](sums, IS_ATOMIC=False)
    with interleaved(np.random.default_rng(0)):
        _add_one[(40,)](sums[1:], IS_ATOMIC=False)
        _add_one[(40,)](sums[2:], IS_ATOMIC=True)
    assert sums[0] < 40
    assert sums[1] < 40
    assert sums[2] == 40


@triton.jit
def _copy_pairs(numbers, out):
    where = tl.arange(0, 256)
    tl.store(out + where, tl.load(tl.multiple_of(numbers + where, 16)))


def test_an_address_that_is_not_as_promised_is_seen():
    numbers, out = torch.arange(257), torch.zeros(256, dtype=torch.int64)  # torch's memory begins at multiples of 64
    _copy_pairs[(1,)](numbers, out)
    assert out.equal(numbers[:256])
    with pytest.raises(AssertionError, match="no multiple of 16"):
        _copy_pairs[(1,)](numbers[1:], out)


@pytest.mark.parametrize("row_bytes", [8, 48, 100, 130, 144, 257, 258, 260, 400, 512, 1204, 2866, 5732])
@pytest.mark.parametrize("offset", [0, 64])
@pytest.mark.parametrize("max_programs", [None, 2])
def test_rows_are_read_by_whole_lines(row_bytes, offset, max_programs):
    """No line of 128 bytes is asked for twice for a row: over the link each request costs."""
    random = np.random.default_rng(row_bytes)
    table, rows = address_rows(random, 60, row_bytes, offset)
    ids = random.permutation(60)[:40]
    out = torch.zeros(40 * row_bytes, dtype=torch.uint8)
    with watched(table) as reads:
        gather_rows(torch.from_numpy(table), row_bytes, torch.from_numpy(ids), out, max_programs=max_programs)
    assert out.numpy().tobytes() == rows[ids].tobytes()
    first = offset + ids * row_bytes
    last = first + row_bytes - 1
    assert reads.lines <= (last // 128 - first // 128 + 1).sum()
    assert reads.sectors <= (last // 32 - first // 32 + 1).sum()


@pytest.mark.parametrize("max_programs", [None, 2])
def test_words_are_no_wider_than_the_place_of_the_result_allows(max_programs):
    table, rows = address_rows(np.random.default_rng(0), 70, 512, 0)
    ids, space = np.arange(70)[::-1].copy(), torch.zeros(70 * 512 + 64, dtype=torch.uint8)
    out = space[4 : 4 + 70 * 512]
    gather_rows(torch.from_numpy(table), 512, torch.from_numpy(ids), out, max_programs=max_programs)
    assert out.numpy().tobytes() == rows[ids].tobytes()


def test_words_are_no_wider_than_the_place_of_the_cache_allows():
    random = np.random.default_rng(0)
    (table, rows), (cache, kept) = (address_rows(random, 70, 512, 0), address_rows(random, 20, 512, 4))
    slots, ids, out = np.full(70, -1, np.int32), random.integers(0, 70, 100), torch.zeros(100 * 512, dtype=torch.uint8)
    slots[:20] = np.arange(20)
    there = (torch.from_numpy(each) for each in (table, cache, slots, ids))
    gather_cached(*there, 512, out, torch.zeros(1, dtype=torch.int64), by_position=False, max_programs=3)
    expected = np.where((slots[ids] >= 0)[:, None], kept[np.maximum(slots[ids], 0)], rows[ids])
    assert out.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", range(8))
def test_samples_of_warps_that_take_turns_by_chance(seed, monkeypatch):
    """Hubs, whose claims meet in one place of a table; tiles of one warp and of several, single edges; the same table for two batches."""
    for kernels in (links, relabel, sampling):
        monkeypatch.setattr(kernels, "BLOCK", 32)
    random = np.random.default_rng(seed)
    graph = homogeneous_graph(random, 40, 80 if seed < 4 else 600, hub_degree=150 * (seed % 2))
    graph = weighted_graph(random, graph) if seed % 4 > 1 else graph
    fanouts = [[3, 2], [3, 2], [70, 2], [70, 2], [12, 10], [25, 10], [40, 10], [12, 10]][seed]
    sampler = NeighborSampler(graph, fanouts, replace=seed in (3, 7), seed=seed)
    _compare_interleaved(random, sampler, seed)


@pytest.mark.parametrize("seed", range(6))
def test_trees_of_warps_that_take_turns_by_chance(seed, monkeypatch):
    """Who comes first decides where a pair of a tree and a node is kept, in tables that are nearly half full, and nothing else."""
    monkeypatch.setattr(relabel, "FEWEST_KEYS", 32)
    for kernels in (links, relabel, sampling, time_windows):
        monkeypatch.setattr(kernels, "BLOCK", 32)
    random = np.random.default_rng(seed)
    graph = homogeneous_graph(random, 40, 80 if seed < 3 else 600, hub_degree=150 * (seed % 2))
    graph = timed_graph(random, graph) if seed % 3 else graph
    fanouts = [[3, 2], [3, 2], [70, 2], [12, 10], [25, 10], [30, 3]][seed]
    options = {"takes_last": True} if seed % 3 == 2 else {"disjoint": True, "reach": 40}
    _compare_interleaved(random, NeighborSampler(graph, fanouts, replace=seed == 4, seed=seed, **options), seed)


@pytest.mark.parametrize("seed", range(4))
def test_shared_draws_of_warps_that_take_turns_by_chance(seed, monkeypatch):
    """Programs of one warp and of several, that take one list after another; lists that are read again, where more came than expected."""
    monkeypatch.setattr(relabel, "BLOCK", 32)
    monkeypatch.setattr(shared, "LANES", [32, 64, 128, 128][seed])
    monkeypatch.setattr(shared, "_expected", [lambda fanout: 2 * fanout + 24, lambda fanout: fanout][seed % 2])
    random = np.random.default_rng(seed)
    graph = homogeneous_graph(random, 40, 80 if seed < 2 else 600, hub_degree=400)
    _compare_interleaved(random, NeighborSampler(graph, [[3, 2], [12, 2], [70, 2], [25, 10]][seed], shared_draws=2, seed=seed), seed)


def _compare_interleaved(random, sampler, seed):
    graph = sampler.graph
    with interleaved(random):
        ours = device_sampler(sampler, CPU, "pinned" if seed % 2 else "device", random_lists(random, graph) if seed % 2 else None)
        workspace = ours.workspace()
        for batch in range(2):
            left_out = random_edges(random, graph, [EDGE]) if seed % 3 else None
            moments = random_moments(random, graph, 9) if sampler.is_temporal else None
            compare(ours, sampler, NODE, random.integers(0, 40, 9), workspace, batch=batch, left_out=left_out, moments=moments)


@pytest.mark.parametrize("seed", range(8))
def test_decisions_of_warps_that_take_turns_by_chance(seed, monkeypatch):
    """Many programs of few warps' ids, tiles of one warp and of several; caches that hold little, half, and nearly all."""
    monkeypatch.setattr(cache_fifo, "BLOCK", 32 if seed < 4 else 256)
    monkeypatch.setattr(cache_fifo, "TILE", [16, 256][seed % 2])
    random, num_nodes = np.random.default_rng(seed), 400 if seed < 4 else 2000
    with interleaved(random):
        fifo.compare(random, num_nodes, int([0.1, 0.5, 0.9, 0.99][seed % 4] * num_nodes), CPU, num_filled=num_nodes // 2)
