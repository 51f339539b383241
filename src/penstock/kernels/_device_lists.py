"""What kernels that draw of neighbour lists on a device share: frontiers, lists, counters, and reading what was drawn. Imports Triton.

In: tensors that the device can read. Out: parts of kernels. Invariant: a list that lies outside the edges counts as empty, and is told.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

CLEAN = (1 << 63) - 1
"""What `status` holds where nothing is damaged."""

_CLEAN: tl.constexpr = tl.constexpr(CLEAN)

SLICES = (
    "nodes", "span", "taken", "words", "copies", "order", "within", "before", "arrived", "row_ptr", "positions", "columns", "neighbors",
    "status", "drawable",
)  # fmt: skip
"""Arguments that begin anywhere in a larger tensor: another alignment is not to be another kernel, compiled in the middle of a run."""


class Kept(NamedTuple):
    """Lists of the best nodes, a prefix of all lists in the order of rank; see `cached_lists.reference.read_prefix`.

    Attributes:
        ranks: int32 or int64[num_dst], a permutation.
        prefix_ptr: int64[num_kept + 1].
        cached: indices.dtype[prefix_ptr[-1]].
    """

    ranks: torch.Tensor
    prefix_ptr: torch.Tensor
    cached: torch.Tensor


class InTime(NamedTuple):
    """What may be drawn of the lists of a frontier, where edges have times.

    Attributes:
        windows: int64[b, 2], see `time_windows.gpu`: parts of the lists in the order of time.
        by_time: int32 or int64[num_edges], position in that order -> position; None: lists lie in it.
    """

    windows: torch.Tensor
    by_time: torch.Tensor | None


def kept_arguments(kept: Kept | None) -> tuple[Any, ...]:
    """What kernels take of lists that are kept."""
    return (None, None, 0, None) if kept is None else (kept.ranks, kept.prefix_ptr, kept.prefix_ptr.numel() - 1, kept.cached)


def place_of(hop: int, edge_type: int) -> int:
    """Their part of word 1 of the counter, as an int32: a kernel is compiled once for each type, and larger numbers would be another
    one."""
    word = hop << 16 | edge_type << 20
    return word - (1 << 32) if word >= 1 << 31 else word


@triton.jit
def load_nodes(nodes, span, row):
    """Nodes of a frontier, and which of them are there."""
    begin = tl.load(span)
    inside = row < tl.load(span + 1) - begin
    return tl.load(nodes + begin + row, mask=inside, other=0), inside


@triton.jit
def find_list(indptr, num_edges, node, inside):
    """Where the list of a node begins, how long it is, and whether it lies outside the edges: then it counts as empty."""
    start = tl.load(indptr + node, mask=inside, other=0)
    end = tl.load(indptr + node + 1, mask=inside, other=0)
    damaged = (start < 0) | (start > end) | (end > num_edges)
    return start, tl.where(damaged, 0, end - start), damaged


@triton.jit
def find_part(indptr, num_edges, windows, node, row, inside, IN_TIME: tl.constexpr):
    """The same of what may be drawn of the list; a window is known to lie inside."""
    if IN_TIME:
        start = tl.load(windows + 2 * row, mask=inside, other=0)
        return start, tl.load(windows + 2 * row + 1, mask=inside, other=0), inside & (row < 0)
    else:
        return find_list(indptr, num_edges, node, inside)


@triton.jit
def any_of(flags):
    return tl.max(flags.to(tl.int32), axis=0) != 0


@triton.jit
def num_taken(degree, fanout, REPLACE: tl.constexpr):
    """How many of a list are taken."""
    drawn = tl.where(degree > 0, fanout, 0)
    if REPLACE:
        return tl.where(fanout < 0, degree, drawn)
    else:
        return tl.where((fanout < 0) | (degree <= fanout), degree, drawn)


@triton.jit
def begin_rows(first, row, count, b, within, before, row_ptr, BLOCK: tl.constexpr):
    """Write where the edges of some rows begin, which are of one block, from row `first` on; returns it, counted from row 0.

    `count`: edges of each. `within`, `before`: running sums, see `sample_neighbors.gpu.Counted`.
    """
    base = tl.load(before)
    end = tl.load(before + first // BLOCK) + tl.load(within + row, mask=row < b, other=0)
    tl.store(row_ptr + 1 + row, end, mask=row < b)
    tl.store(row_ptr + row, base + tl.zeros_like(row), mask=row == 0)
    return end - count - base


@triton.jit
def counter_words(node, copy, place):
    """Words 0, 1 and 3 of the counter; see `penstock.rng`."""
    word_1 = (node >> 32).to(tl.uint32) | ((copy >> 12) << 8).to(tl.uint32) | place.to(tl.uint32)
    return node.to(tl.uint32), word_1, ((copy & 0xFFF) << 20).to(tl.uint32)


@triton.jit
def load_words(words):
    """The key, and word 2 of the counter: the batch."""
    return tl.load(words).to(tl.uint32), tl.load(words + 1).to(tl.uint32), tl.load(words + 2).to(tl.uint32)


@triton.jit
def read(indices, node, inside, start, position, taken, ranks, prefix_ptr, num_kept, cached, HAS_KEPT: tl.constexpr):
    """Neighbours of a tile of nodes at the positions that were drawn, those of kept lists from nearby."""
    if HAS_KEPT:
        rank = tl.load(ranks + node, mask=inside, other=0)
        is_kept = inside & (rank < num_kept)
        shift = tl.load(prefix_ptr + rank[:, None], mask=is_kept[:, None], other=0)  # Triton 3.6 fails over [:, None] of what is loaded
        near = tl.load(cached + (shift + position - start), mask=taken & is_kept[:, None], other=0)
        far = tl.load(indices + position, mask=taken & (rank >= num_kept)[:, None], other=0)
        return tl.where(is_kept[:, None], near, far)
    else:
        return tl.load(indices + position, mask=taken, other=0)


@triton.jit
def tell_first(status, damaged, number):
    """Lower a number at `status` to the first of those that are damaged."""
    first = tl.min(tl.where(damaged, number, _CLEAN).reshape(number.numel), axis=0)
    tl.atomic_min(status, first, mask=first != _CLEAN, sem="relaxed")


@triton.jit
def tell_wrong(neighbor, taken, num_src, number, status):
    """Lower status[1] to the first place whose neighbour is no node."""
    tell_first(status + 1, taken & ((neighbor < 0) | (neighbor >= num_src)), number)
