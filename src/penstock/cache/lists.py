"""Doubly linked lists of rows over one array, made by NumPy; `penstock.kernels._lists` says what is in it."""

from __future__ import annotations

import numpy as np


def make_rows(num_rows: int, num_ends: int) -> np.ndarray:
    """Return int32[num_rows + num_ends, 4]: every list empty, no row with a node."""
    rows = np.full((num_rows + num_ends, 4), -1, dtype=np.int32)
    rows[:, 0] = rows[:, 1] = np.arange(num_rows + num_ends)
    return rows


def link_all(rows: np.ndarray, end: int, members: np.ndarray) -> None:
    """Make int64[n] members the list of an empty end, in this order from the front."""
    around = np.concatenate([[end], members, [end]])
    rows[around[1:], 0] = around[:-1]
    rows[around[:-1], 1] = around[1:]
