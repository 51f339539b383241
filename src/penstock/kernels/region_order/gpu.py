"""Ids in the order of the regions of a table that they lie in, found by a device. Same regions as `reference.py`, each in any order.

A device that reads memory of the host looks up each page of it, and keeps what it has looked up for about a gigabyte. Rows at random over
more than that wait for their pages: an H100 reads rows of 512 bytes at 51 GB/s within a gigabyte and at 16 over eight, however many
programs ask, and whatever the size of the host's pages. Programs that go through a table region by region, together, find most pages
looked up.

A counting sort, whose places are given out in the order of arrival. Programs take turns with several sets of counters, which lie apart:
a device adds to one number, or to numbers beside it, one after the other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._triton import cdiv, launch

REGIONS = 1024
"""Of a table; of a terabyte, each is what a device remembers."""
COPIES, MANY = 4, 1 << 18
"""Of the counters, where there are so many ids; else they seldom meet."""
BLOCK = 1024
"""Elements per program."""

_SLICES = ("ids", "span", "counts", "begins", "order")
"""Arguments that begin anywhere in a larger tensor: another alignment is not to be another kernel, compiled in the middle of a run."""


def make_counts(device: torch.device) -> torch.Tensor:
    """Take memory to order with, again and again on one stream."""
    return torch.zeros(2 * COPIES * REGIONS, dtype=torch.int32, device=device)


def order_by_region(ids: torch.Tensor, num_ids: int, order: torch.Tensor, counts: torch.Tensor, span: torch.Tensor | None = None) -> None:
    """Fill `order` with the places of ids, those of smaller regions first, on the current stream.

    Args:
        ids: int32 or int64, each in [0, num_ids).
        order: int32[>= n]; what is behind the n-th is left.
        counts: from `make_counts`.
        span: int64[2], the ids are ids[span[0]:span[1]], at most as many as `order` has room for; None: all. The host need not know it.
    """
    n = ids.numel() if span is None else order.numel()
    arguments = ids, span, n, shift_of(num_ids), counts
    programs, device, constants = cdiv(n, BLOCK), ids.device, {"REGIONS": REGIONS, "COPIES": COPIES if n >= MANY else 1}
    blocks = {"HAS_SPAN": span is not None, "BLOCK": BLOCK}
    begins = counts[counts.numel() // 2 :]
    launch(_count_regions, programs, device, *arguments, **blocks, **constants)
    launch(_begin, min(1, programs), device, counts, begins, **constants)
    launch(_give, programs, device, *arguments[:-1], begins, order, **blocks, **constants)


def shift_of(num_ids: int) -> int:
    """Return how far ids below `num_ids` are shifted to be numbers of at most `REGIONS` regions."""
    return max(0, (num_ids - 1).bit_length() - (REGIONS.bit_length() - 1))


@triton.jit
def _load_regions(ids, span, n, shift, HAS_SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Places of a program, their regions, and which of them are there."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    begin = tl.zeros_like(place)
    if HAS_SPAN:
        begin += tl.load(span)
        inside = inside & (place < tl.load(span + 1) - begin)
    return place, (tl.load(ids + begin + place, mask=inside, other=0) >> shift).to(tl.int32), inside


@triton.jit(do_not_specialize=("n", "shift"), do_not_specialize_on_alignment=_SLICES)
def _count_regions(ids, span, n, shift, counts, HAS_SPAN: tl.constexpr, BLOCK: tl.constexpr, REGIONS: tl.constexpr, COPIES: tl.constexpr):
    """How many ids each region has, of those that count there."""
    _, region, inside = _load_regions(ids, span, n, shift, HAS_SPAN, BLOCK)
    tl.atomic_add(counts + tl.program_id(0) % COPIES * REGIONS + region, 1, mask=inside, sem="relaxed")


@triton.jit(do_not_specialize_on_alignment=_SLICES)
def _begin(counts, begins, REGIONS: tl.constexpr, COPIES: tl.constexpr):
    """Where each region begins, and in it those of each copy; the counts are none again."""
    number = tl.arange(0, REGIONS * COPIES)
    at = number % COPIES * REGIONS + number // COPIES
    count = tl.load(counts + at)
    tl.store(begins + at, tl.cumsum(count, axis=0) - count)
    tl.store(counts + at, tl.zeros_like(count))


@triton.jit(do_not_specialize=("n", "shift"), do_not_specialize_on_alignment=_SLICES)
def _give(
    ids, span, n, shift, begins, order, HAS_SPAN: tl.constexpr, BLOCK: tl.constexpr, REGIONS: tl.constexpr, COPIES: tl.constexpr
):  # fmt: skip
    """Each id gets the next place of its region."""
    place, region, inside = _load_regions(ids, span, n, shift, HAS_SPAN, BLOCK)
    at = tl.atomic_add(begins + tl.program_id(0) % COPIES * REGIONS + region, 1, mask=inside, sem="relaxed")
    tl.store(order + at, place.to(tl.int32), mask=inside)
