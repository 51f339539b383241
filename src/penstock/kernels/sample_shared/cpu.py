"""One hop of neighbour sampling by shared numbers over one edge type, list by list. Same result as `reference.py`, byte for byte.

A list longer than the fanout is read whole, and each of its neighbours needs a number: this is the main cost. So the work on a list goes in
passes over small arrays: copy the neighbours; count repeated ones, unless the list is known to have none; compute the numbers, in a loop
that LLVM vectorises; find the bound such that `fanout` numbers are at or below it. The numbers are uniform, so the bound is near a known
value: a few counts find it, and no branch depends on a single number.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._bits import has_bit, set_bit
from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store
from penstock.kernels._random import philox, sample_counter

AHEAD, NEAR = 16, 6
"""How many nodes ahead the offsets of a node's list are prefetched, and the beginning of the list."""

GUESSES = 8
"""How often the search for the bound interpolates; then it halves, which ends whatever the numbers are."""

VECTOR = 16
"""Numbers are computed in groups of this size, because a scalar remainder takes as long as a group. Scratch is longer than the lists by as
much."""

_HASH = np.uint64(0x9E3779B97F4A7C15)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_LAST_STAMP = (1 << 31) - 1

MAX_DEGREE = 1 << 30
"""Most edges of a list longer than the fanout: its table has a stamp per neighbour."""


def table_size(longest):
    """Elements of the table for lists of up to `longest` neighbours: four to eight slots per neighbour, then one element for the next
    stamp."""
    return (1 << (4 * longest - 1).bit_length()) + 1


@helper
def _copy(lists, at, degree, ids):
    """Copy a list. Returns its largest id, as uint64: a negative id is huge."""
    largest = np.uint64(0)
    for j in range(degree):
        neighbor = np.uint64(np.int64(load(lists, at + j)))
        largest = max(largest, neighbor)
        store(ids, j, neighbor)
    return largest


@helper
def _count_repeats(ids, degree, repeats, table):
    """Count how often each neighbour occurs earlier in its list, by a hash table of stamps. Stamps of other lists are lower, so the table
    is emptied only when the stamps run out. Returns whether any neighbour repeats."""
    last = table.size - 1
    base = np.int64(load(table, last))
    if base > _LAST_STAMP - degree:
        for slot in range(last):
            store(table, slot, np.int32(0))
        base = np.int64(0)
    base += base == 0  # 0 marks an empty slot
    bits = np.uint64(2)
    while np.int64(1) << np.int64(bits) < 4 * degree:
        bits += np.uint64(1)
    mask, shift, has_repeats = (np.int64(1) << np.int64(bits)) - 1, np.uint64(64) - bits, False
    for j in range(degree):
        neighbor = load(ids, j)
        slot, repeat = np.int64((neighbor * _HASH) >> shift), np.uint32(0)
        while True:
            before = np.int64(load(table, slot)) - base
            if before < 0:
                break
            if load(ids, before) == neighbor:
                repeat, has_repeats = np.uint32(load(repeats, before) + 1), True
                break
            slot = (slot + 1) & mask
        store(repeats, j, repeat)
        store(table, slot, np.int32(base + j))
    store(table, last, np.int32(base + degree))
    return has_repeats


@kernel
def count_repeats(indptr, indices, ids, repeats, table, out):
    """Count, for all lists, how often each neighbour occurs earlier in its list. Skips lists that lie outside the edges.

    Args:
        ids, repeats, table: scratch, as in `sample_neighbors`.
        out: int[num_edges], zeros, the result; if empty, nothing is written.
    Returns:
        The largest count.
    """
    most = np.uint32(0)
    for node in range(indptr.size - 1):
        start, end = load(indptr, node), load(indptr, node + 1)
        if not 0 <= start <= end <= indices.size:
            continue
        _copy(indices, start, end - start, ids)
        if _count_repeats(ids, end - start, repeats, table):
            for j in range(end - start):
                most = max(most, load(repeats, j))
                if out.size:
                    store(out, start + j, load(repeats, j))
    return most


@helper
def _number(ids, degree, repeats, word_1, batch, key, numbers):
    """Compute the number of each neighbour of a list."""
    key_0, key_1 = key[0], key[1]
    for j in range(degree):
        node = load(ids, j)
        high, low, _, _ = philox(node & _LOW, word_1 | (node >> _32), batch, np.uint64(load(repeats, j)), key_0, key_1)
        store(numbers, j, (high << _32) | low)


@helper
def find_bound(numbers, degree, fanout):
    """Return a bound such that `fanout` of the numbers are at or below it; more than `fanout` only if several equal the bound."""
    low, high = np.uint64(0), _LARGEST
    below, upto, count = 0, degree, 0  # how many numbers are below `low`, and up to `high`; rounds so far
    while upto > fanout and low < high:
        share = (fanout - below + 0.5) / (upto - below + 1.0) if count < GUESSES else 0.5
        middle = low + min(np.uint64(share * np.float64(high - low)), high - low - np.uint64(1))
        here = 0
        for j in range(degree):
            here += load(numbers, j) <= middle
        if here < fanout:
            low, below = middle + np.uint64(1), here
        else:
            high, upto = middle, here
        count += 1
    return high


@helper
def _take(lists, at, numbers, bound, fanout, start, positions, neighbors, first):
    """Write the positions and ids of the first `fanout` neighbours whose numbers are at or below a bound."""
    taken = j = 0
    while taken < fanout:
        store(positions, first + taken, start + j)
        store(neighbors, first + taken, load(lists, at + j))
        taken += load(numbers, j) <= bound
        j += 1


@helper
def _take_all(lists, at, degree, start, positions, neighbors, first):
    largest = np.uint64(0)
    for j in range(degree):
        neighbor = load(lists, at + j)
        largest = max(largest, np.uint64(np.int64(neighbor)))
        store(positions, first + j, start + j)
        store(neighbors, first + j, neighbor)
    return largest


@helper
def _find_wrong(lists, at, degree, num_src):
    """The first slot whose neighbour id is out of range."""
    for j in range(degree):
        if np.uint64(np.int64(load(lists, at + j))) >= np.uint64(num_src):
            return j
    return degree


@kernel
def sample_neighbors(
    indptr,
    lists,
    begins,
    num_src,
    nodes,
    fanout,
    key,
    batch,
    hop,
    source,
    plain,
    ids,
    repeats,
    table,
    numbers,
    row_ptr,
    positions,
    neighbors,
):
    """Sample in-neighbours of `nodes`; see `reference.sample_neighbors`.

    Args:
        lists: int32 or int64: the neighbours of all nodes, `indices`; with `begins`, the lists of `nodes` only, one after another.
        begins: int64[n + 1] or None: list i begins at lists[begins[i] - begins[0]]; replaces `indptr` for reading.
        num_src: number of source nodes; neighbour ids are checked against it.
        fanout: at least 1.
        plain: uint64[ceil(num_dst / 64)], zero at first; a bit is set once the node's list is known to have no repeated neighbour. Looking
            for repetitions takes a quarter of the time, and popular lists come in every batch.
        ids, repeats, numbers: scratch, uint64, uint32, uint64[longest list + VECTOR].
        table: scratch, int32[table_size(longest list)], zero at first.
        row_ptr: int64[n + 1]; row_ptr[0] is the number of edges sampled before, and the offsets written continue from it.
        positions: int64[>= m], neighbors: lists.dtype[>= m]; m from `sample_neighbors.cpu.count_neighbors`.
    Returns:
        -1; or, if a neighbour id is out of range (its list is damaged), its position; sampling stops there.
    """
    base = edges = load(row_ptr, 0)
    _, word_1, word_2, _ = sample_counter(0, source, hop, batch, 0)
    for i in range(nodes.size):
        if i + AHEAD < nodes.size:
            prefetch_read(indptr, load(nodes, i + AHEAD))
        if begins is None and i + NEAR < nodes.size:
            prefetch_read(lists, load(indptr, load(nodes, i + NEAR)))
        node = load(nodes, i)
        start = load(indptr, node)
        degree, at, first = load(indptr, node + 1) - start, start, edges - base
        if begins is not None:
            at = load(begins, i) - load(begins, 0)
        if degree <= fanout:
            largest = _take_all(lists, at, degree, start, positions, neighbors, first)
        else:
            largest = _copy(lists, at, degree, ids)
            if has_bit(plain, node):
                for j in range(degree):
                    store(repeats, j, np.uint32(0))
            elif not _count_repeats(ids, degree, repeats, table):
                set_bit(plain, node)
            _number(ids, (degree + VECTOR - 1) // VECTOR * VECTOR, repeats, word_1, word_2, key, numbers)
            _take(lists, at, numbers, find_bound(numbers, degree, fanout), fanout, start, positions, neighbors, first)
        if degree > 0 and largest >= np.uint64(num_src):
            return start + _find_wrong(lists, at, degree, num_src)
        edges += min(degree, np.int64(fanout))
        store(row_ptr, i + 1, edges)
    return -1
