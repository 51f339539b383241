"""Compaction on a device, in first-seen order and without locks. Same result as `reference.py`, byte for byte.

In: ids, and a table of int32[num_nodes]. Out: their positions, and the new ids appended. Invariant: the result does not depend on the order
in which lanes run: every id gets the smallest of the numbers that its occurrences claim, which is where it was first seen.

A batch owns a span of numbers below those of all batches before, so that nothing has to be emptied: known nodes have `base` and their
position, claims begin behind them, and what is left of an earlier batch is larger than any of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from penstock.kernels._block_sums import Blocks, sum_blocks
from penstock.kernels._triton import cdiv, launch

BLOCK = 1024
"""Elements per program."""
FEW_BLOCK, FEW = 256, 1 << 20
"""The same of so many elements: few programs, that wait for single numbers, leave a device idle."""

_SLICES = ("ids", "span", "count", "base", "known", "first", "ranks", "before", "arrived", "nodes", "positions")
"""Arguments that begin anywhere in a larger tensor: another alignment is not to be another kernel, compiled in the middle of a run."""

EMPTY = (1 << 31) - 1
"""What a table is filled with; larger than any claim."""


class Scratch(NamedTuple):
    """Memory to map m ids with.

    Attributes:
        first: int32[m], what the table says of each id.
        ranks: int32[m], new ids up to each one, of its block.
        blocks: nodes known before each block. Afterwards before[0] is `known[0]` as it was.
    """

    first: torch.Tensor
    ranks: torch.Tensor
    blocks: Blocks


def make_scratch(m: int, arrived: torch.Tensor) -> Scratch:
    """Take memory to map m ids with. `arrived`: of `Blocks`."""
    first, ranks = torch.empty((2, m), dtype=torch.int32, device=arrived.device)
    return Scratch(first, ranks, Blocks(torch.empty(cdiv(m, block_of(m)), dtype=torch.int64, device=arrived.device), arrived))


def block_of(m: int) -> int:
    """Elements per program, of m in all."""
    return min(BLOCK, FEW_BLOCK) if m <= FEW else BLOCK


def add_seeds(ids, count, table, base, nodes):
    """Start a batch: nodes[:n] = ids[:n], and the table has the first position of each.

    Args:
        ids: int64[>= n], each in [0, table.numel()); may be `nodes`.
        count: int64[>= 1], the first is n. The host need not know it.
        table: int32[num_nodes], values at least base + n or of earlier batches.
        base: int64[>= 1], the first is the first number of the batch's span. The host need not know it.
        nodes: int64[>= n].
    """
    m = ids.numel()
    block = block_of(m)
    launch(_add_seeds, cdiv(m, block), ids.device, ids, m, count, table, base, nodes, BLOCK=block)


def relabel(ids, span, table, base, known, nodes, positions, scratch, *, is_last=False):
    """Map ids to positions; append new ids at nodes[known[0]:], and add their number to all of `known`.

    Args:
        ids: int32 or int64[m]; what is no node of the table is left out, and its position undefined.
        span: int64[2], of ids only so many are there: span[1] - span[0], at most m. The host need not know it.
        table: int32[table size]. base: as in `add_seeds`, at most EMPTY - known[0] - m.
        known: int64[>= 1], all the same: how many nodes of the batch are known. The host need not know it.
        nodes: int64[>= known[0] + new ones]. positions: int64[m].
        scratch: from `make_scratch`, for m ids.
        is_last: of the batch, for these nodes: the table need not say where the new ones are.
    """
    m, device = ids.numel(), ids.device
    if m == 0:
        return
    (first, ranks, blocks), size, block = scratch, table.numel(), block_of(m)
    programs = cdiv(m, block)
    launch(_claim, programs, device, ids, span, table, size, base, known, BLOCK=block)
    launch(_find_first, programs, device, ids, span, table, size, base, known, known.numel(), first, ranks, *blocks, BLOCK=block)
    launch(_place, programs, device, ids, span, table, base, first, ranks, blocks.before, nodes, positions, IS_LAST=is_last, BLOCK=block)


@triton.jit(do_not_specialize=("m",), do_not_specialize_on_alignment=_SLICES)
def _add_seeds(ids, m, count, table, base, nodes, BLOCK: tl.constexpr):
    """Seeds are nodes; each claims its own number."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = (number < m) & (number < tl.load(count))
    node = tl.load(ids + number, mask=inside, other=0)
    tl.store(nodes + number, node, mask=inside)
    tl.atomic_min(table + node, (tl.load(base) + number).to(tl.int32), mask=inside, sem="relaxed")


@triton.jit(do_not_specialize=("table_size",), do_not_specialize_on_alignment=_SLICES)
def _claim(ids, span, table, table_size, base, known, BLOCK: tl.constexpr):
    """Each occurrence claims its id; the smallest number stays. Seeing a smaller one, none is made: that spares hubs most of theirs."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < tl.load(span + 1) - tl.load(span)
    node = tl.load(ids + number, mask=inside, other=0).to(tl.int64)
    inside = inside & (node >= 0) & (node < table_size)
    claim = (tl.load(base) + tl.load(known) + number).to(tl.int32)
    wanted = inside & (claim < tl.load(table + node, mask=inside, other=0))
    tl.atomic_min(table + node, claim, mask=wanted, sem="relaxed")


@triton.jit(do_not_specialize=("table_size", "num_known"), do_not_specialize_on_alignment=_SLICES)
def _find_first(ids, span, table, table_size, base, known, num_known, first, ranks, before, arrived, BLOCK: tl.constexpr):
    """What the table says of each id, and how many up to it, in this block, are new and first seen; how many before each block."""
    block = tl.program_id(0)
    number = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < tl.load(span + 1) - tl.load(span)
    node = tl.load(ids + number, mask=inside, other=0).to(tl.int64)
    is_node = inside & (node >= 0) & (node < table_size)
    value = tl.load(table + node, mask=is_node, other=-1)  # less than any number: what is no node is not new
    tl.store(first + number, value, mask=inside)
    is_first = (is_node & (value == tl.load(base) + tl.load(known) + number)).to(tl.int32)
    tl.store(ranks + number, tl.cumsum(is_first, axis=0), mask=inside)
    sum_blocks(before, arrived, block, tl.sum(is_first, axis=0).to(tl.int64), known, known, num_known)


@triton.jit(do_not_specialize_on_alignment=_SLICES)
def _place(ids, span, table, base, first, ranks, before, nodes, positions, IS_LAST: tl.constexpr, BLOCK: tl.constexpr):
    """Give new ids their positions in the order of the first claims; tell every occurrence the position of its id."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < tl.load(span + 1) - tl.load(span)
    begin, num_nodes = tl.load(base), tl.load(before)
    value = tl.load(first + number, mask=inside, other=0).to(tl.int64) - begin
    is_new = inside & (value >= num_nodes)
    claim = value - num_nodes
    rank = tl.load(ranks + claim, mask=is_new, other=1).to(tl.int64) - 1
    position = tl.where(is_new, tl.load(before + claim // BLOCK, mask=is_new, other=0) + rank, value)
    tl.store(positions + number, position, mask=inside)
    is_first = is_new & (claim == number)
    node = tl.load(ids + number, mask=is_first, other=0).to(tl.int64)
    tl.store(nodes + position, node, mask=is_first)
    if not IS_LAST:
        tl.store(table + node, (begin + position).to(tl.int32), mask=is_first)
