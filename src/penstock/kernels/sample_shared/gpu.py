"""One hop of neighbour sampling by shared numbers over one edge type, on a device. Same result as `reference.py`, byte for byte.

In: tensors that the device can read; `indices` may be pinned memory of the host. Out: row offsets, positions, neighbours. Imports Triton.

A program takes one list after another. One that is longer than the fanout is read whole, and each of its neighbours is numbered: those
up to a bound are held, which is so that some more than the fanout are expected to be. Among these the fanout-th is found by halving. Where
too few were held, or more than there is room for, the list is read again with another bound: one of millions is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._device_lists import CLEAN, SLICES, counter_words, kept_arguments, load_words, place_of
from penstock.kernels._triton import launch
from penstock.kernels.sample_neighbors import gpu as uniform

LANES = 128
"""Neighbours that are numbered at a time."""

_CLEAN: tl.constexpr = tl.constexpr(CLEAN)
_LEAST: tl.constexpr = tl.constexpr(-(1 << 63))
_MOST: tl.constexpr = tl.constexpr((1 << 63) - 1)


def room_of(fanout: int) -> int:
    """How many neighbours of a list may be held."""
    return triton.next_power_of_2(2 * _expected(fanout))


def _expected(fanout: int) -> int:
    """How many of a long list are held in the mean: less than the fanout, or more than there is room for, come once in 5M lists at a
    fanout of 4, more seldom at others."""
    return 2 * fanout + 24


def make_held(num_programs: int, fanout: int, device: torch.device) -> torch.Tensor:
    """Take memory for so many programs to hold neighbours in; int64[num_programs, 3, room]."""
    return torch.empty((num_programs, 3, room_of(fanout)), dtype=torch.int64, device=device)


def sample_neighbors(
    repeats, held, indptr, indices, num_src, nodes, span, fanout, replace, words, hop, source, copies, counted, row_ptr, positions, columns,
    neighbors, status, kept=None, far=None,
):  # fmt: skip
    """Sample in-neighbours of a frontier by shared numbers; arguments as of `sample_neighbors.gpu`, without replacement and copies.

    Args:
        repeats: int[num_edges], where `indices` is: how often each neighbour came before in its list; None: no list has one twice.
        held: from `make_held`, for the fanout or a larger one.
        fanout: from 1 on; those that are held stay in registers, which some hundreds fill.
        words: the third is the number that batches share.
        source: in place of that of the edge type, see `reference.sample_neighbors`.
        far: the order in which lists are read that are in memory of the host, by as many programs as `held` is for.
    """
    uniform.add_up(counted, row_ptr)
    programs, room = min(held.shape[0], row_ptr.numel() - 1), held.shape[2]
    order = None if far is None else far.order
    arguments = (indptr, indices, repeats, num_src, nodes, span, order, fanout, _expected(fanout), words, place_of(hop, source))
    launch(
        _choose, programs, nodes.device, *arguments, *kept_arguments(kept), held, row_ptr, positions, columns, neighbors, status,
        HAS_REPEATS=repeats is not None, HAS_KEPT=kept is not None, HAS_ORDER=far is not None, ROOM=room, LANES=LANES,
        num_warps=1 if room <= 256 else 4,
    )  # fmt: skip


@triton.jit
def _read(indices, cached, shift, start, slot, inside, is_kept, HAS_KEPT: tl.constexpr):
    """Neighbours of one list, which may be kept nearby."""
    if HAS_KEPT:
        is_near = (slot * 0 + is_kept) != 0
        near = tl.load(cached + (shift + slot), mask=inside & is_near, other=0)
        far = tl.load(indices + (start + slot), mask=inside & (is_near == 0), other=0)
        return tl.where(is_near, near, far).to(tl.int64)
    else:
        return tl.load(indices + (start + slot), mask=inside, other=0).to(tl.int64)


@triton.jit
def _read_part(indices, cached, shift, start, degree, at, num_src, wrong, is_kept, HAS_KEPT: tl.constexpr, LANES: tl.constexpr):
    """The slots of a part of a list, which of them are there, their neighbours, and the first one so far that is no node."""
    slot = at + tl.arange(0, LANES).to(tl.int64)
    inside = slot < degree
    neighbor = _read(indices, cached, shift, start, slot, inside, is_kept, HAS_KEPT)
    is_wrong = inside & ((neighbor < 0) | (neighbor >= num_src))
    return slot, inside, neighbor, tl.minimum(wrong, tl.min(tl.where(is_wrong, slot, _CLEAN), axis=0))


@triton.jit
def _find_bound(number, is_held, count, fanout, bound):
    """The bound up to which there are so many of `count` numbers up to `bound`, or more where the last is there more than once."""
    low = count * 0 + _LEAST
    high = bound
    here = count
    while (here != fanout) & (low < high):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        upto = tl.sum((is_held & (number <= middle)).to(tl.int64), axis=0)
        if upto < fanout:
            low = middle + 1
        else:
            high = middle
            here = upto
    return high


@triton.jit
def _number(neighbor, repeat, place, k0, k1, c2):
    """Their numbers, as int64 in the same order: half of 2**64 less than they are."""
    c0, c1, _c3 = counter_words(neighbor, tl.zeros_like(neighbor), place)
    high, low, _w2, _w3 = tl.philox_impl(c0, c1, c2 + tl.zeros_like(c0), repeat.to(tl.uint32), k0, k1)
    return ((high.to(tl.int64) - 2147483648) << 32) | low.to(tl.int64)


@triton.jit(do_not_specialize=("num_src", "fanout", "expected", "place", "num_kept"), do_not_specialize_on_alignment=SLICES)
def _choose(
    indptr, indices, repeats, num_src, nodes, span, order, fanout, expected, words, place, ranks, prefix_ptr, num_kept, cached, held,
    row_ptr, positions, columns, neighbors, status, HAS_REPEATS: tl.constexpr, HAS_KEPT: tl.constexpr, HAS_ORDER: tl.constexpr,
    ROOM: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Take of one list after another; of one that is damaged nothing was counted."""
    every = tl.arange(0, ROOM)
    mine = held + tl.program_id(0).to(tl.int64) * (3 * ROOM)
    begin, base = tl.load(span), tl.load(row_ptr)
    num_rows = tl.load(span + 1) - begin
    k0, k1, c2 = load_words(words)
    number_of_row = tl.program_id(0).to(tl.int64)
    while number_of_row < num_rows:
        row = tl.load(order + number_of_row).to(tl.int64) if HAS_ORDER else number_of_row
        node = tl.load(nodes + begin + row)
        first = tl.load(row_ptr + row)
        taken = tl.load(row_ptr + row + 1) - first
        first -= base
        start = tl.load(indptr + node)
        degree = tl.where(taken > 0, tl.load(indptr + node + 1) - start, 0)
        shift = start
        is_kept = degree * 0
        if HAS_KEPT:
            rank = tl.load(ranks + node)
            is_kept += tl.where(rank < num_kept, 1, 0)
            shift = tl.load(prefix_ptr + tl.minimum(rank, num_kept))
        wrong = degree * 0 + _CLEAN
        if degree <= fanout:
            at = degree * 0
            while at < degree:
                slot, inside, neighbor, wrong = _read_part(
                    indices, cached, shift, start, degree, at, num_src, wrong, is_kept, HAS_KEPT, LANES
                )
                tl.store(positions + first + slot, start + slot, mask=inside)
                tl.store(neighbors + first + slot, neighbor, mask=inside)
                tl.store(columns + first + slot, begin + row + tl.zeros_like(slot), mask=inside)
                at += LANES
        else:
            lowest, highest = degree * 0 + _LEAST, degree * 0 + _MOST
            bound = tl.where(degree <= ROOM, highest, lowest + (highest // degree) * (2 * expected))
            count = degree * 0
            while ((count < fanout) | (count > ROOM)) & (lowest < highest):
                count = degree * 0
                at = degree * 0
                while at < degree:
                    slot, inside, neighbor, wrong = _read_part(
                        indices, cached, shift, start, degree, at, num_src, wrong, is_kept, HAS_KEPT, LANES
                    )
                    repeat = tl.load(repeats + (start + slot), mask=inside, other=0) if HAS_REPEATS else tl.zeros_like(slot)
                    number = _number(neighbor, repeat, place, k0, k1, c2)
                    holds = inside & (number <= bound)
                    to = count + tl.cumsum(holds.to(tl.int64), axis=0) - 1
                    fits = holds & (to < ROOM)
                    tl.store(mine + to, number, mask=fits)
                    tl.store(mine + ROOM + to, slot, mask=fits)
                    tl.store(mine + 2 * ROOM + to, neighbor, mask=fits)
                    count += tl.sum(holds.to(tl.int64), axis=0)
                    at += LANES
                if count < fanout:
                    lowest = bound + 1
                    bound = (bound >> 1) + (highest >> 1)
                elif count > ROOM:
                    highest = bound
                    bound = (bound >> 1) + (lowest >> 1)
            tl.debug_barrier()
            is_held = every < count
            number = tl.load(mine + every, mask=is_held, other=_MOST)
            chosen = is_held & (number <= _find_bound(number, is_held, count, fanout, bound))
            to = tl.cumsum(chosen.to(tl.int64), axis=0) - 1
            chosen = chosen & (to < fanout)
            tl.store(positions + first + to, start + tl.load(mine + ROOM + every, mask=chosen, other=0), mask=chosen)
            tl.store(neighbors + first + to, tl.load(mine + 2 * ROOM + every, mask=chosen, other=0), mask=chosen)
            tl.store(columns + first + to, begin + row + tl.zeros_like(to), mask=chosen)
        tl.debug_barrier()  # what is held is over, and what is told of damage comes behind what was taken
        if wrong != _CLEAN:
            tl.store(positions + first, start + wrong)
            tl.store(neighbors + first, _read(indices, cached, shift, start, wrong, wrong >= 0, is_kept, HAS_KEPT))
            tl.atomic_min(status + 1, first, sem="relaxed")
        number_of_row += tl.num_programs(0)
