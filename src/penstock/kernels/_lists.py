"""Doubly linked lists over one array, for kernels: `links` int32[2 * n] holds (before, after) per member and per end.

An end is a member that closes its list into a circle, so that a row can be taken out without knowing which list it is in.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper
from penstock.kernels._memory import load, store


@helper
def is_empty(links, end):
    """Whether the list of this end has no member."""
    return load(links, 2 * end + 1) == end


@helper
def last_of(links, end):
    """The member that is longest in the list."""
    return np.int64(load(links, 2 * end))


@helper
def clear(links, end):
    """Make the list empty. Its members are left to be linked anew."""
    store(links, 2 * end, np.int32(end))
    store(links, 2 * end + 1, np.int32(end))


@helper
def link_first(links, end, member):
    """Put a member at the front."""
    first = np.int64(load(links, 2 * end + 1))
    store(links, 2 * member, np.int32(end))
    store(links, 2 * member + 1, np.int32(first))
    store(links, 2 * first, np.int32(member))
    store(links, 2 * end + 1, np.int32(member))


@helper
def unlink(links, member):
    """Take a member out of its list."""
    before, after = np.int64(load(links, 2 * member)), np.int64(load(links, 2 * member + 1))
    store(links, 2 * before + 1, np.int32(after))
    store(links, 2 * after, np.int32(before))
