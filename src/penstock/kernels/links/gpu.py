"""Remove edges from a hop that a device has drawn. Same result as `reference.leave_out`, byte for byte.

In: the edges of a hop over one edge type, and sorted pairs of nodes. Out: the edges that are no such pair, in the same order. Invariants: a
running sum gives each edge its place in the output; nothing is allocated, so that a device can record the kernels with the rest of a batch
(`kernels/_recording.py`).

A lane is an edge and looks for its ends among the pairs by bisection; the pairs of one batch are few and stay in the nearest cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from penstock.kernels._block_sums import Blocks, make_blocks, sum_blocks
from penstock.kernels._triton import cdiv, launch

BLOCK = 1024
"""Elements per program."""

NOBODY = (1 << 63) - 1
"""Pads the pairs: no node, and larger than any."""

_SLICES = (
    "links", "row_ptr", "told", "neighbors", "nodes", "span", "start", "end", "ranks", "before", "arrived", "kept", "offsets",
)  # fmt: skip
"""Arguments that may begin anywhere in a larger tensor: a new alignment must not compile a new kernel in the middle of a run."""


class Scratch(NamedTuple):
    """Memory for checking m edges.

    Attributes:
        ranks: int32[m], how many edges of the block, up to and including this one, stay.
        blocks: the sums over blocks.
    """

    ranks: torch.Tensor
    blocks: Blocks


def make_scratch(m: int, arrived: torch.Tensor) -> Scratch:
    """Allocate memory for checking m edges. `arrived`: see `Blocks`."""
    return Scratch(torch.empty(m, dtype=torch.int32, device=arrived.device), make_blocks(m, BLOCK, arrived))


def in_order(links: np.ndarray, room: int) -> np.ndarray:
    """Return int64[2, room]: the int64[2, n] pairs (source, target) sorted by target, then source, padded with `NOBODY`."""
    found = np.full((2, room), NOBODY)
    found[:, : links.shape[1]] = links[:, np.lexsort(links)]
    return found


def leave_out(links, nodes, row_ptr, told, neighbors, span, taken, scratch, kept, offsets):
    """Copy the edges of a hop that are not among `links`.

    Args:
        links: int64[2, room], from `in_order`.
        nodes: int64, global ids of the batch's nodes of the destination type.
        row_ptr: int64[b + 1], row pointers of the hop; may begin at any number.
        told: int64[3, m], the values to copy per edge. told[1] is the index of the edge's destination in `nodes`; told[0] and told[2] are
            copied only. neighbors: int[m], source ids.
        span: int64[2]; only the first span[1] - span[0] of the m edges are valid.
        taken: int64[2]; taken[0] is the number of edges kept before; taken[1] is set to the number afterwards.
        scratch: from `make_scratch`, for m edges.
        kept: int64[3, m], output: the columns of `told` that stay; the rest of it is not written.
        offsets: int64[b + 1], output: row pointers of the result, beginning at taken[0].
    """
    m, room, (ranks, blocks), device = neighbors.numel(), links.shape[1], scratch, told.device
    programs, steps = max(1, cdiv(m, BLOCK)), room.bit_length()
    arguments = (links, room, steps, nodes, told, m, neighbors, span, taken, taken[1:], ranks, *blocks)
    launch(_look, programs, device, *arguments, BLOCK=BLOCK)
    launch(_copy, programs, device, told, m, span, ranks, blocks.before, kept, BLOCK=BLOCK)
    b = offsets.numel()
    launch(_count, cdiv(b, BLOCK), device, row_ptr, b, taken, ranks, blocks.before, offsets, BLOCK=BLOCK)


@triton.jit(do_not_specialize=("room", "steps", "m"), do_not_specialize_on_alignment=_SLICES)
def _look(links, room, steps, nodes, told, m, neighbors, span, start, end, ranks, before, arrived, BLOCK: tl.constexpr):
    """Count the edges that stay, as running sums."""
    block = tl.program_id(0)
    number = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < tl.load(span + 1) - tl.load(span)
    column = tl.load(told + m.to(tl.int64) + number, mask=inside, other=0)
    target = tl.load(nodes + column, mask=inside, other=0)
    source = tl.load(neighbors + number, mask=inside, other=0).to(tl.int64)
    low = tl.zeros_like(number)
    high = low + room
    while steps != 0:  # not range: Triton 3.3 interprets it by a conversion that NumPy no longer does
        steps -= 1
        middle = (low + high) // 2
        open_yet = inside & (low < high)
        other = tl.load(links + room + middle, mask=open_yet, other=0)
        is_before = (other < target) | ((other == target) & (tl.load(links + middle, mask=open_yet, other=0) < source))
        low = tl.where(open_yet & is_before, middle + 1, low)
        high = tl.where(open_yet & (is_before == 0), middle, high)
    found = inside & (low < room)
    same_target = tl.load(links + room + low, mask=found, other=0) == target
    is_link = found & same_target & (tl.load(links + low, mask=found, other=0) == source)
    stays = (inside & (is_link == 0)).to(tl.int32)
    tl.store(ranks + number, tl.cumsum(stays, axis=0), mask=inside)
    sum_blocks(before, arrived, block, tl.sum(stays, axis=0).to(tl.int64), start, end, 1)


@triton.jit(do_not_specialize=("m",), do_not_specialize_on_alignment=_SLICES)
def _copy(told, m, span, ranks, before, kept, BLOCK: tl.constexpr):
    """Copy the edges that stay, without gaps."""
    block, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    number = block * BLOCK + lane
    inside = number < tl.load(span + 1) - tl.load(span)
    rank = tl.load(ranks + number, mask=inside, other=0)
    stays = inside & (rank > tl.load(ranks + number - 1, mask=inside & (lane > 0), other=0))
    place = tl.load(before + block) - tl.load(before) + rank - 1
    row = 0
    while row < 3:
        first = m.to(tl.int64) * row
        tl.store(kept + first + place, tl.load(told + first + number, mask=stays, other=0), mask=stays)
        row += 1


@triton.jit(do_not_specialize=("b",), do_not_specialize_on_alignment=_SLICES)
def _count(row_ptr, b, start, ranks, before, offsets, BLOCK: tl.constexpr):
    """Write the row pointers of the edges that stay."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < b
    last = tl.load(row_ptr + row, mask=inside, other=0) - tl.load(row_ptr) - 1
    is_behind = inside & (last >= 0)
    stayed = tl.load(before + last // BLOCK, mask=is_behind, other=0) + tl.load(ranks + last, mask=is_behind, other=0)
    tl.store(offsets + row, tl.where(is_behind, stayed, tl.load(start)), mask=inside)
