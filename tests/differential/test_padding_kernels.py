"""Hops filled up to sizes: kernels against the definition, byte for byte, and what the definition promises. Marked `gpu` on a device."""

import numpy as np
import pytest
import torch

from penstock.kernels.pad_hops import cpu, reference
from tests.graphs import assert_same_bytes


def random_hops(random, num_hops, most=40):
    """int64[num_hops, 2]: counts, some of them none, and sizes, larger by one at least."""
    counts = random.integers(0, most, num_hops) * (random.random(num_hops) < 0.8)
    return np.stack([counts, counts + random.integers(1, 12, num_hops)], axis=1)


def random_sample(random, num_hops):
    """(edge_index, row_ptr, edges, sources, targets, numbers of the edges) as a sampler might give for two node types."""
    sources, targets = random_hops(random, num_hops + 1), random_hops(random, num_hops + 1)
    ends, firsts = np.cumsum(sources[:, 0]), np.cumsum(targets[:, 0]) - targets[:, 0]
    halves, counts = [np.empty((2, 0), np.int64)], []
    for hop in range(num_hops):
        is_none = targets[hop, 0] == 0 or ends[hop + 1] == 0
        counts.append(0 if is_none else int(random.integers(0, 60)))
        to = np.sort(random.integers(firsts[hop], firsts[hop] + targets[hop, 0], counts[-1])) if counts[-1] else np.empty(0, np.int64)
        halves.append(np.stack([random.integers(0, max(1, ends[hop + 1]), counts[-1]), to]))
    edge_index = np.concatenate(halves, axis=1)
    edges = np.stack([counts, np.array(counts) + random.integers(0, 30, num_hops)], axis=1).astype(np.int64)
    row_ptr = np.searchsorted(edge_index[1], np.arange(targets[:-1, 0].sum() + 1))
    return edge_index, row_ptr, edges, sources, targets, random.integers(0, 1 << 40, edge_index.shape[1])


def expected_of(sample):
    edge_index, _, edges, sources, targets, numbers = sample
    padded = reference.pad_edges(edge_index, edges, sources, targets)
    return padded, reference.pad_row_ptr(padded, targets[:-1, 1].sum()), reference.pad_ids(numbers, edges)


def padded_by(kernels, sample, where=lambda array: array):
    edge_index, row_ptr, edges, sources, targets, numbers = sample
    size = edges[:, 1].sum()
    out, out_ptr, out_numbers = (where(np.empty(n, np.int64)) for n in (2 * size, targets[:-1, 1].sum() + 1, size))
    hops = [where(each) for each in (edges, sources, targets)]
    kernels.pad_edges(where(edge_index[0].copy()), where(edge_index[1].copy()), *hops, out[:size], out[size:])
    kernels.pad_row_ptr(where(row_ptr), hops[0], hops[2], out_ptr)
    kernels.pad_ids(where(numbers), hops[0], out_numbers)
    return out.reshape(2, size), out_ptr, out_numbers


@pytest.mark.parametrize("num_hops", [0, 1, 2, 3, 5])
def test_the_processor_pads_as_defined(num_hops):
    random = np.random.default_rng()
    for _ in range(40):
        sample = random_sample(random, num_hops)
        for got, expected in zip(padded_by(cpu, sample), expected_of(sample), strict=True):
            assert_same_bytes(got, expected)


@pytest.mark.parametrize("num_hops", [1, 2, 3])
def test_a_device_pads_as_defined(num_hops, reader, monkeypatch):
    from penstock.kernels.pad_hops import gpu

    random = np.random.default_rng()
    for block in (32, 1024):
        monkeypatch.setattr(gpu, "BLOCK", block)
        for _ in range(4):
            sample = random_sample(random, num_hops)
            padded = padded_by(gpu, sample, lambda array: torch.from_numpy(array).to(reader))
            for got, expected in zip(padded, expected_of(sample), strict=True):
                assert_same_bytes(got.cpu().numpy(), expected)


def test_what_fills_a_hop_touches_nothing_of_the_sample():
    random = np.random.default_rng()
    for _ in range(40):
        edge_index, _, edges, sources, targets, numbers = sample = random_sample(random, 3)
        padded, row_ptr, padded_numbers = expected_of(sample)
        is_real = padded_numbers >= 0
        new_sources, new_targets = (reference.pad_ids(np.arange(hops[:, 0].sum()), hops) for hops in (sources, targets))
        assert_same_bytes(padded_numbers[is_real], numbers)
        assert_same_bytes(np.stack([new_sources[padded[0, is_real]], new_targets[padded[1, is_real]]]), edge_index)
        assert (new_sources[padded[0, ~is_real]] == -1).all()
        assert (new_targets[padded[1, ~is_real]] == -1).all()
        assert (np.diff(padded[1]) >= 0).all()
        added = np.bincount(padded[1, ~is_real], minlength=targets[:, 1].sum())
        ends = np.cumsum(targets[:, 1])
        for hop, ((count, size), (num_targets, target_size)) in enumerate(zip(edges, targets, strict=False)):
            per_node = added[ends[hop] - target_size + num_targets : ends[hop]]
            assert per_node.sum() == size - count
            assert per_node.max() - per_node.min() <= 1
        assert row_ptr[-1] == edges[:, 1].sum()
