"""First in, first out, decided by a device. Same hits, slots and directory as `cpu.py`, byte for byte.

Every miss enters the cache, and a row leaves once as many later rows have entered as there are slots. So whether an id hits depends on how
many ids before it in the batch miss. The directory gives the slack of each id: it misses if more ids than that miss before it. An id with a
slack below 0 misses in any case; an id with at least as much slack as there are ids before it hits in any case. The ids between are open.
The last program to arrive settles them in order, a tile at a time, from two guesses: if every open id hits, the number of misses before
each id is a lower bound; if every open id misses, an upper bound. Each round recomputes hits and misses from both bounds, until the two
agree or one of them no longer changes. Then it is right: there is only one solution, because an id depends only on the ids before it. Most
tiles take no round or one; if each id of a tile depends on the id before, the tile takes as many rounds as it has ids.

Invariant: nothing depends on the order in which programs run, and the host need not know anything about the batch. Imports Triton.
"""

# `tl.sum` returns a scalar here:
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
"""Open ids that are settled together."""

_SLICES = (
    "ids", "cursor", "sums", "begun", "arrived", "slacks", "before", "left", "missed", "hit_slots", "into",
)  # fmt: skip
"""Arguments that may begin anywhere in a larger tensor: a new alignment must not compile a new kernel in the middle of a run."""

_NEWEST: tl.constexpr = tl.constexpr(0)
_COME: tl.constexpr = tl.constexpr(1)
_MISSED: tl.constexpr = tl.constexpr(2)
_LAST: tl.constexpr = tl.constexpr(3)
_HALF: tl.constexpr = tl.constexpr(16)
_IN_HALF: tl.constexpr = tl.constexpr((1 << 16) - 1)
"""Two counts of a block or a tile share 32 bits: the second is shifted by _HALF."""
_WHOLE: tl.constexpr = tl.constexpr(32)
_IN_WHOLE: tl.constexpr = tl.constexpr((1 << 32) - 1)
"""Two counts of a batch share 64 bits: the second is shifted by _WHOLE."""


class State(NamedTuple):
    """The state on the device, beside the directory. All int64.

    Attributes:
        cursor: [2], the slot of the newest row; how many rows have entered.
        begun: [4], the cursor before the batch, the number of its misses, and the slot of the last miss.
        sums: [2], 0; then certain misses | open ids << 32 of the batch.
        arrived: [1], see `Blocks`.
    """

    cursor: torch.Tensor
    begun: torch.Tensor
    sums: torch.Tensor
    arrived: torch.Tensor


def make_state(device: torch.device) -> State:
    """Return the state of an empty cache."""
    return State(*torch.zeros(9, dtype=torch.int64, device=device).split([2, 4, 2, 1]))


def access(ids, numbers, capacity, state, hit_slots, into):
    """Request a batch, on the current stream.

    Args:
        ids: int64[n], distinct.
        numbers: int32[num_nodes], the directory: the number of each node's row when it last entered, -1: never.
        capacity: number of slots, at least one.
        state: from `make_state`; cursor[1] plus n must be below 2**31.
        hit_slots: receives int32[n], the slot of each hit, as before the batch; -1 for a miss.
        into: receives int32[n], the slot of each miss that is resident after the batch; -1 for all other ids.
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
    """Renumber the rows: the oldest resident row becomes 0; rows that left become -1, as if they had never entered."""
    gone = (cursor[1] - capacity).clamp_(min=0)
    numbers.sub_(gone).clamp_(min=-1)
    cursor[1] -= gone


@triton.jit
def _counted(slack, place, n):
    """Return flags per id of a block: (misses in any case, is open)."""
    is_out = (place < n) & (slack < 0)
    is_open = (place < n) & (slack >= 0) & (slack < place)
    return is_out.to(tl.int32), is_open.to(tl.int32)


@triton.jit
def _load_counted(slacks, n, before, BLOCK: tl.constexpr):
    """Return, for the ids of a program: place, slack, whether it is open, how many ids before it miss in any case, how many are open."""
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
    """Write the slack of each id, and count certain misses and open ids."""
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
    """Write for each open id how many open ids before it miss, then how many do in all; advance the cursor."""
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
    """Whether each id of a tile misses: it does if more than `may_miss` ids before it in the tile do. `both` holds the two guesses: the
    fewest misses, and the most."""
    both = (may_miss < 0).to(tl.int32) + ((may_miss < lane).to(tl.int32) << _HALF)
    count = tl.sum(both, axis=0)
    is_open = (count & _IN_HALF) != count >> _HALF
    while is_open:
        before = tl.cumsum(both, axis=0) - both
        both = (may_miss < (before & _IN_HALF)).to(tl.int32) + ((may_miss < (before >> _HALF)).to(tl.int32) << _HALF)
        was, count = count, tl.sum(both, axis=0)
        moved = was ^ count  # the fewest only grow, the most only shrink: an unchanged count is final
        both = tl.where(moved >> _HALF == 0, both >> _HALF, both)
        is_open = ((count & _IN_HALF) != count >> _HALF) & (moved >> _HALF != 0) & ((moved & _IN_HALF) != 0)
    return both & _IN_HALF


@triton.jit(do_not_specialize=("n", "capacity"), do_not_specialize_on_alignment=_SLICES)
def _give_slots(ids, n, numbers, capacity, slacks, before, missed, begun, hit_slots, into, BLOCK: tl.constexpr):
    """Write the slots of hits; give misses descending slots from the newest row on, and ascending numbers."""
    place, slack, _, num_out, rank = _load_counted(slacks, n, before, BLOCK)
    newest, come, num_missed = tl.load(begun + _NEWEST), tl.load(begun + _COME), tl.load(begun + _MISSED)
    number = num_out + tl.load(missed + rank, mask=place < n, other=0)  # misses before this id
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
