"""One hop of neighbour sampling over one edge type, on a device. Same result as `reference.py`, byte for byte.

In: tensors that the device can read; `indices` may be pinned host memory. Out: row offsets, positions, neighbours. Invariant: a running
sum gives each edge its place in the output, never the order of arrival.

Up to fanout `TILE_FANOUT`, one program draws for a tile of nodes: all candidates at once, then Floyd's rule, iterated over the whole tile
until nothing changes. The rule replaces a slot drawn before by the last slot of its range. Whether a slot was drawn before depends on
earlier draws only, so after k rounds the first k draws are final. Few rounds suffice: more than two need a chain of draws, each of which
hits the slot that the draw before was moved to. Above that fanout, and for whole lists, a lane is an edge and finds its node by bisection,
so that many programs share a hub.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from penstock import rng
from penstock.kernels._block_sums import Blocks, make_blocks, sum_blocks
from penstock.kernels._device_lists import (
    SLICES,
    InTime,
    any_of,
    begin_rows,
    counter_words,
    find_part,
    kept_arguments,
    load_nodes,
    load_words,
    num_taken,
    place_of,
    read,
    tell_first,
    tell_wrong,
)
from penstock.kernels._triton import cdiv, launch

TILE_FANOUT = 64
"""Up to this fanout, one program draws for a tile of nodes."""

BLOCK = 1024
"""Elements per program where one lane is one element."""

_WIDE: tl.constexpr = tl.constexpr(rng.WIDE_BOUND)

_TILES = {4: (32, 1), 8: (16, 1), 16: (8, 2), 32: (4, 4), 64: (1, 4)}
"""Lanes -> (nodes, warps) of a tile: a size that the compiler keeps in registers, with as few warps as possible, because the warps of a
program repeat the work per node and wait for each other."""


class Far(NamedTuple):
    """How lists in host memory are read over the link: after all draws, in an order of their own, by few programs, so that other kernels
    can run beside them.

    Attributes:
        order: int32[>= b], a permutation of the frontier, see `kernels.region_order`.
        max_programs: how many programs read at once.
    """

    order: torch.Tensor
    max_programs: int


class Counted(NamedTuple):
    """How many edges each node of a frontier will sample, as running sums.

    Attributes:
        within: int64[b], the sum within the node's block, the node included; b is at least 1 and at least the size of the frontier.
        blocks: the sums over blocks.
    """

    within: torch.Tensor
    blocks: Blocks


def count_neighbors(indptr, num_edges, nodes, span, taken, fanout, replace, counted, status, drawable=None, in_time=None):
    """Count how many edges each node of a frontier will sample.

    Args:
        nodes, span: int64[>= span[1]] and int64[2]; the frontier is nodes[span[0]:span[1]]. The host need not know `span`.
        taken: int64[2]; taken[0] is the number of edges sampled before; taken[1] is set to the number afterwards.
        counted: from `make_counted`.
        status: int64[2]; status[0] is lowered to the first i such that the list of the i-th node lies outside the edges. Such a node
            samples nothing.
        drawable: int[num_dst], how many edges of each list can be drawn; None: all.
        in_time: the windows to count instead of whole lists, where edges have times. Then `find_windows` has set status[0].
    """
    b, (within, blocks), windows = counted.within.numel(), counted, _windows_of(in_time)
    arguments = (indptr, num_edges, nodes, span, taken, b, fanout, windows, drawable, within, *blocks, status)
    constants = {"REPLACE": bool(replace), "ALL": drawable is None, "IN_TIME": windows is not None}
    launch(_count, cdiv(b, BLOCK), nodes.device, *arguments, **constants, BLOCK=BLOCK)


def _windows_of(in_time: InTime | None) -> torch.Tensor | None:
    return None if in_time is None else in_time.windows


def make_counted(b: int, arrived: torch.Tensor) -> Counted:
    """Allocate memory to count a frontier of up to b nodes. `arrived`: see `Blocks`."""
    return Counted(torch.empty(b, dtype=torch.int64, device=arrived.device), make_blocks(b, BLOCK, arrived))


def sample_neighbors(
    indptr, indices, num_src, nodes, span, fanout, replace, words, hop, edge_type, copies, counted, row_ptr, positions, columns, neighbors,
    status, kept=None, far=None, in_time=None,
):  # fmt: skip
    """Sample in-neighbours of a frontier after `count_neighbors`; see `reference.sample_neighbors`.

    A list that is drawn from must have fewer than 2**32 edges; this is not checked.

    Args:
        num_src: number of source nodes; neighbour ids are checked against it.
        nodes, span: the frontier; as in `count_neighbors`.
        words: int64[3], on the device: the two words of the key, each below 2**32, and the batch index.
        copies: int64[>= span[1]], one per element of `nodes`, or None.
        counted: as `count_neighbors` leaves it.
        row_ptr: int64[b + 1], output: the running sum, beginning at the number of edges sampled before; its last value is repeated for
            the elements after the frontier.
        positions, columns: int64[m], neighbors: indices.dtype[m], output; m = row_ptr[b] - row_ptr[0]. Up to `TILE_FANOUT` they may be
            longer, and the rest stays as it is. columns[j] is the index in `nodes` of the node that neighbors[j] was sampled for.
        status: int64[2]; status[1] is lowered to the first j such that neighbors[j] is out of range.
        kept: copies of some lists in nearer memory.
        far: how lists in host memory are read, up to `TILE_FANOUT`; None: by the programs that draw.
        in_time: the windows to draw from, where edges have times; as in `count_neighbors`. Together with `kept` and a fanout up to
            `TILE_FANOUT`, `far` is required.
    """
    place, outputs = place_of(hop, edge_type), (row_ptr, positions, columns, neighbors, status)
    arguments = indptr, indices, num_src, nodes, span, fanout, bool(replace), words, place, copies, counted, kept, in_time
    if 0 <= fanout <= TILE_FANOUT:
        _draw_tiles(*arguments, far, *outputs)
    else:
        _draw_edges(*arguments, *outputs)


def _draw_tiles(
    indptr, indices, num_src, nodes, span, fanout, replace, words, place, copies, counted, kept, in_time, far, row_ptr, positions, columns,
    *found,
):  # fmt: skip
    b, device, lanes = row_ptr.numel() - 1, nodes.device, max(4, triton.next_power_of_2(fanout))
    rows, num_warps = (BLOCK // lanes, 4) if replace else _TILES[lanes]
    assert BLOCK % rows == 0, "a tile lies in one block"
    windows, by_time = _windows_of(in_time), None if in_time is None else in_time.by_time
    by_time_here = by_time if far is None else None
    arguments = (indptr, indices, indices.numel(), num_src, nodes, span, fanout, words, place, copies, *kept_arguments(kept))
    launch(
        _draw_tile, cdiv(b, rows), device, *arguments, windows, by_time_here, b, counted.within, counted.blocks.before, row_ptr, positions,
        columns, *found, REPLACE=replace, HAS_COPIES=copies is not None, HAS_KEPT=kept is not None, IN_TIME=windows is not None,
        BY_TIME=by_time_here is not None, READS=far is None, ROWS=rows, LANES=lanes, BLOCK=BLOCK, num_warps=num_warps,
    )  # fmt: skip
    if far is not None:
        read_far(indptr, indices, num_src, nodes, span, lanes, kept, far, row_ptr, positions, *found, by_time=by_time)


def read_far(indptr, indices, num_src, nodes, span, lanes, kept, far, row_ptr, positions, neighbors, status, by_time=None):
    """Read the drawn edges over the link, at most `lanes` per list; arguments as in `sample_neighbors`. `by_time`: see `InTime`."""
    rows, b = BLOCK // lanes, row_ptr.numel() - 1
    arguments = (indptr, indices, num_src, nodes, span, far.order, *kept_arguments(kept), by_time, row_ptr, positions, neighbors, status)
    constants = {"HAS_KEPT": kept is not None, "BY_TIME": by_time is not None, "ROWS": rows, "LANES": lanes}
    launch(_read_tile, min(far.max_programs, cdiv(b, rows)), nodes.device, *arguments, **constants)


def _draw_edges(
    indptr, indices, num_src, nodes, span, fanout, replace, words, place, copies, counted, kept, in_time, row_ptr, positions, columns,
    *found,
):  # fmt: skip
    b, m, device = row_ptr.numel() - 1, positions.numel(), nodes.device
    add_up(counted, row_ptr)
    if m == 0:
        return
    programs, steps, windows = cdiv(m, BLOCK), b.bit_length(), _windows_of(in_time)
    arguments = (indptr, nodes, span, b, m, steps, fanout, words, place, copies, windows, row_ptr, positions, columns)
    constants = {"REPLACE": replace, "HAS_COPIES": copies is not None, "IN_TIME": windows is not None}
    launch(_draw_edge, programs, device, *arguments, **constants, BLOCK=BLOCK)
    if fanout >= 0 and not replace:
        _settle_long(indptr, nodes, span, fanout, windows, row_ptr, positions)
    by_time = None if in_time is None else in_time.by_time
    read_edges(indptr, indices, num_src, nodes, kept, positions, columns, *found, by_time=by_time)


def add_up(counted, row_ptr):
    """Write to int64[b + 1] `row_ptr` where the edges of each node of a frontier begin."""
    b = row_ptr.numel() - 1
    launch(_add_up, cdiv(b, BLOCK), row_ptr.device, b, counted.within, counted.blocks.before, row_ptr, BLOCK=BLOCK)


def read_edges(indptr, indices, num_src, nodes, kept, positions, columns, neighbors, status, by_time=None):
    """Read all m drawn edges; arguments as in `sample_neighbors`. `by_time`: see `InTime`."""
    m = positions.numel()
    arguments = (indptr, indices, num_src, nodes, m, *kept_arguments(kept), by_time, positions, columns, neighbors, status)
    launch(_read_edge, cdiv(m, BLOCK), nodes.device, *arguments, HAS_KEPT=kept is not None, BY_TIME=by_time is not None, BLOCK=BLOCK)


def _settle_long(indptr, nodes, span, fanout, windows, row_ptr, positions):
    """Apply Floyd's rule to any number of candidates per list, by a stable sort.

    After draw i its candidate is among the chosen slots, whether draw i took it or it had been taken before. So a later draw is replaced
    if its candidate equals an earlier candidate, or equals the last slot of the range of an earlier draw that was replaced. The second
    case leads from draw to draw, a chain that ends at a draw of the first case; the loop follows all chains by pointer doubling.
    """
    m = positions.numel()
    rows = torch.repeat_interleave(torch.arange(row_ptr.numel() - 1, device=nodes.device), row_ptr.diff(), output_size=m)
    number, first = torch.arange(m, device=nodes.device), (row_ptr[:-1] - row_ptr[0])[rows]
    if windows is None:
        node = nodes[span[0] + rows]
        start = indptr[node]
        degree = indptr[node + 1] - start
    else:
        start, degree = windows[rows].unbind(1)
    slot, draw = positions - start, number - first
    drawn = degree > fanout

    ordered, order = torch.sort(rows << 32 | slot, stable=True)
    hit = torch.zeros(m, dtype=torch.bool, device=nodes.device)
    hit[order[1:]] = ordered[1:] == ordered[:-1]
    hit &= drawn
    earlier = slot - (degree - fanout)
    next_draw = torch.where(drawn & (earlier >= 0) & (earlier < draw), first + earlier, number)
    for _ in range(fanout.bit_length()):
        hit = hit | hit[next_draw]
        next_draw = next_draw[next_draw]
    torch.where(hit, start + degree - fanout + draw, positions, out=positions)


@triton.jit(do_not_specialize=("num_edges", "b", "fanout"), do_not_specialize_on_alignment=SLICES)
def _count(
    indptr, num_edges, nodes, span, taken, b, fanout, windows, drawable, within, before, arrived, status, REPLACE: tl.constexpr,
    ALL: tl.constexpr, IN_TIME: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Running sums within blocks, and over blocks."""
    block = tl.program_id(0)
    row = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    node, inside = load_nodes(nodes, span, row)
    _, degree, damaged = find_part(indptr, num_edges, windows, node, row, inside, IN_TIME)
    if not ALL:
        degree = tl.load(drawable + node, mask=inside & (degree > 0), other=0).to(tl.int64)
    count = tl.where(inside, num_taken(degree, fanout, REPLACE), 0).to(tl.int64)
    tl.store(within + row, tl.cumsum(count, axis=0), mask=row < b)
    tell_first(status, damaged & inside, row)
    sum_blocks(before, arrived, block, tl.sum(count, axis=0), taken, taken + 1, 1)


@triton.jit(do_not_specialize=("b",), do_not_specialize_on_alignment=SLICES)
def _add_up(b, within, before, row_ptr, BLOCK: tl.constexpr):
    """Write `row_ptr`, for the kernels that do not write it themselves."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    row = first + tl.arange(0, BLOCK)
    begin_rows(first, row, 0, b, within, before, row_ptr, BLOCK)


@triton.jit
def _tile_words(c0, c1, c2, c3, k0, k1, ROWS: tl.constexpr, BLOCKS: tl.constexpr):
    """Four tiles [ROWS, BLOCKS] of random words: those of blocks 0 to BLOCKS - 1 of every node."""
    zero = tl.zeros((ROWS, BLOCKS), tl.uint32)
    block = tl.arange(0, BLOCKS).to(tl.uint32)
    return tl.philox_impl(c0[:, None] + zero, c1[:, None] + zero, c2 + zero, c3[:, None] + block[None, :], k0, k1)


@triton.jit
def _below_wide(high, low, bound):
    bound = bound.to(tl.uint64)
    return ((high.to(tl.uint64) * bound + ((low.to(tl.uint64) * bound) >> 32)) >> 32).to(tl.uint32)


@triton.jit
def _settle_tile(candidates, last, drawn, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Floyd's rule; see the head of this file."""
    lane = tl.arange(0, LANES)
    earlier = (lane[None, :] < lane[:, None])[None, :, :]
    slots = candidates
    changed = 1
    while changed != 0:
        same = (slots[:, None, :] == candidates[:, :, None]) & earlier
        gives_way = tl.max(same.to(tl.int32), axis=2) != 0
        settled = tl.where(gives_way & drawn, last, candidates)
        changed = tl.max((settled != slots).to(tl.int32).reshape(ROWS * LANES), axis=0)
        slots = settled
    return slots


@triton.jit(
    do_not_specialize=("num_edges", "num_src", "fanout", "place", "num_kept", "b"),
    do_not_specialize_on_alignment=SLICES,
)
def _draw_tile(
    indptr, indices, num_edges, num_src, nodes, span, fanout, words, place, copies, ranks, prefix_ptr, num_kept, cached, windows, by_time,
    b, within, before, row_ptr, positions, columns, neighbors, status, REPLACE: tl.constexpr, HAS_COPIES: tl.constexpr,
    HAS_KEPT: tl.constexpr, IN_TIME: tl.constexpr, BY_TIME: tl.constexpr, READS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """For ROWS nodes of one block: draw, one lane per draw, read the neighbours, and write where the edges of each node begin.

    Each warp repeats the work per node, so no warp may write a value per node to an address that another warp reads.
    """
    first = tl.program_id(0).to(tl.int64) * ROWS
    row = first + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)[None, :]
    node, inside = load_nodes(nodes, span, row)
    start, degree, _ = find_part(indptr, num_edges, windows, node, row, inside, IN_TIME)
    draws = inside & ((degree > 0) if REPLACE else (degree > fanout))
    slots = tl.broadcast_to(lane, (ROWS, LANES)).to(tl.uint32)

    if any_of(draws):
        copy = tl.load(copies + tl.load(span) + row, mask=inside, other=0) if HAS_COPIES else tl.zeros_like(row)
        c0, c1, c3 = counter_words(node, copy, place)
        k0, k1, c2 = load_words(words)
        bound = degree[:, None].to(tl.uint32) + tl.zeros((ROWS, LANES), tl.uint32)
        if not REPLACE:
            bound += (lane - fanout + 1).to(tl.uint32)
        w0, w1, w2, w3 = _tile_words(c0, c1, c2, c3, k0, k1, ROWS, LANES // 4)
        word = tl.join(tl.join(w0, w2), tl.join(w1, w3)).reshape(ROWS, LANES)
        drawn = tl.umulhi(word, bound)
        is_wide = degree >= _WIDE
        if any_of(draws & is_wide):
            v0, v1, v2, v3 = _tile_words(c0, c1, c2, c3, k0, k1, ROWS, LANES // 2)
            wide = _below_wide(tl.join(v0, v2).reshape(ROWS, LANES), tl.join(v1, v3).reshape(ROWS, LANES), bound)
            drawn = tl.where(is_wide[:, None], wide, drawn)
        if not REPLACE:
            drawn = _settle_tile(drawn, bound - 1, draws[:, None] & (lane < fanout), ROWS, LANES)
        slots = tl.where(draws[:, None], drawn, slots)

    count = tl.where(inside, num_taken(degree, fanout, REPLACE), 0).to(tl.int64)
    taken = lane < count[:, None]
    number = begin_rows(first, row, count, b, within, before, row_ptr, BLOCK)[:, None] + lane
    position = start[:, None] + slots.to(tl.int64)
    if BY_TIME:
        position = tl.load(by_time + position, mask=taken, other=0).to(tl.int64)
    tl.store(positions + number, position, mask=taken)
    tl.store(columns + number, tl.load(span) + row[:, None] + tl.zeros_like(number), mask=taken)
    if READS:
        start = start[:, None] + tl.zeros_like(position)
        neighbor = read(indices, node, inside, start, position, taken, ranks, prefix_ptr, num_kept, cached, HAS_KEPT)
        tl.store(neighbors + number, neighbor, mask=taken)
        tell_wrong(neighbor, taken, num_src, number, status)


@triton.jit(do_not_specialize=("num_src", "num_kept"), do_not_specialize_on_alignment=SLICES)
def _read_tile(
    indptr, indices, num_src, nodes, span, order, ranks, prefix_ptr, num_kept, cached, by_time, row_ptr, positions, neighbors, status,
    HAS_KEPT: tl.constexpr, BY_TIME: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Read the drawn edges of ROWS nodes at a time, one lane per draw."""
    begin, block, lane = tl.load(span), tl.program_id(0).to(tl.int64), tl.arange(0, LANES)[None, :]
    num_rows = tl.load(span + 1) - begin
    while block * ROWS < num_rows:
        place = block * ROWS + tl.arange(0, ROWS)
        inside = place < num_rows
        row = tl.load(order + place, mask=inside, other=0).to(tl.int64)
        node = tl.load(nodes + begin + row, mask=inside, other=0)
        first = tl.load(row_ptr + row, mask=inside, other=0)
        taken = lane < (tl.load(row_ptr + row + 1, mask=inside, other=0) - first)[:, None]
        number = (first - tl.load(row_ptr))[:, None] + lane
        position = tl.load(positions + number, mask=taken, other=0)
        if BY_TIME:
            position = tl.load(by_time + position, mask=taken, other=0).to(tl.int64)
            tl.store(positions + number, position, mask=taken)
        start = tl.load(indptr + node[:, None] + tl.zeros_like(number), mask=taken, other=0) if HAS_KEPT else position
        neighbor = read(indices, node, inside, start, position, taken, ranks, prefix_ptr, num_kept, cached, HAS_KEPT)
        tl.store(neighbors + number, neighbor, mask=taken)
        tell_wrong(neighbor, taken, num_src, number, status)
        block += tl.num_programs(0)


@triton.jit
def _find_row(row_ptr, base, b, steps, number, inside):
    """The row of each edge number: the last row that begins at or before it."""
    low = tl.zeros_like(number)
    high = low + b
    while steps != 0:  # not range: Triton 3.3 interprets it by a conversion that NumPy no longer does
        steps -= 1
        middle = (low + high) // 2
        before = tl.load(row_ptr + middle, mask=inside, other=0) - base <= number
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle)
    return low


@triton.jit(do_not_specialize=("b", "m", "steps", "fanout", "place"), do_not_specialize_on_alignment=SLICES)
def _draw_edge(
    indptr, nodes, span, b, m, steps, fanout, words, place, copies, windows, row_ptr, positions, columns, REPLACE: tl.constexpr,
    HAS_COPIES: tl.constexpr, IN_TIME: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw, one lane per edge. Without replacement, the draws are only candidates for `_settle_long`, except in lists taken whole."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < m
    base = tl.load(row_ptr)
    row = _find_row(row_ptr, base, b, steps, number, inside)
    column = tl.load(span) + row
    node = tl.load(nodes + column, mask=inside, other=0)
    if IN_TIME:
        start = tl.load(windows + 2 * row, mask=inside, other=0)
        degree = tl.load(windows + 2 * row + 1, mask=inside, other=0)
    else:
        start = tl.load(indptr + node, mask=inside, other=0)
        degree = tl.load(indptr + node + 1, mask=inside, other=0) - start
    draw = number - (tl.load(row_ptr + row, mask=inside, other=0) - base)
    draws = (fanout >= 0) & inside
    if not REPLACE:
        draws = draws & (degree > fanout)
    slot = draw
    if any_of(draws):
        copy = tl.load(copies + column, mask=inside, other=0) if HAS_COPIES else tl.zeros_like(row)
        c0, c1, c3 = counter_words(node, copy, place)
        is_wide = degree >= _WIDE
        block = tl.where(is_wide, draw >> 1, draw >> 2).to(tl.uint32)
        zero = tl.zeros_like(c0)
        k0, k1, c2 = load_words(words)
        w0, w1, w2, w3 = tl.philox_impl(c0, c1, c2 + zero, c3 + block, k0, k1)
        bound = (degree if REPLACE else degree - fanout + draw + 1).to(tl.uint32)
        is_odd = (draw & 1) == 1
        wide = _below_wide(tl.where(is_odd, w2, w0), tl.where(is_odd, w3, w1), bound)
        word = tl.where((draw & 2) == 2, tl.where(is_odd, w3, w2), tl.where(is_odd, w1, w0))
        slot = tl.where(draws, tl.where(is_wide, wide, tl.umulhi(word, bound)).to(tl.int64), slot)
    tl.store(positions + number, start + slot, mask=inside)
    tl.store(columns + number, column, mask=inside)


@triton.jit(do_not_specialize=("num_src", "m", "num_kept"), do_not_specialize_on_alignment=SLICES)
def _read_edge(
    indptr, indices, num_src, nodes, m, ranks, prefix_ptr, num_kept, cached, by_time, positions, columns, neighbors, status,
    HAS_KEPT: tl.constexpr, BY_TIME: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Read the drawn edges, one lane per edge."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < m
    position = tl.load(positions + number, mask=inside, other=0)
    if BY_TIME:
        position = tl.load(by_time + position, mask=inside, other=0).to(tl.int64)
        tl.store(positions + number, position, mask=inside)
    if HAS_KEPT:
        node = tl.load(nodes + tl.load(columns + number, mask=inside, other=0), mask=inside, other=0)
        rank = tl.load(ranks + node, mask=inside, other=0)
        is_kept = inside & (rank < num_kept)
        shift = tl.load(prefix_ptr + rank, mask=is_kept, other=0) - tl.load(indptr + node, mask=is_kept, other=0)
        near = tl.load(cached + (position + shift), mask=is_kept, other=0)
        neighbor = tl.where(is_kept, near, tl.load(indices + position, mask=inside & (rank >= num_kept), other=0))
    else:
        neighbor = tl.load(indices + position, mask=inside, other=0)
    tl.store(neighbors + number, neighbor, mask=inside)
    tell_wrong(neighbor, inside, num_src, number, status)
