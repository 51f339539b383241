"""The kernels of orders against their references, byte for byte: isolated nodes, components, self-loops, repeated edges, no edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.breadth_first import cpu, reference
from penstock.kernels.build_csc import reference as build
from penstock.kernels.label_communities import cpu as communities_cpu
from penstock.kernels.label_communities import reference as communities_reference
from tests.graphs import assert_same_bytes

SEEDS = st.integers(0, 2**32 - 1)


def random_types(random, dtype):
    """Sizes of node types and edge types as (indptr, indices, first_src, first_dst), with self-loops and repetitions among the edges."""
    sizes = random.integers(0, 40, int(random.integers(1, 4)))
    firsts = np.concatenate([[0], np.cumsum(sizes)])
    adjacency = []
    for _ in range(int(random.choice([1, 3]))):  # compiled for each number of edge types
        s, d = random.integers(0, sizes.size, 2)
        num_edges = int(random.choice([0, 5, 40, 300])) if sizes[s] and sizes[d] else 0
        src, dst = random.integers(0, max(sizes[s], 1), num_edges), random.integers(0, max(sizes[d], 1), num_edges)
        indptr, indices, _ = build.build_csc(src, dst, int(sizes[d]))
        adjacency.append((indptr, indices.astype(dtype), int(firsts[s]), int(firsts[d])))
    return int(firsts[-1]), adjacency


def outgoing(adjacency, num_nodes, limit, dtype):
    counts = np.zeros(num_nodes + 1, dtype=np.int64)
    for indptr, indices, first_src, _ in adjacency:
        cpu.count_outgoing(indptr, indices, first_src, limit, counts[1:])
    out_ptr = np.cumsum(counts)
    cursor, out_nodes = out_ptr[:-1].copy(), np.full(int(out_ptr[-1]), 0x5A, dtype=dtype)
    for indptr, indices, first_src, first_dst in adjacency:
        cpu.place_outgoing(indptr, indices, first_src, first_dst, limit, cursor, out_nodes)
    return out_ptr, out_nodes


def traverse(adjacency, out_ptr, out_nodes, roots, is_wanted):
    num_wanted = int(is_wanted.sum())
    marks = is_wanted.astype(np.uint8) * cpu.WANTED
    queue, order = np.full(is_wanted.size, 0x5A, dtype=np.int32), np.full(num_wanted, 0x5A5A, dtype=np.int64)
    firsts = np.array([[first_src, first_dst] for _, _, first_src, first_dst in adjacency], dtype=np.int64)
    indptrs, indices = tuple(entry[0] for entry in adjacency), tuple(entry[1] for entry in adjacency)
    return order[: cpu.breadth_first(indptrs, indices, firsts, out_ptr, out_nodes, roots, num_wanted, marks, queue, order)]


@given(SEEDS, st.integers(1, 6), st.sampled_from([np.int32, np.int64]))
def test_breadth_first(seed, limit, dtype):
    random = np.random.default_rng(seed)
    num_nodes, adjacency = random_types(random, dtype)
    expected = reference.build_outgoing(adjacency, num_nodes, limit)
    lists = outgoing(adjacency, num_nodes, limit, dtype)
    assert_same_bytes(lists[0], expected[0])
    assert_same_bytes(lists[1].astype(np.int64), expected[1])
    is_wanted = random.random(num_nodes) < random.choice([0.1, 0.5, 1.0])
    roots = random.permutation(np.flatnonzero(is_wanted))[: int(random.integers(1, num_nodes + 2))]
    nothing = np.empty(0, np.int64), np.empty(0, dtype)
    for out_ptr, out_nodes in (lists, nothing):
        order = traverse(adjacency, out_ptr, out_nodes, roots, is_wanted)
        assert_same_bytes(order, reference.breadth_first(adjacency, out_ptr, out_nodes, roots, is_wanted))


@given(SEEDS, st.sampled_from([np.int32, np.int64]))
def test_label_communities(seed, dtype):
    random = np.random.default_rng(seed)
    num_nodes, adjacency = random_types(random, dtype)
    max_size = int(random.integers(1, num_nodes + 2))
    firsts = np.array([[first_src, first_dst] for _, _, first_src, first_dst in adjacency], dtype=np.int64)
    arrays = tuple(entry[0] for entry in adjacency), tuple(entry[1] for entry in adjacency), firsts
    nothing = np.empty(0, np.int64), np.empty(0, dtype)
    for lists in (outgoing(adjacency, num_nodes, 2, dtype), nothing):
        labels, sizes, counts = np.arange(num_nodes, dtype=np.int32), np.ones(num_nodes, np.int32), np.zeros(num_nodes, np.int32)
        expected = labels.copy(), sizes.copy()
        for _ in range(3):
            changed = communities_cpu.propagate(*arrays, *lists, max_size, labels, sizes, counts)
            assert changed == communities_reference.propagate(adjacency, *lists, max_size, *expected)
            assert_same_bytes(labels, expected[0])
            assert_same_bytes(sizes, expected[1])
            assert not counts.any()
        assert_same_bytes(np.bincount(labels, minlength=num_nodes).astype(np.int32), sizes)


@given(SEEDS, st.booleans())
def test_asymmetry(seed, is_mirrored):
    random = np.random.default_rng(seed)
    num_edges = int(random.integers(0, 200))
    src, dst = random.integers(0, 30, (2, num_edges))
    if is_mirrored:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    indptr, indices, _ = build.build_csc(src, dst, 30)
    total, bad = cpu.sum_asymmetry(indptr, indices, 30, 3, 3)
    assert (total, bad) == reference.sum_asymmetry(indptr, indices, 30, 3, 3)
    assert bad == -1
    for num_src in random.integers(0, 30, 3):
        assert cpu.sum_asymmetry(indptr, indices, num_src, 3, 3) == reference.sum_asymmetry(indptr, indices, num_src, 3, 3)
    pairs = np.bincount(src * 30 + dst, minlength=900).reshape(30, 30)
    assert (int(total) == 0) == bool((pairs == pairs.T).all())


@pytest.mark.parametrize("degree", [0, 1, 3, 4, 5, 100])
def test_picks_are_distinct_and_inside(degree):
    for limit in (1, 2, 4, 7):
        slots = reference.pick_slots(degree, limit)
        assert len(slots) == len(set(slots)) == min(degree, limit)
        assert all(0 <= slot < degree for slot in slots)
