"""Stable grouping of records by key, in passes. Same results as `reference.py`, byte for byte.

Each pass accesses one array at random and prefetches it. Columns are viewed as unsigned words of their size, so that a kernel is compiled
once per size and not once per dtype; rows of more than one element are viewed as bytes.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_write, store

AHEAD = 24
"""How many records ahead the place that a record accesses is prefetched."""


@kernel
def count_keys(keys, shift, counts):
    """Add to int64[num_cells] `counts` how many keys fall into each cell of 2**shift keys."""
    for i in range(keys.size):
        if i + AHEAD < keys.size:
            prefetch_write(counts, np.int64(load(keys, i + AHEAD)) >> shift)
        cell = np.int64(load(keys, i)) >> shift
        store(counts, cell, load(counts, cell) + 1)


@kernel
def count_up_to(keys, most, counts):
    """Add to uint[num_keys] `counts` how often each key occurs; counts stop at `most`."""
    for i in range(keys.size):
        if i + AHEAD < keys.size:
            prefetch_write(counts, np.int64(load(keys, i + AHEAD)))
        key = np.int64(load(keys, i))
        count = np.int64(load(counts, key))
        if count < most:
            store(counts, key, count + 1)


@kernel
def assign_buckets(keys, bounds, guess, shift, counts, buckets, local):
    """Find the bucket of each key; write uint32[n] `buckets` and `local`, add to `counts`. See `reference.assign_buckets`."""
    for i in range(keys.size):
        key = np.int64(load(keys, i))
        bucket = np.int64(load(guess, key >> shift))
        while key >= load(bounds, bucket + 1):
            bucket += 1
        store(counts, bucket, load(counts, bucket) + 1)
        store(buckets, i, np.uint32(bucket))
        store(local, i, np.uint32(key - load(bounds, bucket)))


@kernel
def take_positions(keys, cursor, positions):
    """Write to int64[n] `positions` the next free position of each record's key, and advance the cursor."""
    for i in range(keys.size):
        if i + AHEAD < keys.size:
            prefetch_write(cursor, np.int64(load(keys, i + AHEAD)))
        key = np.int64(load(keys, i))
        position = load(cursor, key)
        store(cursor, key, position + 1)
        store(positions, i, position)


@kernel
def scatter_words(rows, positions, out):
    """Write out[positions[i]] = rows[i] for vectors of unsigned words."""
    for i in range(rows.size):
        if i + AHEAD < rows.size:
            prefetch_write(out, load(positions, i + AHEAD))
        store(out, load(positions, i), load(rows, i))


@kernel
def scatter_bytes(rows, positions, out):
    """Write out[positions[i]] = rows[i] for uint8[n, row_bytes]."""
    for i in range(rows.shape[0]):
        position = load(positions, i)
        for k in range(rows.shape[1]):
            out[position, k] = rows[i, k]


@kernel
def compact_words(rows, keep):
    """Move the rows whose uint8 `keep` is not 0 to the front, in their order; return their number."""
    count = 0
    for i in range(rows.size):
        store(rows, count, load(rows, i))
        count += np.int64(load(keep, i) != 0)
    return count


@kernel
def compact_bytes(rows, keep):
    """Move the rows of uint8[n, row_bytes] whose uint8 `keep` is not 0 to the front, in their order; return their number."""
    count = 0
    for i in range(rows.shape[0]):
        if load(keep, i) != 0:
            for k in range(rows.shape[1]):
                rows[count, k] = rows[i, k]
            count += 1
    return count


def scatter_rows(rows: np.ndarray, positions: np.ndarray, out: np.ndarray) -> None:
    """Write out[positions[i]] = rows[i], for C-contiguous arrays of a store's dtypes and any row shape."""
    if rows.ndim == 1:
        word = np.dtype(f"u{rows.itemsize}")
        scatter_words(rows.view(word), positions, out.view(word))
    elif rows.size:
        scatter_bytes(_as_byte_rows(rows), positions, _as_byte_rows(out))


def compact_rows(rows: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Move the kept rows to the front of their C-contiguous array, and return a view of them."""
    if rows.ndim == 1:
        return rows[: compact_words(rows.view(np.dtype(f"u{rows.itemsize}")), keep)]
    if rows.size == 0:
        return rows[: np.count_nonzero(keep)]
    return rows[: compact_bytes(_as_byte_rows(rows), keep)]


def _as_byte_rows(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1).view(np.uint8)
