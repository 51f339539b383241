"""Running sums over the programs of a kernel, on a device: each program stores the total of its block, and the last to arrive sums the
totals.

In: the total of each block. Out: the sum of the totals before each block. Invariant: nothing is allocated, so that a device can record the
kernel with the rest of a batch (`kernels/_recording.py`); torch's running sums allocate. Imports Triton.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from penstock.kernels._triton import cdiv

_CHUNK: tl.constexpr = tl.constexpr(1024)
"""Blocks that are summed at once."""


class Blocks(NamedTuple):
    """Memory for the sums of the blocks of one kernel.

    Attributes:
        before: int64[number of blocks], the sum of the totals before each block.
        arrived: int64[1], 0 between kernels; kernels that do not run at the same time may share it.
    """

    before: torch.Tensor
    arrived: torch.Tensor


def make_blocks(m: int, size: int, arrived: torch.Tensor) -> Blocks:
    """Allocate memory for the sums of m elements in blocks of `size`."""
    return Blocks(torch.empty(max(1, cdiv(m, size)), dtype=torch.int64, device=arrived.device), arrived)


@triton.jit
def sum_blocks(before, arrived, block, total, start, ends, num_ends):
    """Store the total of a program's block; the last program to do so turns all totals into running sums.

    Args:
        before, arrived: see `Blocks`; before[i] becomes start[0] + the totals of the blocks before i.
        block, total: the block of this program and its total; each program calls this once.
        start: int64[>= 1]; may be part of `ends`, so no program may read it after this call.
        ends: int64[num_ends], at most `_CHUNK`; each becomes start[0] + the sum of all totals.
    """
    tl.store(before + block, total)
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(arrived, 0)
        lane = tl.arange(0, _CHUNK)
        known = tl.load(start)
        first = 0
        while first < tl.num_programs(0):  # not range: Triton 3.3 interprets it by a conversion that NumPy no longer does
            inside = first + lane < tl.num_programs(0)
            totals = tl.load(before + first + lane, mask=inside, other=0)
            tl.store(before + first + lane, known + tl.cumsum(totals, axis=0) - totals, mask=inside)
            known += tl.sum(totals, axis=0)
            first += _CHUNK
        tl.debug_barrier()  # all have read `start`
        tl.store(ends + lane, known + tl.zeros_like(lane), mask=lane < num_ends)
