"""One hop of neighbour sampling by shared numbers over one edge type, on a device. Same result as `reference.py`, byte for byte.

In: tensors that the device can read; `indices` may be pinned host memory. Out: row offsets, positions, neighbours. Imports Triton.

A program takes one list after another. It reads a list longer than the fanout whole and computes the number of each neighbour. It holds
the neighbours whose numbers are at or below a bound, chosen so that somewhat more than `fanout` are expected; among these, bisection finds
the `fanout`-th number. If there are too few, or more than there is room for, it reads the list again with another bound: one list in
millions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._device_lists import CLEAN, SLICES, counter_words, kept_arguments, load_words, place_of
from penstock.kernels._triton import launch
from penstock.kernels.sample_neighbors import gpu as uniform

LANES = 128
"""Neighbours read at a time."""

_CLEAN: tl.constexpr = tl.constexpr(CLEAN)
_LEAST: tl.constexpr = tl.constexpr(-(1 << 63))
_MOST: tl.constexpr = tl.constexpr((1 << 63) - 1)


def room_of(fanout: int) -> int:
    """How many neighbours of a list a program can hold."""
    return triton.next_power_of_2(2 * _expected(fanout))


def _expected(fanout: int) -> int:
    """How many neighbours of a long list are held on average. At a fanout of 4, one list in 5M holds fewer than the fanout or more than
    there is room for; at other fanouts, fewer lists do."""
    return 2 * fanout + 24


def make_held(num_programs: int, fanout: int, device: torch.device) -> torch.Tensor:
    """Allocate memory in which programs hold neighbours: int64[num_programs, 3, room]."""
    return torch.empty((num_programs, 3, room_of(fanout)), dtype=torch.int64, device=device)


def sample_neighbors(
    repeats, held, indptr, indices, num_src, nodes, span, fanout, replace, words, hop, source, copies, counted, row_ptr, positions, columns,
    neighbors, status, kept=None, far=None,
):  # fmt: skip
    """Sample in-neighbours of a frontier by shared numbers; arguments as in `sample_neighbors.gpu`. `replace` and `copies` are ignored:
    draws are without replacement.

    Args:
        repeats: int[num_edges], in the same memory as `indices`: how often each neighbour occurs earlier in its list; None: no list repeats
            a neighbour.
        held: from `make_held`, for this fanout or a larger one. Its first dimension is the most programs that run.
        fanout: at least 1. The held neighbours of a list are in registers, which some hundreds fill.
        words: words[2] is the number of the group of batches that share draws.
        source: number of the neighbours' node type, in place of the edge type; see `reference.sample_neighbors`.
        far: the order in which to read lists that are in host memory; None: the order of the frontier.
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
    """Read neighbours of one list, from `cached` if the list is kept there."""
    if HAS_KEPT:
        is_near = (slot * 0 + is_kept) != 0
        near = tl.load(cached + (shift + slot), mask=inside & is_near, other=0)
        far = tl.load(indices + (start + slot), mask=inside & (is_near == 0), other=0)
        return tl.where(is_near, near, far).to(tl.int64)
    else:
        return tl.load(indices + (start + slot), mask=inside, other=0).to(tl.int64)


@triton.jit
def _read_part(indices, cached, shift, start, degree, at, num_src, wrong, is_kept, HAS_KEPT: tl.constexpr, LANES: tl.constexpr):
    """Return (slots of a part of a list, which of them are inside it, their neighbours, the first slot so far whose id is out of range)."""
    slot = at + tl.arange(0, LANES).to(tl.int64)
    inside = slot < degree
    neighbor = _read(indices, cached, shift, start, slot, inside, is_kept, HAS_KEPT)
    is_wrong = inside & ((neighbor < 0) | (neighbor >= num_src))
    return slot, inside, neighbor, tl.minimum(wrong, tl.min(tl.where(is_wrong, slot, _CLEAN), axis=0))


@triton.jit
def _find_bound(number, is_held, count, fanout, bound):
    """Of `count` held numbers, all at most `bound`: the bound with `fanout` of them at or below it; more only if several equal it."""
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
    """The numbers of neighbours minus 2**63: as int64 they have the same order as the numbers have as uint64."""
    c0, c1, _c3 = counter_words(neighbor, tl.zeros_like(neighbor), place)
    high, low, _w2, _w3 = tl.philox_impl(c0, c1, c2 + tl.zeros_like(c0), repeat.to(tl.uint32), k0, k1)
    return ((high.to(tl.int64) - 2147483648) << 32) | low.to(tl.int64)


@triton.jit(do_not_specialize=("num_src", "fanout", "expected", "place", "num_kept"), do_not_specialize_on_alignment=SLICES)
def _choose(
    indptr, indices, repeats, num_src, nodes, span, order, fanout, expected, words, place, ranks, prefix_ptr, num_kept, cached, held,
    row_ptr, positions, columns, neighbors, status, HAS_REPEATS: tl.constexpr, HAS_KEPT: tl.constexpr, HAS_ORDER: tl.constexpr,
    ROOM: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Sample one list after another. A list that lies outside the edges was counted as empty."""
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
        tl.debug_barrier()  # before `held` is reused, and before damage overwrites samples
        if wrong != _CLEAN:
            tl.store(positions + first, start + wrong)
            tl.store(neighbors + first, _read(indices, cached, shift, start, wrong, wrong >= 0, is_kept, HAS_KEPT))
            tl.atomic_min(status + 1, first, sem="relaxed")
        number_of_row += tl.num_programs(0)
