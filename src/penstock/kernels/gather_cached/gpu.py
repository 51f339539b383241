"""Gather rows by id in one launch: hits from the device's cache, misses over the link. Same result as `reference.py`, byte for byte."""

# types are constants of kernels here:
# pyright: reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._device_rows import addresses_of, copy_rows, layout_of, load_places, pointer
from penstock.kernels._triton import cdiv, launch
from penstock.kernels.gather_rows.gpu import MAX_PROGRAMS

_NUMBERS = ("table", "cache", "slots", "ids", "out", "targets", "order", "num_hits", "num_rows")
"""New values of these must not compile a new kernel in the middle of a run."""


@triton.jit(do_not_specialize=_NUMBERS)
def _gather_cached(
    table, cache, slots, ids, out, targets, order, num_hits, num_rows, BY_POSITION: tl.constexpr, HAS_TARGETS: tl.constexpr,
    HAS_ORDER: tl.constexpr, ROW_BYTES: tl.constexpr, WORD: tl.constexpr, READ: tl.constexpr, COLUMNS: tl.constexpr,
    SHIFTED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    block, found = tl.program_id(0), tl.zeros((ROWS,), tl.int32)
    while block * ROWS < num_rows:  # not range: Triton 3.3 interprets it by a conversion that NumPy no longer does
        places, are_there = load_places(block, order, num_rows, HAS_ORDER, ROWS)
        rows = tl.load(pointer(ids, tl.int64) + places, mask=are_there, other=0)
        of_slot = places if BY_POSITION else rows
        slot = tl.load(pointer(slots, tl.int32) + of_slot, mask=are_there, other=-1).to(tl.int64)
        sources = tl.where(slot >= 0, cache + slot * ROW_BYTES, table + rows * ROW_BYTES)
        given = tl.load(pointer(targets, tl.int64) + places, mask=are_there, other=0) if HAS_TARGETS else places.to(tl.int64)
        copy_rows(
            sources, out + given * ROW_BYTES, are_there, ROW_BYTES, WORD, READ, COLUMNS, SHIFTED
        )  # fmt: skip
        found += (slot >= 0).to(tl.int32)
        block += tl.num_programs(0)
    tl.atomic_add(pointer(num_hits, tl.int64), tl.sum(found).to(tl.int64), sem="relaxed")


def gather_cached(
    table: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    ids: torch.Tensor,
    row_bytes: int,
    out: torch.Tensor,
    num_hits: torch.Tensor,
    *,
    by_position: bool,
    places: torch.Tensor | None = None,
    order: torch.Tensor | None = None,
    max_programs: int = MAX_PROGRAMS,
) -> None:
    """Write rows of `cache` or `table` to `out`, on the current stream of `out`'s device.

    Args:
        table: uint8[num_rows * row_bytes], contiguous, in device memory, or in host memory that the device can read.
        cache: uint8[num_slots * row_bytes] on the device, contiguous.
        slots: int32[num_rows] on the device: the slot of each node, negative if it is not in the cache; with `by_position`, int32[n], the
            slot of each of `ids`.
        ids: int64[n] on the device, in range.
        row_bytes: bytes of a row.
        out: uint8[m * row_bytes] on the device, contiguous.
        num_hits: int64[1] on the device; the number of hits is added to it.
        by_position: `slots` is per id: a policy's decision for this batch.
        places: int64[n] on the device, distinct: ids[i] goes to row places[i] of `out`; None: to row i.
        order: int32[n] on the device, a permutation: the order in which ids are read; None: their own order.
        max_programs: how many programs copy at the same time; each copies several blocks of rows.
    """
    if ids.numel() == 0 or row_bytes == 0:
        return
    targets, turns = (ids if places is None else places), (ids if order is None else order)
    addresses = addresses_of(out.device, table, cache, slots, ids, out, targets, turns, num_hits)
    layout = layout_of(row_bytes, addresses[0], addresses[1], addresses[4], is_far=True)
    num_programs = min(max_programs, cdiv(ids.numel(), layout["ROWS"]))
    launch(
        _gather_cached, num_programs, out.device, *addresses, ids.numel(),
        BY_POSITION=by_position, HAS_TARGETS=places is not None, HAS_ORDER=order is not None, **layout,
    )  # fmt: skip
