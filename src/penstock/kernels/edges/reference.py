"""Passes over the edges of a batch: destinations from row pointers, the user's edge numbers. The definitions."""

from __future__ import annotations

import numpy as np


def count_repetitions(ids):
    """Return int64[n]: how often each id occurs earlier in `ids`."""
    times = {}
    out = []
    for value in map(int, ids):
        out.append(times.get(value, 0))
        times[value] = out[-1] + 1
    return np.array(out, dtype=np.int64)


def fill_columns(row_ptr):
    """Return int64[m]: the row of each edge, given int64[n + 1] row pointers that start at 0 and end at m."""
    return np.repeat(np.arange(row_ptr.size - 1), np.diff(row_ptr))


def translate(table, positions):
    """Return int64[m]: table[positions]."""
    return table[positions].astype(np.int64)
