"""The kernels of partitions against their references, byte for byte: isolated nodes, components, self-loops, repeated edges, no edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.bfs_blocks import cpu as blocks_cpu
from penstock.kernels.bfs_blocks import reference as blocks_reference
from penstock.kernels.crossings import cpu as crossings_cpu
from penstock.kernels.crossings import reference as crossings_reference
from penstock.kernels.greedy_parts import cpu as greedy_cpu
from penstock.kernels.greedy_parts import reference as greedy_reference
from penstock.kernels.train_reach import cpu as reach_cpu
from penstock.kernels.train_reach import reference as reach_reference
from tests.differential.test_order_kernels import SEEDS, outgoing, random_types
from tests.graphs import assert_same_bytes, poisoned


def given_to_cpu(adjacency):
    """The leading arguments of kernels."""
    firsts = np.array([[first_src, first_dst] for _, _, first_src, first_dst in adjacency], dtype=np.int64)
    indptrs, indices = (tuple(entry[k] for entry in adjacency) for k in range(2))
    for array in (*indptrs, *indices):
        array.flags.writeable = False  # as of the undirected view, for which kernels are compiled anyway
    return indptrs, indices, firsts


def lists_of(random, adjacency, num_nodes):
    """Lists of out-neighbours, or none."""
    if random.integers(2):
        out_ptr, out_nodes = outgoing(adjacency, num_nodes, 2, np.int32)
        return out_ptr.astype(np.int32), out_nodes
    return np.empty(0, np.int32), np.empty(0, np.int32)


@given(SEEDS)
def test_greedy_parts(seed):
    random = np.random.default_rng(seed)
    num_nodes, adjacency = random_types(random, np.int32)
    lists, num_parts = lists_of(random, adjacency, num_nodes), int(random.integers(1, 6))
    kinds = random.integers(0, 3, num_nodes).astype(np.uint16)
    capacities = -(-np.bincount(kinds, minlength=3) // num_parts) + random.integers(0, 3, 3)
    counts, owners = np.zeros(num_parts, np.int64), random.integers(-1, num_parts, num_nodes).astype(np.int16)
    expected = owners.copy()
    for _ in range(2):
        nodes = random.permutation(num_nodes)[: int(random.integers(0, num_nodes + 1))].astype(np.int32)
        sizes = np.zeros((3, num_parts), np.int64)
        expected_sizes = sizes.copy()
        changed = greedy_cpu.place(*given_to_cpu(adjacency), *lists, nodes, kinds, capacities, sizes, owners, counts)
        assert changed == greedy_reference.place(adjacency, *lists, nodes, kinds, capacities, expected_sizes, expected)
        assert_same_bytes(owners, expected)
        assert_same_bytes(sizes, expected_sizes)
        assert not counts.any()


@given(SEEDS)
def test_train_reach(seed):
    random = np.random.default_rng(seed)
    num_nodes, adjacency = random_types(random, np.int32)
    num_parts, num_hops, limit = int(random.choice([1, 3, 9])), int(random.integers(0, 4)), int(random.integers(1, 20))
    kinds = random.integers(0, 4, num_nodes).astype(np.uint16)
    capacities = -(-np.bincount(kinds, minlength=4) // num_parts)
    nodes = random.permutation(np.flatnonzero(kinds % 2)).astype(np.int32)
    sizes, owners = np.zeros((4, num_parts), np.int64), np.full(num_nodes, -1, np.int16)
    expected_sizes, expected, expected_held = sizes.copy(), owners.copy(), [set() for _ in range(num_parts)]
    reach_reference.place(adjacency, nodes, num_hops, limit, kinds, capacities, expected_sizes, expected_held, expected)
    held, num_held, counts = (
        np.zeros((num_nodes, -(-num_parts // 8)), np.uint8),
        np.zeros(num_parts, np.int64),
        np.zeros(num_parts, np.int64),
    )
    turns, queue = np.full(num_nodes, -1, np.int32), poisoned(limit, np.int32)
    reach_cpu.place(
        *given_to_cpu(adjacency), nodes, num_hops, kinds, capacities, sizes, held, num_held, owners, turns, queue, counts
    )  # fmt: skip
    assert_same_bytes(owners, expected)
    assert_same_bytes(sizes, expected_sizes)
    assert num_held.tolist() == [len(each) for each in expected_held]
    bits = np.unpackbits(held, axis=1, bitorder="little")
    assert [set(np.flatnonzero(bits[:, part])) for part in range(num_parts)] == expected_held
    assert not counts.any()


@given(SEEDS)
def test_blocks(seed):
    random = np.random.default_rng(seed)
    num_nodes, adjacency = random_types(random, np.int32)
    lists = lists_of(random, adjacency, num_nodes)
    arguments, max_size = (*given_to_cpu(adjacency), *lists), int(random.integers(1, 30))
    sources = random.permutation(num_nodes).astype(np.int32)
    blocks, sizes, queue = np.full(num_nodes, -1, np.int32), np.zeros(num_nodes, np.int32), poisoned(num_nodes, np.int32)
    num_blocks = blocks_cpu.grow(*arguments, sources, max_size, blocks, sizes, queue)
    expected, expected_sizes = blocks_reference.grow(adjacency, *lists, sources, max_size)
    sizes = sizes[:num_blocks]
    assert blocks.tolist() == expected
    assert sizes.tolist() == expected_sizes

    members, member_ptr = np.argsort(blocks, kind="stable").astype(np.int32), np.cumsum([0, *sizes])
    is_large, counts, met = random.random(num_blocks) < 0.3, np.zeros(num_blocks, np.int64), poisoned(num_blocks)
    targets = poisoned(num_blocks, np.int32)
    blocks_cpu.join(*arguments, members, member_ptr, blocks, is_large, 2 * max_size, sizes, targets, counts, met)
    assert targets.tolist() == blocks_reference.join(adjacency, *lists, expected, is_large, 2 * max_size, expected_sizes)
    assert sizes.tolist() == expected_sizes
    assert not counts.any()

    links = blocks_reference.link(adjacency, *lists, expected, num_blocks)
    link_ptr, nothing = np.zeros(num_blocks + 1, np.int64), np.empty(0, np.int64)
    blocks_cpu.link(*arguments, members, member_ptr, blocks, link_ptr, nothing, nothing, counts, met)
    assert link_ptr.tolist() == np.cumsum([0, *map(len, links)]).tolist()
    ends, weights = poisoned(link_ptr[-1]), poisoned(link_ptr[-1])
    blocks_cpu.link(*arguments, members, member_ptr, blocks, link_ptr, ends, weights, counts, met)
    assert list(zip(ends.tolist(), weights.tolist(), strict=True)) == [pair for each in links for pair in each]
    assert not counts.any()

    num_parts, order = int(random.integers(1, 6)), random.permutation(num_blocks)
    contents = random.integers(0, 9, (num_blocks, 3))
    capacities = contents.sum(0) / num_parts * random.choice([0.5, 1], 3)
    loads, owners, in_parts = np.zeros((3, num_parts), np.int64), np.full(num_blocks, -1, np.int16), np.zeros(num_parts, np.int64)
    blocks_cpu.place(link_ptr, ends, weights, order, contents, capacities, loads, owners, in_parts)
    assert owners.tolist() == blocks_reference.place(links, order, contents, capacities, num_parts)
    assert not in_parts.any()


@given(SEEDS, st.sampled_from([1, 3, 64, 65, 130]))
def test_crossings(seed, num_parts):
    random = np.random.default_rng(seed)
    _, [(indptr, indices, _, _), *_] = random_types(random, np.int32)
    num_dst, num_src = indptr.size - 1, 40
    src_owners, dst_owners = (random.integers(0, num_parts, size).astype(np.int16) for size in (num_src, num_dst))
    edges, crossing, halo = (np.zeros(num_parts, np.int64) for _ in range(3))
    expected = [each.copy() for each in (edges, crossing, halo)]
    assert crossings_cpu.count_edges(indptr, indices, src_owners, dst_owners, edges, crossing) == -1
    assert crossings_reference.count_edges(indptr, indices, src_owners, dst_owners, *expected[:2]) == -1
    for first_part in range(0, num_parts, crossings_cpu.PARTS):
        marks, expected_marks = np.zeros(num_src, np.uint64), np.zeros(num_src, np.uint64)
        crossings_cpu.mark_halo(indptr, indices, dst_owners, first_part, marks)
        crossings_reference.mark_halo(indptr, indices, dst_owners, first_part, expected_marks)
        assert_same_bytes(marks, expected_marks)
        crossings_cpu.count_marks(marks, src_owners, first_part, halo)
        crossings_reference.count_marks(marks, src_owners, first_part, expected[2])
    for ours, theirs in zip((edges, crossing, halo), expected, strict=True):
        assert_same_bytes(ours, theirs)


@pytest.mark.parametrize("bad", [-1, 7, 1 << 20])
def test_sources_that_are_no_nodes(bad):
    indptr, indices, owners = np.array([0, 2, 5]), np.array([0, 1, 1, bad, 0]), np.zeros(7, np.int16)
    for kernels in (crossings_cpu, crossings_reference):
        edges, crossing = np.zeros(1, np.int64), np.zeros(1, np.int64)
        assert kernels.count_edges(indptr, indices, owners, owners[:2], edges, crossing) == 3
        assert edges.tolist() == [3]
