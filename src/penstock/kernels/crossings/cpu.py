"""Count the edges that cross from one part of a graph to another, and their halo nodes. Same result as `reference.py`."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_read, prefetch_write, store

AHEAD = 24

PARTS = 64
"""How many parts a word of marks has bits for."""


@kernel
def count_edges(indptr, indices, src_owners, dst_owners, edges, crossing):
    """Count edges and crossing edges of each part; see `reference.count_edges`. Owners: int16[num_src], int16[num_dst]."""
    for v in range(dst_owners.size):
        owner = dst_owners[v]
        start, stop = load(indptr, v), load(indptr, v + 1)
        crossed = 0
        for i in range(start, stop):
            if i + AHEAD < stop:
                prefetch_read(src_owners, np.int64(load(indices, i + AHEAD)))
            source = np.int64(load(indices, i))
            if not 0 <= source < src_owners.size:
                edges[owner] += i - start
                crossing[owner] += crossed
                return i
            if load(src_owners, source) != owner:
                crossed += 1
        edges[owner] += stop - start
        crossing[owner] += crossed
    return -1


@kernel
def mark_halo(indptr, indices, dst_owners, first_part, marks):
    """Mark the sources of edges of up to 64 parts; see `reference.mark_halo`."""
    for v in range(dst_owners.size):
        part = np.int64(dst_owners[v]) - first_part
        if part >= 0 and part < PARTS:
            bit = np.uint64(1) << np.uint64(part)
            start, stop = load(indptr, v), load(indptr, v + 1)
            for i in range(start, stop):
                if i + AHEAD < stop:
                    prefetch_write(marks, np.int64(load(indices, i + AHEAD)))
                source = np.int64(load(indices, i))
                store(marks, source, load(marks, source) | bit)


@kernel
def count_marks(marks, owners, first_part, halo):
    """Count for each part the marked nodes that it does not own; see `reference.count_marks`."""
    for v in range(marks.size):
        mark, own = load(marks, v), np.int64(owners[v]) - first_part
        part = 0
        while mark != np.uint64(0):
            if mark & np.uint64(1) != np.uint64(0) and part != own:
                halo[first_part + part] += 1
            mark >>= np.uint64(1)
            part += 1
