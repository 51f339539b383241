"""Compaction on a device, in first-seen order and without locks. Same result as `reference.py`, byte for byte.

In: ids, and a table of int32[num_nodes]. Out: the positions of the ids; new ids are appended to the list. Invariant: the result does not
depend on the order in which lanes run. Every occurrence of an id claims a number in the table, the smallest claim stays, and it belongs to
the first occurrence.

The table is never emptied: each batch uses a range of numbers below those of all earlier batches. The number of a known node is `base` plus
its position; claims begin after the known nodes; every number that an earlier batch left is larger.

With trees (disjoint sampling), the same node in two trees is two nodes. Then a hash table with open addressing first gives each pair (tree,
node) a slot, and the numbers belong to slots. The slot of a pair depends on the order in which lanes run; its position does not.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from penstock.kernels._block_sums import Blocks, make_blocks, sum_blocks
from penstock.kernels._device_lists import any_of
from penstock.kernels._triton import cdiv, launch

BLOCK = 1024
"""Elements per program."""
FEW_BLOCK, FEW = 256, 1 << 20
"""Elements per program for up to FEW elements in all: these programs wait for single reads, so too few of them leave a device idle."""

_SLICES = (
    "ids", "span", "count", "base", "known", "first", "ranks", "before", "arrived", "nodes", "positions", "slots", "columns", "trees_known",
    "trees",
)  # fmt: skip
"""Arguments that may begin anywhere in a larger tensor: a new alignment must not compile a new kernel in the middle of a run."""

EMPTY = (1 << 31) - 1
"""The value of a table entry that was never set; larger than any claim."""

FREE = -1
"""The key of a free slot in a table of pairs."""
_FREE: tl.constexpr = tl.constexpr(FREE)
_NEVER: tl.constexpr = tl.constexpr(-2)  # neither a pair nor FREE: in lanes that do not insert, the compare-and-swap changes nothing
_SPREAD: tl.constexpr = tl.constexpr(0x1E3779B97F4A7C15)


class Scratch(NamedTuple):
    """Memory for mapping m ids.

    Attributes:
        first: int32[m], the number that the table has for each id.
        ranks: int32[m], how many ids of the block, up to and including this one, are new.
        blocks: nodes known before each block; before[0] keeps the old `known[0]`.
    """

    first: torch.Tensor
    ranks: torch.Tensor
    blocks: Blocks


class Trees(NamedTuple):
    """The arguments for disjoint sampling, where each id belongs to a tree.

    Attributes:
        keys: int64[size], a hash table of pairs (tree, node); size is a power of two, at least `FEWEST_KEYS` and at least twice the number
            of pairs. Emptied by `forget`.
        num_nodes: number of nodes of this type in the graph.
        slots: int64[m], scratch: where in `keys` the pair of each id is.
        known: int64, columns: int64[m] or None: the tree of ids[j] is known[columns[j]]; without columns, known[j].
        mine: int64, as long as `nodes`: the tree of each node; may be `known`.
    """

    keys: torch.Tensor
    num_nodes: int
    slots: torch.Tensor
    known: torch.Tensor
    columns: torch.Tensor | None
    mine: torch.Tensor


FEWEST_KEYS = 1024
"""Smallest size of a table of pairs."""


def forget(keys):
    """Empty a table of pairs."""
    launch(_forget, keys.numel() // FEWEST_KEYS, keys.device, keys, BLOCK=FEWEST_KEYS)


def make_scratch(m: int, arrived: torch.Tensor) -> Scratch:
    """Allocate memory for mapping m ids. `arrived`: see `Blocks`."""
    first, ranks = torch.empty((2, m), dtype=torch.int32, device=arrived.device)
    return Scratch(first, ranks, make_blocks(m, block_of(m), arrived))


def block_of(m: int) -> int:
    """Elements per program, for m elements in all."""
    return min(BLOCK, FEW_BLOCK) if m <= FEW else BLOCK


def add_seeds(ids, count, table, base, nodes, trees=None):
    """Start a batch: nodes[:n] = ids[:n]; the table gets the first position of each id.

    Args:
        ids: int64[>= n], each in [0, table.numel()), or with trees in [0, trees.num_nodes); may be `nodes`.
        count: int64[>= 1]; count[0] is n. The host need not know it.
        table: int32[num_nodes], or int32[keys.numel()] with trees; all values are at least base[0] + n.
        base: int64[>= 1]; base[0] is the first number of the batch's range. The host need not know it.
        nodes: int64[>= n].
        trees: without columns; None: not disjoint.
    """
    m = ids.numel()
    block, slots = block_of(m), _find_slots(ids, count, trees)
    known, mine = (None, None) if trees is None else (trees.known, trees.mine)
    arguments = (ids, slots, m, count, table, base, nodes, known, mine)
    launch(_add_seeds, cdiv(m, block), ids.device, *arguments, HAS_TREES=trees is not None, BLOCK=block)


def relabel(ids, span, table, base, known, nodes, positions, scratch, *, is_last=False, trees=None):
    """Map ids to positions; append new ids at nodes[known[0]:], and add their number to every element of `known`.

    Args:
        ids: int32 or int64[m]. An id that is out of range is skipped; its position is undefined.
        span: int64[2]; only the first span[1] - span[0] ids, at most m, are valid. The host need not know it.
        table: int32[table size]. base: as in `add_seeds`, at most EMPTY - known[0] - m.
        known: int64[>= 1], all elements equal: the number of nodes in the batch so far. The host need not know it.
        nodes: int64[>= known[0] + number of new ids]. positions: int64[m].
        scratch: from `make_scratch`, for m ids.
        is_last: no later call of this batch uses the table, so new ids need not be entered in it.
        trees: with columns; the trees of new ids are appended to `trees.mine`.
    """
    m, device = ids.numel(), ids.device
    if m == 0:
        return
    (first, ranks, blocks), size, block = scratch, table.numel(), block_of(m)
    programs, slots = cdiv(m, block), _find_slots(ids, span, trees)
    launch(_claim, programs, device, slots, span, table, size, base, known, BLOCK=block)
    launch(_find_first, programs, device, slots, span, table, size, base, known, known.numel(), first, ranks, *blocks, BLOCK=block)
    of_trees = (None, None, None) if trees is None else (trees.known, trees.columns, trees.mine)
    arguments = (ids, slots, span, table, base, first, ranks, blocks.before, nodes, positions, *of_trees)
    launch(_place, programs, device, *arguments, IS_LAST=is_last, HAS_TREES=trees is not None, BLOCK=block)


def _find_slots(ids, ends, trees):
    """Where in the table each id is. `ends`: the number of ids; with columns, a span."""
    if trees is None:
        return ids
    keys, num_nodes, slots, known, columns, _ = trees
    m = ids.numel()
    block, has_columns = block_of(m), columns is not None
    arguments = (ids, m, ends, keys, keys.numel() - 1, num_nodes, known, columns, slots)
    launch(_find_slot, cdiv(m, block), ids.device, *arguments, HAS_COLUMNS=has_columns, BLOCK=block)
    return slots


@triton.jit
def _forget(keys, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(keys + place, tl.full((BLOCK,), _FREE, tl.int64))


@triton.jit(do_not_specialize=("m", "mask", "num_nodes"), do_not_specialize_on_alignment=_SLICES)
def _find_slot(ids, m, span, keys, mask, num_nodes, trees_known, columns, slots, HAS_COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Find or insert each pair (tree, node), and write its slot; -1 for an id that is out of range."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(span)
    if HAS_COLUMNS:
        count = tl.load(span + 1) - count
    inside = (number < m) & (number < count)
    node = tl.load(ids + number, mask=inside, other=-1).to(tl.int64)
    is_node = (node >= 0) & (node < num_nodes)
    at = tl.load(columns + number, mask=inside, other=0) if HAS_COLUMNS else number
    key = tl.load(trees_known + at, mask=inside, other=0) * num_nodes + node
    slot = ((key * _SPREAD) >> 32) & mask
    sought = is_node
    while any_of(sought):
        held = tl.load(keys + slot, mask=sought, other=_NEVER)
        is_free = sought & (held == _FREE)
        if any_of(is_free):
            expected = tl.where(is_free, _FREE, _NEVER).to(tl.int64)
            before = tl.atomic_cas(keys + slot, expected, tl.where(is_free, key, _NEVER), sem="relaxed")
            held = tl.where(is_free, tl.where(before == _FREE, key, before), held)
        sought = sought & (held != key)
        slot = tl.where(sought, (slot + 1) & mask, slot)
    tl.store(slots + number, tl.where(is_node, slot, -1), mask=inside)


@triton.jit(do_not_specialize=("m",), do_not_specialize_on_alignment=_SLICES)
def _add_seeds(ids, slots, m, count, table, base, nodes, trees_known, trees, HAS_TREES: tl.constexpr, BLOCK: tl.constexpr):
    """Copy the seeds to `nodes`; each claims its own number in the table."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = (number < m) & (number < tl.load(count))
    tl.store(nodes + number, tl.load(ids + number, mask=inside, other=0), mask=inside)
    slot = tl.load(slots + number, mask=inside, other=0)
    tl.atomic_min(table + slot, (tl.load(base) + number).to(tl.int32), mask=inside, sem="relaxed")
    if HAS_TREES:
        tl.store(trees + number, tl.load(trees_known + number, mask=inside, other=0), mask=inside)


@triton.jit(do_not_specialize=("table_size",), do_not_specialize_on_alignment=_SLICES)
def _claim(ids, span, table, table_size, base, known, BLOCK: tl.constexpr):
    """Each occurrence claims its id; the smallest number stays. Where the table has a smaller one, no claim is made: this spares most
    claims for hubs."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < tl.load(span + 1) - tl.load(span)
    node = tl.load(ids + number, mask=inside, other=0).to(tl.int64)
    inside = inside & (node >= 0) & (node < table_size)
    claim = (tl.load(base) + tl.load(known) + number).to(tl.int32)
    wanted = inside & (claim < tl.load(table + node, mask=inside, other=0))
    tl.atomic_min(table + node, claim, mask=wanted, sem="relaxed")


@triton.jit(do_not_specialize=("table_size", "num_known"), do_not_specialize_on_alignment=_SLICES)
def _find_first(ids, span, table, table_size, base, known, num_known, first, ranks, before, arrived, BLOCK: tl.constexpr):
    """Write the table's number for each id, and running counts of first occurrences of new ids, within blocks and over blocks."""
    block = tl.program_id(0)
    number = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < tl.load(span + 1) - tl.load(span)
    node = tl.load(ids + number, mask=inside, other=0).to(tl.int64)
    is_node = inside & (node >= 0) & (node < table_size)
    value = tl.load(table + node, mask=is_node, other=-1)  # less than any number: an id that is out of range is not new
    tl.store(first + number, value, mask=inside)
    is_first = (is_node & (value == tl.load(base) + tl.load(known) + number)).to(tl.int32)
    tl.store(ranks + number, tl.cumsum(is_first, axis=0), mask=inside)
    sum_blocks(before, arrived, block, tl.sum(is_first, axis=0).to(tl.int64), known, known, num_known)


@triton.jit(do_not_specialize_on_alignment=_SLICES)
def _place(
    ids, slots, span, table, base, first, ranks, before, nodes, positions, trees_known, columns, trees, IS_LAST: tl.constexpr,
    HAS_TREES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Give new ids positions in the order of their first occurrences, and write for every occurrence the position of its id."""
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
    tl.store(nodes + position, tl.load(ids + number, mask=is_first, other=0).to(tl.int64), mask=is_first)
    if HAS_TREES:
        column = tl.load(columns + number, mask=is_first, other=0)
        tl.store(trees + position, tl.load(trees_known + column, mask=is_first, other=0), mask=is_first)
    if not IS_LAST:
        slot = tl.load(slots + number, mask=is_first, other=0).to(tl.int64)
        tl.store(table + slot, (begin + position).to(tl.int32), mask=is_first)
