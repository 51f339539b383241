"""Move rows of one table to places in another, on a device. Same result as `reference.py`, byte for byte."""

# types are constants of kernels here:
# pyright: reportArgumentType=false, reportAssignmentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._device_rows import addresses_of, copy_rows, integer_of, layout_of, load_places, pointer
from penstock.kernels._triton import cdiv, launch
from penstock.kernels.gather_rows.gpu import MAX_PROGRAMS

_NUMBERS = ("source", "source_rows", "target", "target_rows", "order", "num_rows")
"""New values of these must not compile a new kernel in the middle of a run."""


@triton.jit(do_not_specialize=_NUMBERS)
def _move_rows(
    source, source_rows, target, target_rows, order, num_rows, HAS_SOURCES: tl.constexpr, HAS_ORDER: tl.constexpr,
    SOURCE_INTEGER: tl.constexpr, TARGET_INTEGER: tl.constexpr, ROW_BYTES: tl.constexpr, WORD: tl.constexpr, READ: tl.constexpr,
    COLUMNS: tl.constexpr, SHIFTED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    while block * ROWS < num_rows:  # not range: Triton 3.3 interprets it by a conversion that NumPy no longer does
        places, are_there = load_places(block, order, num_rows, HAS_ORDER, ROWS)
        given = tl.load(pointer(target_rows, TARGET_INTEGER) + places, mask=are_there, other=-1).to(tl.int64)
        are_there = are_there & (given >= 0)
        taken = places.to(tl.int64)
        if HAS_SOURCES:
            taken = tl.load(pointer(source_rows, SOURCE_INTEGER) + places, mask=are_there, other=0).to(tl.int64)
        copy_rows(
            source + taken * ROW_BYTES, target + given * ROW_BYTES, are_there, ROW_BYTES, WORD, READ, COLUMNS, SHIFTED
        )  # fmt: skip
        block += tl.num_programs(0)


def move_rows(
    source: torch.Tensor,
    source_rows: torch.Tensor | None,
    target: torch.Tensor,
    target_rows: torch.Tensor,
    row_bytes: int,
    *,
    order: torch.Tensor | None = None,
    max_programs: int | None = None,
    device: torch.device | None = None,
) -> None:
    """Copy rows `source_rows` of `source` to rows `target_rows` of `target`, on the current stream of a device.

    Args:
        source, target: uint8 vectors of whole rows; target on the device, source there or in host memory that the device can read.
        source_rows, target_rows: int64[n] or int32[n] on the device, in range; target_rows distinct. A row whose target is negative is not
            copied; source_rows None: 0, 1, ...
        row_bytes: bytes of a row.
        order: int32[n] on the device, a permutation: the order in which rows are copied; None: their own order.
        max_programs: how many programs copy at the same time; each copies several blocks of rows. None: as in `gather_rows`.
        device: the device that copies; None: that of `target`. Another one must be able to access both tables.
    """
    device = target.device if device is None else device
    num_rows = target_rows.numel()
    if num_rows == 0 or row_bytes == 0:
        return
    taken, turns = (target_rows if source_rows is None else source_rows), (target_rows if order is None else order)
    addresses = addresses_of(device, source, taken, target, target_rows, turns)
    layout = layout_of(row_bytes, addresses[0], addresses[2], is_far=max_programs is not None)
    num_programs = min(MAX_PROGRAMS if max_programs is None else max_programs, cdiv(num_rows, layout["ROWS"]))
    launch(
        _move_rows, num_programs, device, *addresses, num_rows, HAS_SOURCES=source_rows is not None, HAS_ORDER=order is not None,
        SOURCE_INTEGER=integer_of(taken), TARGET_INTEGER=integer_of(target_rows), **layout,
    )  # fmt: skip
