"""Stable grouping of records by key, in passes: the definitions.

In: a key per record (a destination node or its bucket), and columns. Out: the columns grouped by key, records of one key in their input
order. Invariant: calls chunk by chunk give the same result as one call with all records, since counts and cursors carry over.
"""

from __future__ import annotations

import numpy as np


def count_keys(keys, shift, counts):
    """Add to int64[num_cells] `counts` how many keys fall into each cell of 2**shift keys. Returns the new counts."""
    cells = keys.astype(np.int64) >> shift
    return counts + np.bincount(cells, minlength=counts.size)


def count_up_to(keys, most, counts):
    """Add to uint[num_keys] `counts` how often each key occurs; counts stop at `most`. Returns the new counts."""
    sums = counts.astype(np.int64) + np.bincount(keys, minlength=counts.size)
    return np.minimum(sums, np.maximum(counts, most)).astype(counts.dtype)


def assign_buckets(keys, bounds, guess, shift, counts):
    """Find the bucket of each key.

    Args:
        keys: int64 or uint32[n], in [bounds[0], bounds[-1]); bounds[0] is 0.
        bounds: int64[num_buckets + 1], ascending; bucket b holds keys in [bounds[b], bounds[b + 1]).
        guess: uint32[..], where to begin the search: guess[key >> shift] is at most the bucket of `key`.
        counts: int64[num_buckets].
    Returns:
        (buckets uint32[n], local uint32[n], counts): local is the key minus the lower bound of its bucket; counts has the number of keys in
        each bucket added.
    """
    buckets = np.searchsorted(bounds[1:], keys.astype(np.int64), side="right")
    local = keys.astype(np.int64) - bounds[buckets]
    return buckets.astype(np.uint32), local.astype(np.uint32), counts + np.bincount(buckets, minlength=counts.size)


def take_positions(keys, cursor):
    """Give each record the next free position of its key.

    Args:
        keys: int64 or uint32[n].
        cursor: int64[num_keys], next free position of each key.
    Returns:
        (positions int64[n], the advanced cursor).
    """
    cursor, positions = cursor.copy(), np.empty(keys.size, dtype=np.int64)
    for i, key in enumerate(map(int, keys)):
        positions[i] = cursor[key]
        cursor[key] += 1
    return positions, cursor


def scatter_rows(rows, positions, out):
    """Return `out` with out[positions[i]] = rows[i]; positions are distinct."""
    out = out.copy()
    out[positions] = rows
    return out


def compact_rows(rows, keep):
    """Return the rows whose uint8 `keep` is not 0, in their order."""
    return rows[keep != 0]
