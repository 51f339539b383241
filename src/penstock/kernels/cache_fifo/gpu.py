"""First in, first out, decided by a device. Same hits, slots and directory as `cpu.py`, byte for byte.

A row leaves once as many came as there are slots, and in a batch every miss comes: so whether an id hits depends on how many of those
before it missed. From the directory follows how many may miss before a row leaves, its slack: the id misses if more do. Below 0 it misses
anyway; of at least as many as there are ids before it, it hits. Of those between, which are open, the last program to arrive finds out in
their order, a tile at a time: to take each for a hit where it may be one says at least how many miss before each, to take it for a miss at
most, and both are put right by themselves until they meet or one of them stays as it is: there is one answer only, for what an id does
depends on those before it. That takes no round or one; a tile whose ids all wait for the one before, in both ways, takes as many as it has.

Invariant: nothing depends on the order in which programs run, and the host need not know anything of a batch before. Imports Triton.
"""

# what `tl.sum` gives is a number here:
# pyright: reportOperatorIssue=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from penstock.kernels._block_sums import make_blocks, sum_blocks
from penstock.kernels._triton import cdiv, launch

BLOCK = 512
"""Ids per program."""
TILE = 512
"""Open ids whose hits are found out at the same time."""

_SLICES = (
    "ids", "cursor", "sums", "begun", "arrived", "slacks", "before", "left", "missed", "hit_slots", "into",
)  # fmt: skip
"""Arguments that begin anywhere in a larger tensor: another alignment is not to be another kernel, compiled in the middle of a run."""

_NEWEST: tl.constexpr = tl.constexpr(0)
_COME: tl.constexpr = tl.constexpr(1)
_MISSED: tl.constexpr = tl.constexpr(2)
_LAST: tl.constexpr = tl.constexpr(3)
_HALF: tl.constexpr = tl.constexpr(16)
_IN_HALF: tl.constexpr = tl.constexpr((1 << 16) - 1)
"""Two counts of a block, or of a tile, share 32 bits: one lies so many further up."""
_WHOLE: tl.constexpr = tl.constexpr(32)
_IN_WHOLE: tl.constexpr = tl.constexpr((1 << 32) - 1)
"""And two of a batch 64."""


class State(NamedTuple):
    """What a device remembers beside the directory. All int64.

    Attributes:
        cursor: [2], the slot of the newest row, how many came.
        begun: [4], the cursor as a batch found it, how many of that missed, and the slot of the last of these.
        sums: [2], 0, and the misses and the open ids of a batch.
        arrived: [1], of `Blocks`.
    """

    cursor: torch.Tensor
    begun: torch.Tensor
    sums: torch.Tensor
    arrived: torch.Tensor


def make_state(device: torch.device) -> State:
    """Return the state of an empty cache."""
    return State(*torch.zeros(9, dtype=torch.int64, device=device).split([2, 4, 2, 1]))


def access(ids, numbers, capacity, state, hit_slots, into):
    """Ask for a batch, on the current stream.

    Args:
        ids: int64[n], distinct.
        numbers: int32[num_nodes], the directory: the how manieth row each node was when it came, -1: never.
        capacity: slots, at least one.
        state: from `make_state`; how many came plus n must be below 2**31.
        hit_slots: receives int32[n], slot of each id as it was before the batch, -1 for a miss.
        into: receives int32[n], slot of each id that was missed and is resident when the batch is over, -1 for all others.
    """
    n, device = ids.numel(), ids.device
    if n == 0:
        return
    programs = cdiv(n, BLOCK)
    slacks, left, missed = torch.empty(3 * n + 1, dtype=torch.int32, device=device).split([n, n, n + 1])
    cursor, begun, sums, arrived = state
    before, _ = blocks = make_blocks(n, BLOCK, arrived)
    launch(_look_up, programs, device, ids, n, numbers, capacity, cursor, slacks, sums, *blocks, BLOCK=BLOCK)
    settling = slacks, n, before, sums, capacity, cursor, begun, left, missed, arrived
    launch(_settle, programs, device, *settling, BLOCK=BLOCK, TILE=TILE)
    launch(_give_slots, programs, device, ids, n, numbers, capacity, slacks, before, missed, begun, hit_slots, into, BLOCK=BLOCK)


def count_anew(numbers, capacity, cursor):
    """Count the rows from the oldest that is resident on; those that left never came. Nothing else changes."""
    gone = (cursor[1] - capacity).clamp_(min=0)
    numbers.sub_(gone).clamp_(min=-1)
    cursor[1] -= gone


@triton.jit
def _counted(slack, place, n):
    """(ids that miss anyway, open ones), of a block."""
    is_out = (place < n) & (slack < 0)
    is_open = (place < n) & (slack >= 0) & (slack < place)
    return is_out.to(tl.int32), is_open.to(tl.int32)


@triton.jit
def _load_counted(slacks, n, before, BLOCK: tl.constexpr):
    """Of a program: places, slacks, which are open, and how many before each miss anyway, and are open."""
    block = tl.program_id(0)
    place = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slack = tl.load(slacks + place, mask=place < n, other=0)
    is_out, is_open = _counted(slack, place, n)
    both = is_out + (is_open << _HALF)
    inside, begin = tl.cumsum(both, axis=0) - both, tl.load(before + block)
    num_out = (begin & _IN_WHOLE) + (inside & _IN_HALF)
    return place, slack, is_open > 0, num_out, (begin >> _WHOLE) + (inside >> _HALF)


@triton.jit(do_not_specialize=("n", "capacity"), do_not_specialize_on_alignment=_SLICES)
def _look_up(ids, n, numbers, capacity, cursor, slacks, sums, before, arrived, BLOCK: tl.constexpr):
    """How many may miss before the row of each id leaves, and what that says of the ids."""
    block = tl.program_id(0)
    place = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    node = tl.load(ids + place, mask=place < n, other=0)
    number = tl.load(numbers + node, mask=place < n, other=-1).to(tl.int64)
    slack = tl.where(number < 0, -1, number + (capacity - tl.load(cursor + _COME)))
    tl.store(slacks + place, slack.to(tl.int32), mask=place < n)
    is_out, is_open = _counted(slack, place, n)
    both = tl.sum(is_out, axis=0).to(tl.int64) + (tl.sum(is_open, axis=0).to(tl.int64) << _WHOLE)
    sum_blocks(before, arrived, block, both, sums, sums + 1, 1)


@triton.jit(do_not_specialize=("n", "capacity"), do_not_specialize_on_alignment=_SLICES)
def _settle(
    slacks, n, before, sums, capacity, cursor, begun, left, missed, arrived, BLOCK: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Open ids, one after the other: how many of those before each missed. Then, how many did in all."""
    _, slack, is_open, num_out, rank = _load_counted(slacks, n, before, BLOCK)
    tl.store(left + rank, (slack - num_out).to(tl.int32), mask=is_open)
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(arrived, 0)
        both = tl.load(sums + 1)
        num_open, known, first = (both >> _WHOLE).to(tl.int32), tl.zeros([], tl.int32), 0
        lane = tl.arange(0, TILE)
        while first < num_open:
            may_miss = tl.load(left + first + lane, mask=first + lane < num_open, other=(1 << 31) - 1) - known
            is_missed = _find_missed(may_miss, lane)
            tl.store(missed + first + lane, known + tl.cumsum(is_missed, axis=0) - is_missed, mask=first + lane < num_open)
            known += tl.sum(is_missed, axis=0)
            first += TILE
        tl.store(missed + num_open, known)
        newest, come, num_missed = tl.load(cursor + _NEWEST), tl.load(cursor + _COME), (both & _IN_WHOLE) + known
        last = newest - num_missed % capacity
        last = tl.where(last < 0, last + capacity, last)
        tl.debug_barrier()  # all have read the cursor
        tl.store(begun + _NEWEST, newest)
        tl.store(begun + _COME, come)
        tl.store(begun + _MISSED, num_missed)
        tl.store(begun + _LAST, last)
        tl.store(cursor + _NEWEST, last)
        tl.store(cursor + _COME, come + num_missed)


@triton.jit
def _find_missed(may_miss, lane):
    """Whether each of a tile misses: where more of those before it do than `may_miss`. The fewest and the most that do, side by side."""
    both = (may_miss < 0).to(tl.int32) + ((may_miss < lane).to(tl.int32) << _HALF)
    count = tl.sum(both, axis=0)
    is_open = (count & _IN_HALF) != count >> _HALF
    while is_open:
        before = tl.cumsum(both, axis=0) - both
        both = (may_miss < (before & _IN_HALF)).to(tl.int32) + ((may_miss < (before >> _HALF)).to(tl.int32) << _HALF)
        was, count = count, tl.sum(both, axis=0)
        moved = was ^ count  # the fewest grow only, the most shrink: who is as many as before is right
        both = tl.where(moved >> _HALF == 0, both >> _HALF, both)
        is_open = ((count & _IN_HALF) != count >> _HALF) & (moved >> _HALF != 0) & ((moved & _IN_HALF) != 0)
    return both & _IN_HALF


@triton.jit(do_not_specialize=("n", "capacity"), do_not_specialize_on_alignment=_SLICES)
def _give_slots(ids, n, numbers, capacity, slacks, before, missed, begun, hit_slots, into, BLOCK: tl.constexpr):
    """Slots: of the hits, where they are; of the misses, downwards from the newest row, and numbers upwards."""
    place, slack, _, num_out, rank = _load_counted(slacks, n, before, BLOCK)
    newest, come, num_missed = tl.load(begun + _NEWEST), tl.load(begun + _COME), tl.load(begun + _MISSED)
    number = num_out + tl.load(missed + rank, mask=place < n, other=0)  # of those that miss, from 0 on
    is_missed = (place < n) & (slack < number)
    slot = newest + capacity - 1 - slack
    slot = tl.where(slot < capacity, slot, slot - capacity)
    tl.store(hit_slots + place, tl.where(is_missed, -1, slot).to(tl.int32), mask=place < n)
    is_kept = is_missed & (number >= num_missed - capacity)
    given = tl.load(begun + _LAST) + (num_missed - 1 - number)
    given = tl.where(given < capacity, given, given - capacity)
    tl.store(into + place, tl.where(is_kept, given, -1).to(tl.int32), mask=place < n)
    node = tl.load(ids + place, mask=is_missed, other=0)
    tl.store(numbers + node, (come + number).to(tl.int32), mask=is_missed)
