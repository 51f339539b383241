"""One hop of neighbour sampling by weight over one edge type, in passes over arrays. Same result as `reference.py`, byte for byte.

A draw is a binary search in the running sums of a list: a chain of reads that wait for each other. So nodes go in tiles, and the draws of
a tile in step: draw i of all its nodes takes its random words, then all their searches go on by one halving at a time, each prefetching
what it reads in the next round.

Without replacement no draw is ever repeated: what was taken before is kept in ascending order, and a number drawn below the sum of what is
left is moved up past each interval taken that begins at or below it. That is the search among what is left, so the distribution is
exact however skewed the weights are, in as many random words as there are draws.
"""

from __future__ import annotations

import numpy as np

from penstock import rng
from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store
from penstock.kernels.sample_neighbors.cpu import read_neighbors

philox = helper(rng.philox)
below_sum = helper(rng.below_sum)
sample_counter = helper(rng.sample_counter)

AHEAD = 16
"""How many nodes ahead their offsets are prefetched."""

TILE = 64
"""Nodes whose draws go in step."""

TILE_FANOUT = 64
"""Up to this fanout nodes go in tiles; above it, one by one."""

NEAR = 16
"""A search over so many positions is finished without a pause: they are in two or three lines of the cache."""

MAX_DRAWS = 1 << 20
"""Draws per node and hop: each takes a block of its own."""

_START, _DEGREE, _LEFT, _SOUGHT, _LOW, _SPAN, _LIVE, _COUNT, _TAKEN = (TILE * field for field in range(9))
"""Scratch of a tile: for the node in column j its list's start, length and sum of what is left; number sought, and where the search stands;
columns whose search goes on; draws so far. From _TAKEN on, `fanout` times: positions drawn, then intervals taken, begins and lengths."""


def scratch_sizes(fanout):
    """Elements of the two scratch arrays of `sample_neighbors`: (int64, uint32)."""
    if fanout > TILE_FANOUT:
        return _TAKEN + 2 * fanout, 3 * TILE
    return _TAKEN + 3 * TILE * max(fanout, 0), 3 * TILE * (1 + max(fanout, 0))


@kernel
def bound_neighbors(indptr, num_edges, nodes, fanout, replace):
    """Return (a bound on the edges that sampling `nodes` will take, -1); (-1, i) where the list of nodes[i] lies outside the edges."""
    total = 0
    for i in range(nodes.size):
        if i + AHEAD < nodes.size:
            prefetch_read(indptr, load(nodes, i + AHEAD))
        node = load(nodes, i)
        start, end = load(indptr, node), load(indptr, node + 1)
        if not 0 <= start <= end <= num_edges:
            return -1, i
        degree = end - start
        total += degree if fanout < 0 or (not replace and degree <= fanout) else fanout if degree > 0 else 0
    return total, -1


@helper
def _read_tile(indptr, sums, nodes, first, last, fanout, replace, hop, edge_type, copies, scratch, words):
    """Read the lists of nodes[first:last] that draw, and collect their counters. Returns how many they are."""
    count = 0
    for i in range(first, last):
        if i + AHEAD < nodes.size:
            prefetch_read(indptr, load(nodes, i + AHEAD))
        node = load(nodes, i)
        start = load(indptr, node)
        degree = load(indptr, node + 1) - start
        store(scratch, _START + count, start)
        store(scratch, _DEGREE + count, degree)
        copy = np.uint64(0)
        if copies is not None:
            copy = np.uint64(copies[i])
        word_0, word_1, _, word_3 = sample_counter(node, edge_type, hop, 0, copy)
        store(words, count, np.uint32(word_0))
        store(words, TILE + count, np.uint32(word_1))
        store(words, 2 * TILE + count, np.uint32(word_3))
        if _draws(degree, fanout, replace):
            count += 1
        elif degree > 0:
            prefetch_read(sums, start)
        prefetch_read(sums, start + degree - 1)
    return count


@helper
def _draws(degree, fanout, replace):
    return fanout >= 0 and (degree > fanout or (replace and degree > 0))


@helper
def _fill_words(words, count, fanout, batch, key):
    """Compute the words of all draws of the collected nodes: word k of draw i of node j at words[(3 + 3 * i + k) * TILE + j]."""
    key_0, key_1, batch = key[0], key[1], np.uint64(batch)
    for i in range(fanout):
        at = (3 + 3 * i) * TILE
        for j in range(count):
            w0, w1, w2, _ = philox(
                np.uint64(load(words, j)),
                np.uint64(load(words, TILE + j)),
                batch,
                np.uint64(load(words, 2 * TILE + j)) + np.uint64(i),
                key_0,
                key_1,
            )
            store(words, at + j, np.uint32(w0))
            store(words, at + TILE + j, np.uint32(w1))
            store(words, at + 2 * TILE + j, np.uint32(w2))


@helper
def _past_taken(drawn, scratch, begins, lengths, count):
    """Move a number drawn among what is left up past the intervals taken."""
    passed = 0
    while passed < count and load(scratch, begins + passed) <= drawn:
        drawn += load(scratch, lengths + passed)
        passed += 1
    return drawn


@helper
def _take(sums, position, start, scratch, begins, lengths, count):
    """Put the interval of a position among those taken, which stay in ascending order. Returns its length."""
    begin = np.int64(0)
    if position > start:
        begin = load(sums, position - 1)
    length = load(sums, position) - begin
    at = count
    while at > 0 and load(scratch, begins + at - 1) > begin:
        store(scratch, begins + at, load(scratch, begins + at - 1))
        store(scratch, lengths + at, load(scratch, lengths + at - 1))
        at -= 1
    store(scratch, begins + at, begin)
    store(scratch, lengths + at, length)
    return length


@helper
def _find(sums, low, span, sought):
    """Return the first position from `low` on whose running sum is above the number sought. No branch that could be guessed wrong."""
    while span > 1:
        half = span >> 1
        low += half * np.int64(load(sums, low + half - 1) <= sought)
        span -= half
    return low


@helper
def _begin_searches(sums, scratch, words, count, draw, fanout, replace):
    """Draw number `draw` of all nodes of a tile: what each seeks, and where. Returns how many lists are long."""
    live, at = 0, (3 + 3 * draw) * TILE
    begins = _TAKEN + TILE * fanout
    for j in range(count):
        left = load(scratch, _LEFT + j)
        w0, w1, w2 = load(words, at + j), load(words, at + TILE + j), load(words, at + 2 * TILE + j)
        sought = np.int64(below_sum(np.uint64(w0), np.uint64(w1), np.uint64(w2), np.uint64(left)))
        if not replace:
            first = begins + j * fanout
            sought = _past_taken(sought, scratch, first, first + TILE * fanout, load(scratch, _COUNT + j))
        start, degree = load(scratch, _START + j), load(scratch, _DEGREE + j)
        store(scratch, _SOUGHT + j, sought)
        store(scratch, _LOW + j, start)
        store(scratch, _SPAN + j, degree)
        if degree > NEAR and left > 0:
            store(scratch, _LIVE + live, j)
            prefetch_read(sums, start + (degree >> 1) - 1)
            live += 1
    return live


@helper
def _search_far(sums, scratch, live):
    """Go on with the searches in long lists, one halving of each per round, until what is left is near each other, and prefetched."""
    while live > 0:
        still = 0
        for k in range(live):
            j = load(scratch, _LIVE + k)
            low, span = load(scratch, _LOW + j), load(scratch, _SPAN + j)
            half = span >> 1
            low += half * np.int64(load(sums, low + half - 1) <= load(scratch, _SOUGHT + j))
            span -= half
            store(scratch, _LOW + j, low)
            store(scratch, _SPAN + j, span)
            prefetch_read(sums, low + (span >> 1) - 1)
            store(scratch, _LIVE + still, j)
            still += span > NEAR
        live = still


@helper
def _draw_tile(indices, sums, scratch, words, count, fanout, replace):
    """All draws of the collected nodes: draw i of column j to scratch[_TAKEN + j * fanout + i], how many to scratch[_COUNT + j]."""
    for j in range(count):
        start, degree = load(scratch, _START + j), load(scratch, _DEGREE + j)
        store(scratch, _LEFT + j, load(sums, start + degree - 1))
        store(scratch, _COUNT + j, np.int64(0))
    begins = _TAKEN + TILE * fanout
    for draw in range(fanout):
        _search_far(sums, scratch, _begin_searches(sums, scratch, words, count, draw, fanout, replace))
        for j in range(count):
            left = load(scratch, _LEFT + j)
            if left == 0:
                continue
            position = _find(sums, load(scratch, _LOW + j), load(scratch, _SPAN + j), load(scratch, _SOUGHT + j))
            drawn = load(scratch, _COUNT + j)
            store(scratch, _TAKEN + j * fanout + drawn, position)
            store(scratch, _COUNT + j, drawn + 1)
            if indices is not None:
                prefetch_read(indices, position)
            if not replace:
                first = begins + j * fanout
                left -= _take(sums, position, load(scratch, _START + j), scratch, first, first + TILE * fanout, drawn)
                store(scratch, _LEFT + j, left)


@helper
def _draw_alone(sums, start, degree, fanout, replace, counter, key, scratch, positions, first):
    """Draw for one node with a large fanout. Returns how many were drawn."""
    left, count, taken = load(sums, start + degree - 1), 0, 0
    while count < fanout and left > 0:
        w0, w1, w2, _ = philox(counter[0], counter[1], counter[2], counter[3] + np.uint64(count), key[0], key[1])
        sought = _past_taken(np.int64(below_sum(w0, w1, w2, np.uint64(left))), scratch, _TAKEN, _TAKEN + fanout, taken)
        low = _find(sums, start, degree, sought)
        store(positions, first + count, low)
        count += 1
        if not replace:
            left -= _take(sums, low, start, scratch, _TAKEN, _TAKEN + fanout, taken)
            taken += 1
    return count


@helper
def _take_positive(sums, start, degree, positions, first):
    """Take every position of positive weight, ascending. Returns how many they are."""
    count, before = 0, np.int64(0)
    for position in range(start, start + degree):
        here = load(sums, position)
        store(positions, first + count, position)
        count += here > before
        before = here
    return count


@helper
def draw_positions(
    indptr, indices, sums, nodes, fanout, replace, key, batch, hop, edge_type, copies, scratch, words, row_ptr, positions
):  # fmt: skip
    """First pass: running sums -> positions. Prefetches the neighbours that the second pass reads."""
    base = edges = load(row_ptr, 0)
    for tile in range(0, nodes.size, TILE):
        tile_end, column = min(tile + TILE, nodes.size), 0
        if fanout <= TILE_FANOUT:
            count = _read_tile(indptr, sums, nodes, tile, tile_end, fanout, replace, hop, edge_type, copies, scratch, words)
            _fill_words(words, count, fanout, batch, key)
            _draw_tile(indices, sums, scratch, words, count, fanout, replace)
        for i in range(tile, tile_end):
            node, first = load(nodes, i), edges - base
            start = load(indptr, node)
            degree = load(indptr, node + 1) - start
            if not _draws(degree, fanout, replace):
                taken = _take_positive(sums, start, degree, positions, first)
            elif fanout <= TILE_FANOUT:
                taken = load(scratch, _COUNT + column)
                for j in range(taken):
                    store(positions, first + j, load(scratch, _TAKEN + column * fanout + j))
                column += 1
            else:
                copy = np.uint64(0)
                if copies is not None:
                    copy = np.uint64(copies[i])
                counter = sample_counter(node, edge_type, hop, batch, copy)
                taken = _draw_alone(sums, start, degree, fanout, replace, counter, key, scratch, positions, first)
            edges += taken
            store(row_ptr, i + 1, edges)
    return edges - base


@kernel
def sample_neighbors(
    indptr,
    indices,
    sums,
    num_src,
    nodes,
    fanout,
    replace,
    key,
    batch,
    hop,
    edge_type,
    copies,
    scratch,
    words,
    row_ptr,
    positions,
    neighbors,
):
    """Sample in-neighbours of `nodes` by weight; see `reference.sample_neighbors`.

    Args:
        indices: None where neighbours are read from elsewhere: positions are drawn only.
        num_src: number of source nodes, for the check.
        scratch, words: int64 and uint32 of `scratch_sizes(fanout)` elements at least.
        row_ptr: int64[n + 1]; row_ptr[0] is the number of edges taken before and is added to the rest.
        positions: int64, neighbors: indices.dtype; as many elements as `bound_neighbors` says.
    Returns:
        The number of edges taken; -1 where a neighbour is no node (its list is damaged).
    """
    count = draw_positions(
        indptr, indices, sums, nodes, fanout, replace, key, batch, hop, edge_type, copies, scratch, words, row_ptr, positions
    )
    if indices is None:
        return count
    return count if read_neighbors(indices, num_src, positions, count, neighbors) else -1
