"""Partitioning by blocks of connected nodes: BGL's partition."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock import rng
from penstock.kernels.bfs_blocks import cpu as kernels
from penstock.order.grouping import group_by
from penstock.order.orders import permutation
from penstock.order.view import UndirectedView, read_at_random
from penstock.partition.kinds import by_type, count_kinds, label_kinds, view_parts
from penstock.records import Graph, NodeType

BLOCKS = 256
"""Blocks per part, if all had the largest size. With 64, the cut was up to a quarter larger on three real graphs, and a tenth smaller on
one."""

LARGE = 10
"""One block in LARGE counts as large."""


def assign_blocks(graph: Graph, num_parts: int, *, train: Mapping[NodeType, np.ndarray], seed: int) -> dict[NodeType, np.ndarray]:
    """BGL's partition: blocks are grown from random sources, small ones are merged, then each goes to the best part, largest first.

    Returns:
        node type -> int16[num_nodes]. A part may exceed its share by some percent, since blocks are not divided.
    Cost: three passes over all edges, in random order; 26 bytes per node, and 24 per pair of blocks with an edge between them, beside the
        view; blocks * parts steps.
    Source: Liu et al. 2023, 3.3; how the score differs: `kernels/bfs_blocks/reference.py`.
    """
    view, kinds = view_parts(graph), label_kinds(graph, train)
    max_size = max(kinds.size // (num_parts * BLOCKS), 1)
    with read_at_random(view):
        blocks = merge_blocks(view, *grow_blocks(view, max_size, seed), max_size)
        num_blocks = int(blocks.max()) + 1
        members, member_ptr = _group(blocks, num_blocks)
        link_ptr, counts, met = np.zeros(num_blocks + 1, np.int64), np.zeros(num_blocks, np.int64), np.empty(num_blocks, np.int64)
        links = weights = np.empty(0, np.int64)
        kernels.link(*view.arrays, members, member_ptr, blocks, link_ptr, links, weights, counts, met)
        links, weights = (np.empty(link_ptr[-1], np.int64) for _ in range(2))
        kernels.link(*view.arrays, members, member_ptr, blocks, link_ptr, links, weights, counts, met)
    num_kinds = count_kinds(graph, kinds).size
    contents = np.bincount(blocks * np.int64(num_kinds) + kinds, minlength=num_blocks * num_kinds).reshape(num_blocks, num_kinds)
    contents[:, ::2] += contents[:, 1::2]  # nodes of each type, then train nodes of it
    order = np.argsort(-np.diff(member_ptr), kind="stable")
    loads, owners = np.zeros((num_kinds, num_parts), np.int64), np.full(num_blocks, -1, np.int16)
    kernels.place(link_ptr, links, weights, order, contents, contents.sum(0) / num_parts, loads, owners, np.zeros(num_parts, np.int64))
    return by_type(graph, owners[blocks])


def grow_blocks(view: UndirectedView, max_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Grow blocks from sources in random order.

    Returns:
        int32[num_nodes] (int64 from 2**31 on): the block of each node; the same dtype, [num_blocks]: their sizes.
    """
    num_nodes = view.num_nodes
    sources = permutation(num_nodes, 0, num_nodes, rng.derive_key(seed, 0, rng.PARTITION)).astype(view.id_dtype)
    blocks, sizes, queue = np.full_like(sources, -1), np.zeros_like(sources), np.empty_like(sources)
    num_blocks = kernels.grow(*view.arrays, sources, max_size, blocks, sizes, queue)
    return blocks, sizes[:num_blocks].copy()


def merge_blocks(view: UndirectedView, blocks: np.ndarray, sizes: np.ndarray, max_size: int) -> np.ndarray:
    """Merge small blocks into large neighbours, as long as these stay below twice the largest size; then merge the remaining small blocks
    with each other.

    Args:
        blocks, sizes: from `grow_blocks`; sizes are modified.
    Returns:
        [num_nodes], the same dtype: the block of each node, renumbered.
    """
    own = sizes.copy()
    is_large = np.zeros(sizes.size, bool)
    is_large[np.argsort(-sizes, kind="stable")[: -(-sizes.size // LARGE)]] = True
    targets, (members, member_ptr) = np.empty_like(sizes), _group(blocks, sizes.size)
    counts, met = np.zeros(sizes.size, np.int64), np.empty(sizes.size, np.int64)
    kernels.join(*view.arrays, members, member_ptr, blocks, is_large, 2 * max_size, sizes, targets, counts, met)
    left = np.flatnonzero((targets == np.arange(targets.size)) & ~is_large)
    bins = (np.cumsum(own[left], dtype=np.int64) - 1) // max_size  # sources are random, so blocks next to each other in this order are, too
    targets[left] = left[np.searchsorted(bins, bins)]
    _, numbers = np.unique(targets, return_inverse=True)
    return numbers.astype(blocks.dtype)[blocks]


def _group(blocks: np.ndarray, num_blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes sorted by block, and where those of each block begin."""
    members = group_by(np.arange(blocks.size, dtype=blocks.dtype), lambda nodes: blocks[nodes], num_blocks)
    return members, np.concatenate([[0], np.cumsum(np.bincount(blocks, minlength=num_blocks))])
