"""Dropout, of which torch's takes a third and more of a step on a processor: it draws a number of its own for each element, in one thread.

In: rows. Out: rows, a share of whose elements is 0. Invariant: what is dropped follows from torch's random state, whatever the number of
threads. Here 16 bits decide for an element, so one draw for four; a rate is rounded to a multiple of 1 / 65,536.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 1 << 16


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Return float[...] `x`, in training with each element 0 by the probability `rate` < 1, the others 1 / (1 - rate) times as large."""
    if not training or rate == 0 or x.device.type != "cpu":
        return F.dropout(x, rate, training)
    level = min(round(rate * LEVELS), LEVELS - 1)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)  # all 64 of them
    is_kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= level - LEVELS // 2
    return x * is_kept.to(x.dtype).mul_(LEVELS / (LEVELS - level))
