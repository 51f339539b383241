"""Windows of neighbour lists (the part up to a moment, and back to another), on a device. Same windows as `reference.find_windows`.

In: tensors that the device can read; `times` may be pinned host memory. Out: where windows begin, and how long they are.
Imports Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from penstock.kernels._device_lists import SLICES, any_of, find_list, load_nodes, tell_first
from penstock.kernels._triton import cdiv, launch

EARLIEST = tl.constexpr(-(1 << 63))
"""Of int64."""

BLOCK = 256
"""Lists per program: a lane searches one list and waits for single reads."""


def find_windows(indptr, times, nodes, span, trees, until, reach, last, windows, status):
    """Find the windows of the lists of a frontier.

    Args:
        indptr: int64[num_dst + 1]. times: int[num_edges], ascending within each list.
        nodes, span: the frontier, see `sample_neighbors.gpu.count_neighbors`.
        trees: int64[>= span[1]], the tree of each element of `nodes`. until: int64[number of trees], the moment of each tree.
        reach: how much earlier than its moment an edge may be; negative: as early as it likes.
        last: keep only the `last` latest edges; negative: all.
        windows: int64[b, 2], the result: where in `times` each window begins, and how many edges it has. b is at least the size of the
            frontier; windows after it are empty.
        status: int64[2]; status[0] is lowered to the first i such that the list of the i-th node lies outside the edges. Its window is
            empty.
    """
    b = windows.shape[0]
    arguments = (indptr, times, times.numel(), nodes, span, trees, until, reach, last, b, windows, status)
    launch(_find_window, cdiv(b, BLOCK), nodes.device, *arguments, BLOCK=BLOCK)


@triton.jit(do_not_specialize=("num_edges", "reach", "last", "b"), do_not_specialize_on_alignment=(*SLICES, "trees", "until"))
def _find_window(indptr, times, num_edges, nodes, span, trees, until, reach, last, b, windows, status, BLOCK: tl.constexpr):
    """Find windows by bisection, one lane per list."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    node, inside = load_nodes(nodes, span, row)
    start, degree, damaged = find_list(indptr, num_edges, node, inside)
    tree = tl.load(trees + tl.load(span) + row, mask=inside, other=0)
    moment = tl.load(until + tree, mask=inside, other=0)
    low = tl.zeros_like(row)
    high = tl.where(inside, degree, 0)
    while any_of(low < high):
        is_open = low < high
        middle = (low + high) // 2
        is_before = is_open & (tl.load(times + start + middle, mask=is_open, other=0) <= moment)
        high = tl.where(is_open & (is_before == 0), middle, high)
        low = tl.where(is_before, middle + 1, low)
    back = tl.zeros_like(moment) + reach
    since = moment - back
    skipped = tl.zeros_like(row)
    high = tl.where((back >= 0) & (moment >= EARLIEST + back), low, 0)  # else it reaches back beyond int64
    while any_of(skipped < high):
        is_open = skipped < high
        middle = (skipped + high) // 2
        is_before = is_open & (tl.load(times + start + middle, mask=is_open, other=0) < since)
        high = tl.where(is_open & (is_before == 0), middle, high)
        skipped = tl.where(is_before, middle + 1, skipped)
    skipped = tl.where(last >= 0, tl.maximum(low - last, skipped), skipped)
    tl.store(windows + 2 * row, start + skipped, mask=row < b)
    tl.store(windows + 2 * row + 1, low - skipped, mask=row < b)
    tell_first(status, damaged & inside, row)
