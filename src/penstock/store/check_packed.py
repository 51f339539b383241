"""Checking that a packed copy has the same rows as the field.

In: a store, and a node type with a packed copy whose arrays passed their own checks. Out: findings. Each array is read once, in blocks;
this takes 13 bytes per node in memory, or 17 from 2**31 nodes on. Rows are compared by weighted 64-bit sums, which always detect a change
of a single word.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock import rng
from penstock.store.format import ArraySpec
from penstock.store.manifest import NodeEntry
from penstock.store.opened import Store

PIECE_BYTES = 4 << 20
_STREAM = 7


def check_packed(store: Store, entry: NodeEntry) -> Iterator[tuple[str, str]]:
    """Yield (file, what is wrong)."""
    if entry.packed is None:
        return
    rows = store.array_file(entry.packed.rows).read(0, entry.num_nodes)
    is_taken = np.zeros(entry.num_nodes, np.bool_)
    is_taken[rows] = True
    if not is_taken.all():
        distinct, counts = np.unique(rows, return_counts=True)
        row = int(distinct[np.argmax(counts > 1)])
        one, other = np.flatnonzero(rows == row)[:2]
        yield entry.packed.rows.file, f"nodes {one} and {other} share row {row}: it is no permutation"
        return
    for name, spec in entry.packed.fields.items():
        sums = np.empty(entry.num_nodes, np.uint64)
        for first, block in _sums(store, entry.fields[name]):
            sums[rows[first : first + block.size]] = block
        for first, block in _sums(store, spec):
            bad = np.flatnonzero(sums[first : first + block.size] != block)
            if bad.size:
                row = first + int(bad[0])
                node = int(np.flatnonzero(rows == row)[0])
                yield spec.file, f"row {row} is not that of node {node} in {entry.fields[name].file}: `penstock layout` makes it again"
                break


def _sums(store: Store, spec: ArraySpec) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, uint64[n]): the weighted sums of the rows, block by block."""
    num_words = -(-spec.row_bytes // 8)
    weights = rng.random_words(rng.derive_key(0, 0, rng.PRESAMPLE), 0, num_words, _STREAM)
    odd = (weights[:, 0].astype(np.uint64) << np.uint64(32)) | weights[:, 1].astype(np.uint64) | np.uint64(1)
    for first, rows in store.array_file(spec).blocks(PIECE_BYTES):
        words = np.zeros((len(rows), num_words * 8), np.uint8)
        words[:, : spec.row_bytes] = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8).reshape(len(rows), -1)
        yield first, (words.view(np.uint64) * odd).sum(axis=1, dtype=np.uint64)
