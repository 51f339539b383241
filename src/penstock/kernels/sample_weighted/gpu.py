"""One hop of neighbour sampling by weight over one edge type, on a device. Same result as `reference.py`, byte for byte.

In: tensors that the device can read; `indices` and `sums` may be pinned host memory. Out: row offsets, positions, neighbours. Invariant:
the number of edges of positive weight per list, known before anything is drawn, gives each edge its place in the output.

The nodes of a tile draw in step. Without replacement, a draw takes a number below the sum of the weights left and moves it up past the
taken intervals: to the least x that equals the number plus the lengths of the taken intervals that begin at or below x. The kernel moves
the number up until nothing changes, so the intervals need no order: each lane holds one. Then bisection searches the lists of all nodes at
once. For whole lists, a running sum skips the edges of weight 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from penstock.kernels._device_lists import (
    SLICES,
    any_of,
    begin_rows,
    counter_words,
    find_list,
    kept_arguments,
    load_nodes,
    load_words,
    num_taken,
    place_of,
    read,
    tell_wrong,
)
from penstock.kernels._triton import cdiv, launch
from penstock.kernels.sample_neighbors import gpu as uniform

ELEMENTS = 512
"""Elements of a tile per warp: this number of intervals stays in registers."""

_NEVER: tl.constexpr = tl.constexpr((1 << 63) - 1)


class Weights(NamedTuple):
    """The weights of the edges, prepared for drawing.

    Attributes:
        sums: int64[num_edges], see `kernels.running_sums`.
        drawable: int32 or int64[num_dst], how many edges of each list have a positive weight.
    """

    sums: torch.Tensor
    drawable: torch.Tensor


def sample_neighbors(
    weights, indptr, indices, num_src, nodes, span, fanout, replace, words, hop, edge_type, copies, counted, row_ptr, positions, columns,
    neighbors, status, kept=None, far=None,
):  # fmt: skip
    """Sample in-neighbours of a frontier by weight; arguments as in `sample_neighbors.gpu`, whose `count_neighbors` counts the frontier,
    given `weights.drawable`.

    A lane is a draw, so a program's lanes, for instance 1024, limit the fanout; -1 takes all edges of positive weight.
    """
    place, outputs = place_of(hop, edge_type), (row_ptr, positions, columns, neighbors, status)
    arguments = weights, indptr, indices, num_src, nodes, span
    if fanout < 0:
        _take_whole(*arguments, counted, kept, *outputs)
    else:
        _draw_tiles(*arguments, fanout, bool(replace), words, place, copies, counted, kept, far, *outputs)


def _draw_tiles(
    weights, indptr, indices, num_src, nodes, span, fanout, replace, words, place, copies, counted, kept, far, row_ptr, positions, columns,
    *found,
):  # fmt: skip
    b, device, lanes = row_ptr.numel() - 1, nodes.device, max(4, triton.next_power_of_2(fanout))
    rows = min(32, max(1, ELEMENTS // lanes))  # searches wait for single reads: many small programs
    assert uniform.BLOCK % rows == 0, "a tile lies in one block"
    arguments = (indptr, indices, *weights, indices.numel(), num_src, nodes, span, fanout, words, place, copies)
    launch(
        _draw_weighted, cdiv(b, rows), device, *arguments, *kept_arguments(kept), b, counted.within, counted.blocks.before, row_ptr,
        positions, columns, *found, REPLACE=replace, HAS_COPIES=copies is not None, HAS_KEPT=kept is not None, READS=far is None, ROWS=rows,
        LANES=lanes, BLOCK=uniform.BLOCK, num_warps=max(1, rows * lanes // ELEMENTS),
    )  # fmt: skip
    if far is not None:
        uniform.read_far(indptr, indices, num_src, nodes, span, lanes, kept, far, row_ptr, positions, *found)


def _take_whole(weights, indptr, indices, num_src, nodes, span, counted, kept, row_ptr, positions, columns, *found):
    b, device = row_ptr.numel() - 1, nodes.device
    uniform.add_up(counted, row_ptr)
    launch(_take_list, b, device, indptr, weights.sums, indices.numel(), nodes, span, row_ptr, positions, columns, BLOCK=uniform.BLOCK)
    uniform.read_edges(indptr, indices, num_src, nodes, kept, positions, columns, *found)


@triton.jit
def _below_sum(w0, w1, w2, bound):
    """See `penstock.rng.below_sum`."""
    w0, w1, w2, bound = w0.to(tl.uint64), w1.to(tl.uint64), w2.to(tl.uint64), bound.to(tl.uint64)
    low, high = bound & 0xFFFFFFFF, bound >> 32
    p1 = w1 * low + ((w2 * low) >> 32)
    p0 = w0 * low + (p1 >> 32)
    carry = (w2 * high + (p1 & 0xFFFFFFFF)) >> 32
    carry = (w1 * high + (p0 & 0xFFFFFFFF) + carry) >> 32
    return (w0 * high + (p0 >> 32) + carry).to(tl.int64)


@triton.jit
def _some(flags):
    return tl.max(flags.to(tl.int32).reshape(flags.numel), axis=0) != 0


@triton.jit
def _find(sums, start, degree, sought, is_asked):
    """The first position of each list whose running sum exceeds the number sought."""
    low = start
    left = tl.where(is_asked, degree, 1)
    while _some(left > 1):
        half = left >> 1
        is_open = left > 1
        is_before = is_open & (tl.load(sums + (low + half - 1), mask=is_open, other=0) <= sought)
        low = tl.where(is_before, low + half, low)
        left = left - half
    return low


@triton.jit(
    do_not_specialize=("num_edges", "num_src", "fanout", "place", "num_kept", "b"),
    do_not_specialize_on_alignment=SLICES,
)
def _draw_weighted(
    indptr, indices, sums, drawable, num_edges, num_src, nodes, span, fanout, words, place, copies, ranks, prefix_ptr, num_kept, cached,
    b, within, before, row_ptr, positions, columns, neighbors, status, REPLACE: tl.constexpr, HAS_COPIES: tl.constexpr,
    HAS_KEPT: tl.constexpr, READS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For ROWS nodes of one block: draw, read the neighbours, and write where the edges of each node begin."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row = first + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)[None, :]
    node, inside = load_nodes(nodes, span, row)
    start, degree, _ = find_list(indptr, num_edges, node, inside)
    total = tl.load(sums + (start + degree - 1), mask=inside & (degree > 0), other=0)
    draws = (total > 0) if REPLACE else (total > 0) & (degree > fanout)
    position = start[:, None] + lane.to(tl.int64)
    taken = (inside & (draws == 0))[:, None] & (lane < degree[:, None])
    taken = taken & (tl.load(sums + position, mask=taken, other=0) > tl.load(sums + (position - 1), mask=taken & (lane > 0), other=0))
    place_in_list = tl.cumsum(taken.to(tl.int32), axis=1) - 1

    if any_of(draws):
        copy = tl.load(copies + tl.load(span) + row, mask=inside, other=0) if HAS_COPIES else tl.zeros_like(row)
        c0, c1, c3 = counter_words(node, copy, place)
        k0, k1, c2 = load_words(words)
        if REPLACE:
            zero = tl.zeros((ROWS, LANES), tl.uint32)
            w0, w1, w2, _w3 = tl.philox_impl(
                c0[:, None] + zero, c1[:, None] + zero, c2 + zero, c3[:, None] + lane.to(tl.uint32) + zero, k0, k1
            )
            sought = _below_sum(w0, w1, w2, total[:, None] + zero.to(tl.int64))
            is_asked = draws[:, None] & (lane < fanout)
            starts = start[:, None] + zero.to(tl.int64)
            drawn = _find(sums, starts, degree[:, None] + zero.to(tl.int64), sought, is_asked)
        else:
            drawn = _draw_apart(sums, start, degree, total, draws, fanout, c0, c1, c2, c3, k0, k1, ROWS, LANES)
        position = tl.where(draws[:, None], drawn, position)

    count = tl.where(inside, num_taken(tl.load(drawable + node, mask=inside & (degree > 0), other=0), fanout, REPLACE), 0).to(tl.int64)
    begin = begin_rows(first, row, count, b, within, before, row_ptr, BLOCK)
    taken = tl.where(draws[:, None], lane < count[:, None], taken)
    number = begin[:, None] + tl.where(draws[:, None], lane, place_in_list)
    tl.store(positions + number, position, mask=taken)
    tl.store(columns + number, tl.load(span) + row[:, None] + tl.zeros_like(number), mask=taken)
    if READS:
        start = start[:, None] + tl.zeros_like(position)
        neighbor = read(indices, node, inside, start, position, taken, ranks, prefix_ptr, num_kept, cached, HAS_KEPT)
        tl.store(neighbors + number, neighbor, mask=taken)
        tell_wrong(neighbor, taken, num_src, number, status)


@triton.jit
def _draw_apart(sums, start, degree, total, draws, fanout, c0, c1, c2, c3, k0, k1, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Draw without replacement. Returns int64[ROWS, LANES] positions: per node at most `fanout`, fewer if fewer have a positive weight."""
    lane = tl.arange(0, LANES)[None, :]
    drawn = tl.zeros((ROWS, LANES), tl.int64)
    begins = tl.full((ROWS, LANES), _NEVER, tl.int64)
    lengths = tl.zeros((ROWS, LANES), tl.int64)
    left = tl.where(draws, total, 0)
    to_draw = fanout
    while to_draw != 0:
        draw = fanout - to_draw
        is_asked = left > 0
        w0, w1, w2, _w3 = tl.philox_impl(c0, c1, c2 + tl.zeros_like(c0), c3 + draw.to(tl.uint32), k0, k1)
        lowest = _below_sum(w0, w1, w2, left)
        sought = lowest
        changed = 1
        while changed != 0:
            moved = lowest + tl.sum(tl.where(begins <= sought[:, None], lengths, 0), axis=1)
            changed = tl.max((moved != sought).to(tl.int32), axis=0)
            sought = moved
        position = _find(sums, start, degree, sought, is_asked)
        begin = tl.load(sums + (position - 1), mask=is_asked & (position > start), other=0)
        length = tl.load(sums + position, mask=is_asked, other=0) - begin
        is_here = is_asked[:, None] & (lane == draw)
        drawn = tl.where(is_here, position[:, None], drawn)
        begins = tl.where(is_here, begin[:, None], begins)
        lengths = tl.where(is_here, length[:, None], lengths)
        left = left - length
        to_draw -= 1
    return drawn


@triton.jit(do_not_specialize=("num_edges",), do_not_specialize_on_alignment=SLICES)
def _take_list(indptr, sums, num_edges, nodes, span, row_ptr, positions, columns, BLOCK: tl.constexpr):
    """Take all edges of one list that have a positive weight."""
    row = tl.program_id(0).to(tl.int64)
    node, inside = load_nodes(nodes, span, row)
    start, degree, _ = find_list(indptr, num_edges, node, inside)
    degree = tl.where(inside, degree, 0)
    number = tl.load(row_ptr + row) - tl.load(row_ptr)
    column = tl.load(span) + row
    slot = tl.arange(0, BLOCK).to(tl.int64)
    while tl.min(slot, axis=0) < degree:
        position, listed = start + slot, slot < degree
        here = tl.load(sums + position, mask=listed, other=0)
        taken = listed & (here > tl.load(sums + (position - 1), mask=listed & (slot > 0), other=0))
        place = number + tl.cumsum(taken.to(tl.int64), axis=0) - 1
        tl.store(positions + place, position, mask=taken)
        tl.store(columns + place, column + tl.zeros_like(place), mask=taken)
        number += tl.sum(taken.to(tl.int64), axis=0)
        slot += BLOCK
