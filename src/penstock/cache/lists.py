"""Doubly linked lists over one array, made by NumPy; `penstock.kernels._lists` says what is in it."""

from __future__ import annotations

import numpy as np


def make_links(num_members: int, num_ends: int) -> np.ndarray:
    """Return int32[2 * (num_members + num_ends)]: every list empty."""
    return np.repeat(np.arange(num_members + num_ends, dtype=np.int32), 2)


def link_all(links: np.ndarray, end: int, members: np.ndarray) -> None:
    """Make int64[n] members the list of an empty end, in this order from the front."""
    around = np.concatenate([[end], members, [end]])
    links[2 * around[1:]] = around[:-1]
    links[2 * around[:-1] + 1] = around[1:]
