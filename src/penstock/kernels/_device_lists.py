"""Parts shared by the device kernels that draw from neighbour lists: frontiers, lists, counters, reading neighbours. Imports Triton.

In: tensors that the device can read. Out: parts of kernels. Invariant: a list that lies outside the edges counts as empty, and `status`
records it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

CLEAN = (1 << 63) - 1
"""The value of `status` where no damage was found."""

_CLEAN: tl.constexpr = tl.constexpr(CLEAN)

SLICES = (
    "nodes", "span", "taken", "words", "copies", "order", "within", "before", "arrived", "row_ptr", "positions", "columns", "neighbors",
    "status", "drawable",
)  # fmt: skip
"""Arguments that may begin anywhere in a larger tensor: a new alignment must not compile a new kernel in the middle of a run."""


class Kept(NamedTuple):
    """The lists of the highest-ranked nodes: of all lists in the order of rank, a prefix; see `cached_lists.reference.read_prefix`.

    Attributes:
        ranks: int32 or int64[num_dst], a permutation; the list of v is kept if ranks[v] < num_kept.
        prefix_ptr: int64[num_kept + 1].
        cached: indices.dtype[prefix_ptr[-1]].
    """

    ranks: torch.Tensor
    prefix_ptr: torch.Tensor
    cached: torch.Tensor


class InTime(NamedTuple):
    """The edges that a frontier may draw from, where edges have times.

    Attributes:
        windows: int64[b, 2], see `time_windows.gpu`: parts of the lists in the order of time.
        by_time: int32 or int64[num_edges], position in the order of time -> position in `indices`; None: the lists are in that order.
    """

    windows: torch.Tensor
    by_time: torch.Tensor | None


def kept_arguments(kept: Kept | None) -> tuple[Any, ...]:
    """The arguments of a kernel for kept lists: ranks, prefix_ptr, num_kept, cached."""
    return (None, None, 0, None) if kept is None else (kept.ranks, kept.prefix_ptr, kept.prefix_ptr.numel() - 1, kept.cached)


def place_of(hop: int, edge_type: int) -> int:
    """The part of counter word 1 that holds hop and edge type, as an int32: Triton compiles a kernel per integer type, so all values must
    have the same one."""
    word = hop << 16 | edge_type << 20
    return word - (1 << 32) if word >= 1 << 31 else word


@triton.jit
def load_nodes(nodes, span, row):
    """Return (the nodes of some rows of a frontier, which rows are inside it)."""
    begin = tl.load(span)
    inside = row < tl.load(span + 1) - begin
    return tl.load(nodes + begin + row, mask=inside, other=0), inside


@triton.jit
def find_list(indptr, num_edges, node, inside):
    """Return (begin of a node's list, its length, whether it lies outside the edges); in the last case the length is 0."""
    start = tl.load(indptr + node, mask=inside, other=0)
    end = tl.load(indptr + node + 1, mask=inside, other=0)
    damaged = (start < 0) | (start > end) | (end > num_edges)
    return start, tl.where(damaged, 0, end - start), damaged


@triton.jit
def find_part(indptr, num_edges, windows, node, row, inside, IN_TIME: tl.constexpr):
    """As `find_list`, for the part of the list that may be drawn; a window always lies inside the edges."""
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
    """How many edges are sampled from a list of length `degree`."""
    drawn = tl.where(degree > 0, fanout, 0)
    if REPLACE:
        return tl.where(fanout < 0, degree, drawn)
    else:
        return tl.where((fanout < 0) | (degree <= fanout), degree, drawn)


@triton.jit
def begin_rows(first, row, count, b, within, before, row_ptr, BLOCK: tl.constexpr):
    """Write where the edges of some rows of one block begin, from row `first` on. Returns the begins, with row 0 at 0.

    `count`: edges of each row. `within`, `before`: running sums, see `sample_neighbors.gpu.Counted`.
    """
    base = tl.load(before)
    end = tl.load(before + first // BLOCK) + tl.load(within + row, mask=row < b, other=0)
    tl.store(row_ptr + 1 + row, end, mask=row < b)
    tl.store(row_ptr + row, base + tl.zeros_like(row), mask=row == 0)
    return end - count - base


@triton.jit
def counter_words(node, copy, place):
    """Words 0, 1 and 3 of a node's counter; see `penstock.rng`."""
    word_1 = (node >> 32).to(tl.uint32) | ((copy >> 12) << 8).to(tl.uint32) | place.to(tl.uint32)
    return node.to(tl.uint32), word_1, ((copy & 0xFFF) << 20).to(tl.uint32)


@triton.jit
def load_words(words):
    """Return the two words of the key, and word 2 of the counter: the batch index."""
    return tl.load(words).to(tl.uint32), tl.load(words + 1).to(tl.uint32), tl.load(words + 2).to(tl.uint32)


@triton.jit
def read(indices, node, inside, start, position, taken, ranks, prefix_ptr, num_kept, cached, HAS_KEPT: tl.constexpr):
    """Read the neighbours of a tile of nodes at the drawn positions; those in kept lists from `cached`."""
    if HAS_KEPT:
        rank = tl.load(ranks + node, mask=inside, other=0)
        is_kept = inside & (rank < num_kept)
        shift = tl.load(prefix_ptr + rank[:, None], mask=is_kept[:, None], other=0)  # Triton 3.6 fails at [:, None] of a loaded value
        near = tl.load(cached + (shift + position - start), mask=taken & is_kept[:, None], other=0)
        far = tl.load(indices + position, mask=taken & (rank >= num_kept)[:, None], other=0)
        return tl.where(is_kept[:, None], near, far)
    else:
        return tl.load(indices + position, mask=taken, other=0)


@triton.jit
def tell_first(status, damaged, number):
    """Lower the number at `status` to the smallest `number` with `damaged` set."""
    first = tl.min(tl.where(damaged, number, _CLEAN).reshape(number.numel), axis=0)
    tl.atomic_min(status, first, mask=first != _CLEAN, sem="relaxed")


@triton.jit
def tell_wrong(neighbor, taken, num_src, number, status):
    """Lower status[1] to the smallest `number` whose neighbour is out of range."""
    tell_first(status + 1, taken & ((neighbor < 0) | (neighbor >= num_src)), number)
