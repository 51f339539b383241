"""Running sums of what programs count, on a device: each sums up its own block and says how much that is, one program sums these up.

In: the total of each block. Out: what comes before each. Invariant: nothing is allocated, so that a device can record it with the rest of a
batch (`kernels/_recording.py`); torch's running sums take memory. Imports Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from penstock.kernels._triton import launch

_CHUNK = 1024
"""Blocks that are summed up at once."""


def sum_blocks(totals, start, ends):
    """Turn totals into what comes before them: totals[i] = start[0] + the sum of totals[:i].

    Args:
        totals: int64[num_blocks], num_blocks > 0.
        start: int64[>= 1]; may be part of `ends`.
        ends: int64[k], k at most `_CHUNK`; each becomes start[0] + the sum of all.
    """
    launch(_sum_blocks, 1, totals.device, totals, totals.numel(), start, ends, ends.numel(), CHUNK=_CHUNK)


@triton.jit(do_not_specialize=("num_blocks", "num_ends"), do_not_specialize_on_alignment=("totals", "start", "ends"))
def _sum_blocks(totals, num_blocks, start, ends, num_ends, CHUNK: tl.constexpr):
    lane = tl.arange(0, CHUNK)
    before = tl.load(start)
    first = 0
    while first < num_blocks:  # not range: Triton 3.3 interprets it by a conversion that NumPy no longer does
        inside = first + lane < num_blocks
        total = tl.load(totals + first + lane, mask=inside, other=0)
        tl.store(totals + first + lane, before + tl.cumsum(total, axis=0) - total, mask=inside)
        before += tl.sum(total, axis=0)
        first += CHUNK
    tl.debug_barrier()  # all have read `start`
    tl.store(ends + lane, before + tl.zeros_like(lane), mask=lane < num_ends)
