"""Compaction on a device, in first-seen order and without locks. Same result as `reference.py`, byte for byte.

In: ids, and a table of int32[num_nodes]. Out: their positions, and the new ids appended. Invariant: the result does not depend on the order
in which lanes run: every id gets the smallest of the numbers that its occurrences claim, which is where it was first seen.

A batch owns a span of numbers below those of all batches before, so that nothing has to be emptied: known nodes have `base` and their
position, claims begin behind them, and what is left of an earlier batch is larger than any of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.kernels._triton import launch

BLOCK = 1024
"""Elements per program."""

_SLICES = ("ids", "known", "first", "ranks", "nodes", "positions")
"""Arguments that begin anywhere in a larger tensor: another alignment is not to be another kernel, compiled in the middle of a run."""

EMPTY = (1 << 31) - 1
"""What a table is filled with; larger than any claim."""


def add_seeds(ids, table, base, nodes):
    """Start a batch: nodes[:n] = ids, and the table has the first position of each.

    Args:
        ids: int64[n], each in [0, table.numel()).
        table: int32[num_nodes], values at least base + n or of earlier batches.
        base: first number of the batch's span.
        nodes: int64[>= n].
    """
    nodes[: ids.numel()] = ids
    _claim_all(ids, table, base, None)


def relabel(ids, table, base, known, nodes, positions, first, ranks):
    """Map ids to positions; append new ids at nodes[known[0]:].

    Args:
        ids: int32 or int64[m]; what is no node of the table is left out, and its position undefined.
        table: int32[table size]. base: as in `add_seeds`, at most EMPTY - known[0] - m.
        known: int64[>= 1], how many nodes of the batch are known. The host need not know it.
        nodes: int64[>= known[0] + new ones]. positions: int64[m].
        first, ranks: scratch, int32[m]. Afterwards ranks[m - 1] is the number of new nodes.
    """
    m, device = ids.numel(), ids.device
    if m == 0:
        return
    programs = triton.cdiv(m, BLOCK)
    _claim_all(ids, table, base, known)
    launch(_find_first, programs, device, ids, m, table, table.numel(), base, known, first, ranks, BLOCK=BLOCK)
    torch.cumsum(ranks, 0, dtype=torch.int32, out=ranks)
    launch(_place, programs, device, ids, m, table, base, known, first, ranks, nodes, positions, BLOCK=BLOCK)


def _claim_all(ids, table, base, known):
    m = ids.numel()
    launch(_claim, triton.cdiv(m, BLOCK), ids.device, ids, m, table, table.numel(), base, known, HAS_KNOWN=known is not None, BLOCK=BLOCK)


@triton.jit(do_not_specialize=("m", "table_size", "base"), do_not_specialize_on_alignment=_SLICES)
def _claim(ids, m, table, table_size, base, known, HAS_KNOWN: tl.constexpr, BLOCK: tl.constexpr):
    """Each occurrence claims its id; the smallest number stays. Seeing a smaller one, none is made: that spares hubs most of theirs."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < m
    node = tl.load(ids + number, mask=inside, other=0).to(tl.int64)
    inside = inside & (node >= 0) & (node < table_size)
    claim = (base + number + (tl.load(known) if HAS_KNOWN else 0)).to(tl.int32)
    wanted = inside & (claim < tl.load(table + node, mask=inside, other=0))
    tl.atomic_min(table + node, claim, mask=wanted, sem="relaxed")


@triton.jit(do_not_specialize=("m", "table_size", "base"), do_not_specialize_on_alignment=_SLICES)
def _find_first(ids, m, table, table_size, base, known, first, ranks, BLOCK: tl.constexpr):
    """What the table says of each id, and 1 in `ranks` where an id is new and first seen."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < m
    node = tl.load(ids + number, mask=inside, other=0).to(tl.int64)
    is_node = inside & (node >= 0) & (node < table_size)
    value = tl.load(table + node, mask=is_node, other=-1)  # less than any number: what is no node is not new
    tl.store(first + number, value, mask=inside)
    tl.store(ranks + number, (is_node & (value == base + tl.load(known) + number)).to(tl.int32), mask=inside)


@triton.jit(do_not_specialize=("m", "base"), do_not_specialize_on_alignment=_SLICES)
def _place(ids, m, table, base, known, first, ranks, nodes, positions, BLOCK: tl.constexpr):
    """Give new ids their positions in the order of the first claims; tell every occurrence the position of its id."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < m
    num_nodes = tl.load(known)
    value = tl.load(first + number, mask=inside, other=0).to(tl.int64) - base
    is_new = inside & (value >= num_nodes)
    rank = tl.load(ranks + (value - num_nodes), mask=is_new, other=1).to(tl.int64) - 1
    position = tl.where(is_new, num_nodes + rank, value)
    tl.store(positions + number, position, mask=inside)
    is_first = is_new & (value - num_nodes == number)
    node = tl.load(ids + number, mask=is_first, other=0).to(tl.int64)
    tl.store(nodes + position, node, mask=is_first)
    tl.store(table + node, (base + position).to(tl.int32), mask=is_first)
