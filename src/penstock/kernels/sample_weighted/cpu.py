"""One hop of neighbour sampling by weight over one edge type, in passes over arrays. Same result as `reference.py`, byte for byte.

A draw is a binary search in the running sums of a list: a chain of reads, each waiting for the one before. In a long list, a guide narrows
the search to a few edges first. The draws of a tile of nodes go in step: for draw i of all its nodes, compute the random words, read all
guides, then all sums, each pass prefetching for the next. Searches that are still long then go on in rounds, one halving of each per round.

Without replacement, no draw is rejected and repeated. The intervals taken so far are kept in ascending order. A number is drawn below the
sum of the weights left, then moved up past each taken interval that begins at or below it. This equals a search among the edges left: the
distribution is exact however skewed the weights are, and a draw takes one block of random words.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, store
from penstock.kernels._random import COUNTER_ROWS, below_sum, copy_of, draw_block, keep_counter, philox, sample_counter
from penstock.kernels.running_sums.cpu import band
from penstock.kernels.running_sums.reference import SHORT, STEP_BITS
from penstock.kernels.sample_neighbors.cpu import read_neighbors

AHEAD = 16
"""How many nodes ahead the offsets of a node's list are prefetched."""

TILE = 64
"""Nodes whose draws go in step."""

TILE_FANOUT = 64
"""Up to this fanout, a tile of nodes draws together; above it, node by node."""

LINE = 8
"""Sums in a cache line."""

NEAR_HALVINGS = 4
NEAR = 1 << NEAR_HALVINGS
"""A search with at most NEAR positions left is finished at once: their cache lines are prefetched."""

MAX_DRAWS = 1 << 20
"""Most draws per node and hop: each takes a block of its own."""

_START, _DEGREE, _TOTAL, _LEFT, _COUNT, _SOUGHT, _PASSED, _LOW, _SPAN, _LONG, _LIVE, _DRAWN = (TILE * field for field in range(12))
"""Scratch of a tile, in the order of these names. For the node in column j: start, length and sum of its list, and the sum left; draws so
far; the number sought, how many taken intervals are before it, and the search's range (low, span). Then the columns with long lists, and
the columns whose search goes on. From _DRAWN on: the drawn positions, `fanout` per column, then per column the begins of the taken
intervals and the sums of their lengths, `fanout` + 1 of each (see `_past_taken`)."""


def scratch_sizes(fanout):
    """Elements of the two scratch arrays of `sample_neighbors`: (int64, uint32)."""
    columns, fanout = (1, fanout) if fanout > TILE_FANOUT else (TILE, max(fanout, 0))
    return _DRAWN + columns * (3 * fanout + 2), TILE * (COUNTER_ROWS + (3 * fanout if columns > 1 else 0))


@helper
def _read_tile(indptr, sums, nodes, first, last, fanout, replace, hop, edge_type, copies, scratch, words):
    """Collect list starts, degrees and counters of those nodes[first:last] that draw. Returns how many there are."""
    count = 0
    for i in range(first, last):
        if i + AHEAD < nodes.size:
            prefetch_read(indptr, load(nodes, i + AHEAD))
        node = load(nodes, i)
        start = load(indptr, node)
        degree = load(indptr, node + 1) - start
        store(scratch, _START + count, start)
        store(scratch, _DEGREE + count, degree)
        keep_counter(words, TILE, count, node, hop, edge_type, copy_of(copies, i))
        count += _draws(degree, fanout, replace)
        if degree <= SHORT:
            for at in range(start, start + degree, LINE):
                prefetch_read(sums, at)
        prefetch_read(sums, start + degree - 1)
    return count


@helper
def _draws(degree, fanout, replace):
    return fanout >= 0 and (degree > fanout or (replace and degree > 0))


@helper
def _fill_words(words, count, fanout, batch, key):
    """Compute the words of all draws of the collected nodes: word k of draw i of node j at words[(COUNTER_ROWS + 3 * i + k) * TILE + j]."""
    key_0, key_1, batch = key[0], key[1], np.uint64(batch)
    for i in range(fanout):
        at = (COUNTER_ROWS + 3 * i) * TILE
        for j in range(count):
            w0, w1, w2, _ = draw_block(words, TILE, j, batch, i, key_0, key_1)
            store(words, at + j, np.uint32(w0))
            store(words, at + TILE + j, np.uint32(w1))
            store(words, at + 2 * TILE + j, np.uint32(w2))


@helper
def _past_taken(drawn, scratch, begins, before, count):
    """Move a number that was drawn below the sum left up past the taken intervals. Returns (the number, how many intervals it passed).

    begins: where each taken interval begins once the taken ones before it are removed; ascending. before[k]: the summed length of the first
    k. The count has no early exit, so it vectorises and no branch is mispredicted.
    """
    passed = 0
    for k in range(count):
        passed += load(scratch, begins + k) <= drawn
    return drawn + load(scratch, before + passed), passed


@helper
def _take(sums, position, start, scratch, begins, before, count, passed):
    """Insert the interval of a position after the `passed` taken intervals before it. Returns its length."""
    begin = np.int64(0)
    if position > start:
        begin = load(sums, position - 1)
    length = load(sums, position) - begin
    for k in range(count, passed, -1):
        store(scratch, begins + k, load(scratch, begins + k - 1) - length)
        store(scratch, before + k + 1, load(scratch, before + k) + length)
    store(scratch, begins + passed, begin - load(scratch, before + passed))
    store(scratch, before + passed + 1, load(scratch, before + passed) + length)
    return length


@helper
def _find(sums, low, span, sought):
    """Return the first of `span` positions from `low` on whose running sum exceeds the number sought."""
    while span > 1:
        half = span >> 1
        low += half & -np.int64(load(sums, low + half - 1) <= sought)
        span -= half
    return low


@helper
def _find_near(sums, low, span, sought):
    """As `_find`, for up to NEAR positions: always four halvings, so that no branch depends on the list."""
    for _ in range(NEAR_HALVINGS):
        half = span >> 1
        low += half & -np.int64(load(sums, low + max(half - 1, 0)) <= sought)
        span -= half
    return low


@helper
def _begin_searches(guide, scratch, words, count, num_long, draw, fanout, replace):
    """Begin draw number `draw` of all nodes of a tile: the number that each seeks and the range to search. Prefetches the guides of long
    lists."""
    at, taken = (COUNTER_ROWS + 3 * draw) * TILE, _DRAWN + TILE * fanout
    for j in range(count):
        w0, w1, w2 = load(words, at + j), load(words, at + TILE + j), load(words, at + 2 * TILE + j)
        sought = np.int64(below_sum(np.uint64(w0), np.uint64(w1), np.uint64(w2), np.uint64(load(scratch, _LEFT + j))))
        if not replace:
            begins = taken + 2 * (fanout + 1) * j
            sought, passed = _past_taken(sought, scratch, begins, begins + fanout + 1, load(scratch, _COUNT + j))
            store(scratch, _PASSED + j, np.int64(passed))
        store(scratch, _SOUGHT + j, sought)
        store(scratch, _LOW + j, load(scratch, _START + j))
        store(scratch, _SPAN + j, load(scratch, _DEGREE + j))
    for k in range(num_long):
        j = load(scratch, _LONG + k)
        this = band(load(scratch, _SOUGHT + j), max(load(scratch, _TOTAL + j), np.int64(1)), load(scratch, _DEGREE + j) >> STEP_BITS)
        store(scratch, _LOW + j, np.int64(this))
        prefetch_read(guide, (load(scratch, _START + j) >> STEP_BITS) + this)


@helper
def _ask_guide(sums, guide, scratch, num_long):
    """Narrow the searches in long lists by their guides. Returns how many still have more than NEAR positions; for the others, the
    positions are prefetched."""
    live = 0
    for i in range(num_long):
        j = load(scratch, _LONG + i)
        start, degree, this = load(scratch, _START + j), load(scratch, _DEGREE + j), load(scratch, _LOW + j)
        entry = (start >> STEP_BITS) + this
        first, last = np.int64(load(guide, entry)), degree - 1
        if this + 1 < degree >> STEP_BITS:
            last = np.int64(load(guide, entry + 1))
        low, span = start + first, last - first + 1
        store(scratch, _LOW + j, low)
        store(scratch, _SPAN + j, span)
        prefetch_read(sums, low - 1)
        if span <= NEAR:
            prefetch_read(sums, low + span - 1)
            prefetch_read(sums, low + (span >> 1))
        else:
            prefetch_read(sums, low + (span >> 1) - 1)
            store(scratch, _LIVE + live, j)
            live += 1
    return live


@helper
def _search_far(sums, scratch, live):
    """Continue the searches, one halving of each per round, until all are down to NEAR positions."""
    while live > 0:
        still = 0
        for k in range(live):
            j = load(scratch, _LIVE + k)
            low, span = load(scratch, _LOW + j), load(scratch, _SPAN + j)
            half = span >> 1
            low += half & -np.int64(load(sums, low + half - 1) <= load(scratch, _SOUGHT + j))
            span -= half
            store(scratch, _LOW + j, low)
            store(scratch, _SPAN + j, span)
            prefetch_read(sums, low + (span >> 1) - 1)
            store(scratch, _LIVE + still, j)
            still += span > NEAR
        live = still


@helper
def _draw_tile(indices, sums, guide, scratch, words, count, fanout, replace):
    """Make all draws of the collected nodes. Draw i of column j goes to scratch[_DRAWN + j * fanout + i], the number of draws to
    scratch[_COUNT + j]."""
    taken, num_long = _DRAWN + TILE * fanout, 0
    for j in range(count):
        store(scratch, _LONG + num_long, j)
        num_long += load(scratch, _DEGREE + j) > SHORT
        total = load(sums, load(scratch, _START + j) + load(scratch, _DEGREE + j) - 1)
        store(scratch, _TOTAL + j, total)
        store(scratch, _LEFT + j, total)
        store(scratch, _COUNT + j, np.int64(0))
        store(scratch, taken + 2 * (fanout + 1) * j + fanout + 1, np.int64(0))
    for draw in range(fanout):
        _begin_searches(guide, scratch, words, count, num_long, draw, fanout, replace)
        _search_far(sums, scratch, _ask_guide(sums, guide, scratch, num_long))
        for j in range(count):
            left, drawn = load(scratch, _LEFT + j), load(scratch, _COUNT + j)
            if left == 0:
                continue
            position = _find_near(sums, load(scratch, _LOW + j), load(scratch, _SPAN + j), load(scratch, _SOUGHT + j))
            store(scratch, _DRAWN + j * fanout + drawn, position)
            store(scratch, _COUNT + j, drawn + 1)
            if indices is not None:
                prefetch_read(indices, position)
            if not replace:
                begins, passed = taken + 2 * (fanout + 1) * j, load(scratch, _PASSED + j)
                left -= _take(sums, position, load(scratch, _START + j), scratch, begins, begins + fanout + 1, drawn, passed)
                store(scratch, _LEFT + j, left)


@helper
def _draw_alone(sums, start, degree, fanout, replace, counter, key, scratch, positions, first):
    """Draw for one node with a large fanout. Returns how many were drawn."""
    left, count, begins, before = load(sums, start + degree - 1), 0, _DRAWN, _DRAWN + fanout + 1
    store(scratch, before, np.int64(0))
    while count < fanout and left > 0:
        w0, w1, w2, _ = philox(counter[0], counter[1], counter[2], counter[3] + np.uint64(count), key[0], key[1])
        sought, passed = np.int64(below_sum(w0, w1, w2, np.uint64(left))), 0
        if not replace:
            sought, passed = _past_taken(sought, scratch, begins, before, count)
        position = _find(sums, start, degree, sought)
        store(positions, first + count, position)
        if not replace:
            left -= _take(sums, position, start, scratch, begins, before, count, passed)
        count += 1
    return count


@helper
def _take_positive(sums, start, degree, positions, first):
    """Take every position of positive weight, ascending. Returns how many there are."""
    count, before = 0, np.int64(0)
    for position in range(start, start + degree):
        here = load(sums, position)
        store(positions, first + count, position)
        count += here > before
        before = here
    return count


@kernel
def sample_neighbors(
    indptr,
    indices,
    sums,
    guide,
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
        guide: uint32, from `kernels.running_sums`; affects only the speed.
        indices: None if the caller reads the neighbours elsewhere; then only positions are drawn.
        num_src: number of source nodes; neighbour ids are checked against it.
        scratch, words: int64 and uint32, at least `scratch_sizes(fanout)` elements.
        row_ptr: int64[n + 1]; row_ptr[0] is the number of edges sampled before, and the offsets written continue from it.
        positions: int64[>= m], neighbors: indices.dtype[>= m]; m from `sample_neighbors.cpu.count_neighbors`, which counts as if all
            weights were positive.
    Returns:
        The number of edges sampled; -1 if a neighbour id is out of range (the list is damaged).
    """
    base = edges = load(row_ptr, 0)  # first pass: running sums -> positions; prefetches the `indices` that the second pass reads
    for tile in range(0, nodes.size, TILE):
        tile_end, column = min(tile + TILE, nodes.size), 0
        if fanout <= TILE_FANOUT:
            count = _read_tile(indptr, sums, nodes, tile, tile_end, fanout, replace, hop, edge_type, copies, scratch, words)
            _fill_words(words, count, fanout, batch, key)
            _draw_tile(indices, sums, guide, scratch, words, count, fanout, replace)
        for i in range(tile, tile_end):
            node, first = load(nodes, i), edges - base
            start = load(indptr, node)
            degree = load(indptr, node + 1) - start
            if not _draws(degree, fanout, replace):
                taken = _take_positive(sums, start, degree, positions, first)
            elif fanout <= TILE_FANOUT:
                taken = load(scratch, _COUNT + column)
                for j in range(taken):
                    store(positions, first + j, load(scratch, _DRAWN + column * fanout + j))
                column += 1
            else:
                counter = sample_counter(node, edge_type, hop, batch, copy_of(copies, i))
                taken = _draw_alone(sums, start, degree, fanout, replace, counter, key, scratch, positions, first)
            edges += taken
            store(row_ptr, i + 1, edges)
    total = edges - base
    return total if indices is None or read_neighbors(indices, num_src, positions, total, neighbors) else -1
