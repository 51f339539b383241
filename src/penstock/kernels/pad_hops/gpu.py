"""Pad the hops of a sample to given sizes, on a device. Same results as `reference.py`, byte for byte, written to given arrays."""

# types are constants of kernels here:
# pyright: reportArgumentType=false, reportAssignmentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._triton import cdiv, launch

BLOCK = 1024
"""Elements per program."""

_SLICES = ("ids", "from_", "to", "row_ptr", "hops", "edges", "sources", "targets", "out", "out_from", "out_to")
"""Arguments that may begin anywhere in a larger tensor: a new alignment must not compile a new kernel in the middle of a run."""


def pad_ids(ids: torch.Tensor, hops: torch.Tensor, out: torch.Tensor) -> None:
    """As in `cpu.py`, on the current stream; `hops` on the device."""
    launch(_pad_ids, cdiv(out.numel(), BLOCK), out.device, ids, hops, out, out.numel(), HOPS=hops.shape[0], BLOCK=BLOCK)


def place(hops: torch.Tensor, out: torch.Tensor) -> None:
    """Write to `out`, int64[sum of counts], the padded place of each node, on the current stream."""
    launch(_write_places, cdiv(out.numel(), BLOCK), out.device, hops, out, out.numel(), HOPS=hops.shape[0], BLOCK=BLOCK)


def pad_edges(from_, to, edges, sources, targets, out_from, out_to) -> None:
    """As in `cpu.py`, on the current stream."""
    size, arguments = out_to.numel(), (from_, to, edges, sources, targets, out_from, out_to)
    launch(_pad_edges, cdiv(size, BLOCK), out_to.device, *arguments, size, HOPS=edges.shape[0], BLOCK=BLOCK)


def pad_row_ptr(row_ptr, edges, targets, out) -> None:
    """As in `cpu.py`, on the current stream."""
    size = out.numel()
    launch(_pad_row_ptr, cdiv(size, BLOCK), out.device, row_ptr, edges, targets, out, size, HOPS=edges.shape[0], BLOCK=BLOCK)


@triton.jit(do_not_specialize=("size",), do_not_specialize_on_alignment=_SLICES)
def _pad_ids(ids, hops, out, size, HOPS: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin, first = tl.zeros([], tl.int64), tl.zeros([], tl.int64)
    at = tl.full([BLOCK], -1, tl.int64)
    for hop in tl.static_range(HOPS):
        count = tl.load(hops + 2 * hop)
        at = tl.where((place >= begin) & (place < begin + count), first + place - begin, at)
        begin += tl.load(hops + 2 * hop + 1)
        first += count
    tl.store(out + place, tl.load(ids + at, mask=at >= 0, other=-1), mask=place < size)


@triton.jit
def _place_of(node, hops, NUM: tl.constexpr):
    """The place of each node after the hops before its own are padded."""
    place, end = node, tl.zeros([], tl.int64)
    for hop in tl.static_range(NUM):
        count = tl.load(hops + 2 * hop)
        end += count
        place += tl.where(node >= end, tl.load(hops + 2 * hop + 1) - count, 0)
    return place


@triton.jit(do_not_specialize=("size",), do_not_specialize_on_alignment=_SLICES)
def _write_places(hops, out, size, HOPS: tl.constexpr, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + number, _place_of(number, hops, HOPS), mask=number < size)


@triton.jit(do_not_specialize=("size",), do_not_specialize_on_alignment=_SLICES)
def _pad_edges(from_, to, edges, sources, targets, out_from, out_to, size, HOPS: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin, first, target_begin = tl.zeros([], tl.int64), tl.zeros([], tl.int64), tl.zeros([], tl.int64)
    source_begin = tl.load(sources + 1)
    at, added_from, added_to = tl.full([BLOCK], -1, tl.int64), tl.zeros([BLOCK], tl.int64), tl.zeros([BLOCK], tl.int64)
    for hop in tl.static_range(HOPS):
        count, end = tl.load(edges + 2 * hop), begin + tl.load(edges + 2 * hop + 1)
        num_targets, target_size = tl.load(targets + 2 * hop), tl.load(targets + 2 * hop + 1)
        num_sources, source_size = tl.load(sources + 2 * hop + 2), tl.load(sources + 2 * hop + 3)
        number, num_added = place - begin - count, end - begin - count
        at = tl.where((place >= begin) & (number < 0), first + place - begin, at)
        is_added = (number >= 0) & (place < end)
        of_sources, of_targets = source_begin + num_sources, target_begin + num_targets
        added_from = tl.where(is_added, of_sources + number % tl.maximum(source_size - num_sources, 1), added_from)
        added_to = tl.where(is_added, of_targets + number * (target_size - num_targets) // tl.maximum(num_added, 1), added_to)
        begin = end
        first += count
        target_begin += target_size
        source_begin += source_size
    is_there = (at >= 0) & (place < size)
    node_from = _place_of(tl.load(from_ + at, mask=is_there, other=0), sources, HOPS)
    node_to = _place_of(tl.load(to + at, mask=is_there, other=0), targets, HOPS)
    tl.store(out_from + place, tl.where(is_there, node_from, added_from), mask=place < size)
    tl.store(out_to + place, tl.where(is_there, node_to, added_to), mask=place < size)


@triton.jit(do_not_specialize=("size",), do_not_specialize_on_alignment=_SLICES)
def _pad_row_ptr(row_ptr, edges, targets, out, size, HOPS: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin, first = tl.zeros([], tl.int64), tl.zeros([], tl.int64)
    target_begin, target_first = tl.zeros([], tl.int64), tl.zeros([], tl.int64)
    at, found = tl.full([BLOCK], -1, tl.int64), tl.zeros([BLOCK], tl.int64)
    for hop in tl.static_range(HOPS):
        count, edge_size = tl.load(edges + 2 * hop), tl.load(edges + 2 * hop + 1)
        num_targets, target_size = tl.load(targets + 2 * hop), tl.load(targets + 2 * hop + 1)
        number, num_more = place - target_begin - num_targets, target_size - num_targets
        is_here, is_added = (place >= target_begin) & (number < 0), (number >= 0) & (place < target_begin + target_size)
        at = tl.where(is_here, target_first + place - target_begin, at)
        added = count + (tl.maximum(number, 0) * (edge_size - count) + num_more - 1) // tl.maximum(num_more, 1)
        found = tl.where(is_here, begin - first, tl.where(is_added, begin + added, found))
        first += count
        begin += edge_size
        target_first += num_targets
        target_begin += target_size
    found = tl.where(place >= target_begin, begin, found)
    is_there = (at >= 0) & (place < size)
    tl.store(out + place, found + tl.load(row_ptr + at, mask=is_there, other=0), mask=place < size)
