"""Gather the rows of a table by id, on a device. Same result as `reference.py`, byte for byte."""

# types are constants of kernels here:
# pyright: reportArgumentType=false, reportAssignmentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._device_rows import addresses_of, copy_rows, integer_of, layout_of, load_places, pointer
from penstock.kernels._triton import cdiv, launch

MAX_PROGRAMS = 1 << 16
"""Most programs where at least some rows are in the device's own memory; over the link fewer suffice, see `store.tiers.PinnedTier`."""


@triton.jit(do_not_specialize=("table", "ids", "out", "order", "num_rows"))  # a new number or address must not compile a new kernel
def _gather_rows(
    table, ids, out, order, num_rows, HAS_ORDER: tl.constexpr, INTEGER: tl.constexpr, ROW_BYTES: tl.constexpr, WORD: tl.constexpr,
    READ: tl.constexpr, COLUMNS: tl.constexpr, SHIFTED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    while block * ROWS < num_rows:  # not range: Triton 3.3 interprets it by a conversion that NumPy no longer does
        places, are_there = load_places(block, order, num_rows, HAS_ORDER, ROWS)
        rows = tl.load(pointer(ids, INTEGER) + places, mask=are_there, other=0).to(tl.int64)
        copy_rows(
            table + rows * ROW_BYTES, out + places.to(tl.int64) * ROW_BYTES, are_there,
            ROW_BYTES, WORD, READ, COLUMNS, SHIFTED,
        )  # fmt: skip
        block += tl.num_programs(0)


def gather_rows(
    table: torch.Tensor,
    row_bytes: int,
    ids: torch.Tensor,
    out: torch.Tensor,
    *,
    order: torch.Tensor | None = None,
    max_programs: int | None = None,
) -> None:
    """Copy rows `ids` of `table` to `out`, on the current stream of `out`'s device.

    Args:
        table: uint8[num_rows * row_bytes], contiguous, in device memory, or in host memory that the device can read.
        row_bytes: bytes of a row.
        ids: int64[n] or int32[n] on the device, in range.
        out: uint8[n * row_bytes] on the device, contiguous.
        order: int32[m] on the device, distinct numbers in [0, n): row ids[order[0]] is copied first, to row order[0] of `out`, and so on;
            None: all ids, in their own order.
        max_programs: how many programs copy over the link at the same time; each copies several blocks of rows. None: the table is in the
            device's own memory; up to `MAX_PROGRAMS` run.
    """
    num_rows = ids.numel() if order is None else order.numel()
    if num_rows == 0 or row_bytes == 0:
        return
    addresses = addresses_of(out.device, table, ids, out, ids if order is None else order)
    layout = layout_of(row_bytes, addresses[0], addresses[2], is_far=max_programs is not None)
    num_programs = min(MAX_PROGRAMS if max_programs is None else max_programs, cdiv(num_rows, layout["ROWS"]))
    launch(_gather_rows, num_programs, out.device, *addresses, num_rows, HAS_ORDER=order is not None, INTEGER=integer_of(ids), **layout)
