"""Order ids by the region of the table that their rows lie in, on a device. Same regions as `reference.py`; any order within a region.

A device that reads host memory translates the address of each page, and caches the translations of about a gigabyte. Random reads over more
than that wait for translations: an H100 reads rows of 512 bytes at 51 GB/s within a gigabyte and at 16 over eight, however many programs
read, and whatever the size of the host's pages. Programs that read a table region by region, together, find most translations cached.

The kernel is a counting sort that gives out places in the order of arrival. Programs alternate between several sets of counters that are
far apart, because a device serialises atomic additions to the same number or to neighbouring ones.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._triton import cdiv, launch

REGIONS = 1024
"""Regions of a table; for a table of a terabyte, a region is as large as the memory whose translations a device caches."""
COPIES, MANY = 4, 1 << 18
"""Sets of counters for at least MANY ids; fewer ids seldom collide."""
BLOCK = 1024
"""Elements per program."""

_SLICES = ("ids", "span", "counts", "begins", "order")
"""Arguments that may begin anywhere in a larger tensor: a new alignment must not compile a new kernel in the middle of a run."""


def make_counts(device: torch.device) -> torch.Tensor:
    """Allocate the counters; calls on one stream can reuse them."""
    return torch.zeros(2 * COPIES * REGIONS, dtype=torch.int32, device=device)


def order_by_region(ids: torch.Tensor, num_ids: int, order: torch.Tensor, counts: torch.Tensor, span: torch.Tensor | None = None) -> None:
    """Write the places of ids to `order`, lower regions first, on the current stream.

    Args:
        ids: int32 or int64, each in [0, num_ids).
        order: int32[>= n]; elements after the n-th are not written.
        counts: from `make_counts`.
        span: int64[2]; the ids are ids[span[0]:span[1]], at most as many as `order` has elements; None: all. The host need not know it.
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
    """Return the shift that maps ids below `num_ids` to at most `REGIONS` regions."""
    return max(0, (num_ids - 1).bit_length() - (REGIONS.bit_length() - 1))


@triton.jit
def _load_regions(ids, span, n, shift, HAS_SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Return (places of a program, their regions, which of them are inside the span)."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    begin = tl.zeros_like(place)
    if HAS_SPAN:
        begin += tl.load(span)
        inside = inside & (place < tl.load(span + 1) - begin)
    return place, (tl.load(ids + begin + place, mask=inside, other=0) >> shift).to(tl.int32), inside


@triton.jit(do_not_specialize=("n", "shift"), do_not_specialize_on_alignment=_SLICES)
def _count_regions(ids, span, n, shift, counts, HAS_SPAN: tl.constexpr, BLOCK: tl.constexpr, REGIONS: tl.constexpr, COPIES: tl.constexpr):
    """Count the ids of each region, in the program's set of counters."""
    _, region, inside = _load_regions(ids, span, n, shift, HAS_SPAN, BLOCK)
    tl.atomic_add(counts + tl.program_id(0) % COPIES * REGIONS + region, 1, mask=inside, sem="relaxed")


@triton.jit(do_not_specialize_on_alignment=_SLICES)
def _begin(counts, begins, REGIONS: tl.constexpr, COPIES: tl.constexpr):
    """Write where each region begins, and within it the ids of each set of counters; reset the counts to 0."""
    number = tl.arange(0, REGIONS * COPIES)
    at = number % COPIES * REGIONS + number // COPIES
    count = tl.load(counts + at)
    tl.store(begins + at, tl.cumsum(count, axis=0) - count)
    tl.store(counts + at, tl.zeros_like(count))


@triton.jit(do_not_specialize=("n", "shift"), do_not_specialize_on_alignment=_SLICES)
def _give(
    ids, span, n, shift, begins, order, HAS_SPAN: tl.constexpr, BLOCK: tl.constexpr, REGIONS: tl.constexpr, COPIES: tl.constexpr
):  # fmt: skip
    """Give each id the next place of its region."""
    place, region, inside = _load_regions(ids, span, n, shift, HAS_SPAN, BLOCK)
    at = tl.atomic_add(begins + tl.program_id(0) % COPIES * REGIONS + region, 1, mask=inside, sem="relaxed")
    tl.store(order + at, place.to(tl.int32), mask=inside)
