"""Doubly linked lists of rows over one array, for kernels: `rows` int32[4 * n] holds (before, after, node, value) per row and per end.

An end is a member that closes its list into a circle, so that a row can be removed without knowing its list. All data of a row lies in one
cache line.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper
from penstock.kernels._memory import load, prefetch_far, store


@helper
def prefetch_row(rows, member):
    """Prefetch a row; negative: none."""
    prefetch_far(rows, 4 * max(np.int64(member), 0))


@helper
def prefetch_neighbors(rows, member):
    """Prefetch the rows before and after a row that is in the cache, for `unlink`; negative: none."""
    at = 4 * max(np.int64(member), 0)
    prefetch_far(rows, 4 * np.int64(load(rows, at)))
    prefetch_far(rows, 4 * np.int64(load(rows, at + 1)))


@helper
def node_of(rows, member):
    """The node of a row."""
    return np.int64(load(rows, 4 * member + 2))


@helper
def value_of(rows, member):
    """The value of a row; its meaning is the policy's."""
    return np.int64(load(rows, 4 * member + 3))


@helper
def set_row(rows, member, node, value):
    """Set node and value of a row."""
    store(rows, 4 * member + 2, np.int32(node))
    store(rows, 4 * member + 3, np.int32(value))


@helper
def set_value(rows, member, value):
    """Set the value of a row."""
    store(rows, 4 * member + 3, np.int32(value))


@helper
def is_empty(rows, end):
    """Whether the list of this end has no member."""
    return load(rows, 4 * end + 1) == end


@helper
def clear(rows, end):
    """Make the list empty. Its members stay as they are, to be linked again."""
    store(rows, 4 * end, np.int32(end))
    store(rows, 4 * end + 1, np.int32(end))


@helper
def link_first(rows, end, member):
    """Put a member at the front."""
    first = np.int64(load(rows, 4 * end + 1))
    store(rows, 4 * member, np.int32(end))
    store(rows, 4 * member + 1, np.int32(first))
    store(rows, 4 * first, np.int32(member))
    store(rows, 4 * end + 1, np.int32(member))


@helper
def unlink(rows, member):
    """Take a member out of its list."""
    before, after = np.int64(load(rows, 4 * member)), np.int64(load(rows, 4 * member + 1))
    store(rows, 4 * before + 1, np.int32(after))
    store(rows, 4 * after, np.int32(before))


@helper
def take_last(rows, slots, end):
    """Remove the member that has been in the list longest, and return it. Prefetches for the next two removals, since each read depends on
    the one before."""
    last = np.int64(load(rows, 4 * end))
    before = np.int64(load(rows, 4 * last))
    store(rows, 4 * end, np.int32(before))
    store(rows, 4 * before + 1, np.int32(end))
    prefetch_row(rows, load(rows, 4 * before))
    prefetch_far(slots, max(node_of(rows, before), 0))
    return last
