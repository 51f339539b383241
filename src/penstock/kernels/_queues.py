"""Many queues of nodes in one array, for kernels: each queue is a linked list of chunks; a chunk has 2**shift entries.

Entries are read in order, so data of coming entries can be prefetched, which a linked list of rows does not allow. An entry that is no
longer wanted stays in place, void: the reader recognises it because the directory has another place for the node.

`chunks` int32[num_chunks * chunk size + num_chunks + num_chunks]: entries; the chunk after each in its queue; numbers of free chunks.
`ends` int64[2 * num_queues + 1]: per queue, the place of its first entry and the place after its last; then the number of free chunks.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper
from penstock.kernels._memory import load, store


@helper
def num_chunks(chunks, shift):
    """Total number of chunks."""
    return chunks.size // ((1 << shift) + 2)


@helper
def first_place(ends, queue):
    """The place of the next entry to drop."""
    return load(ends, 2 * queue)


@helper
def is_empty(ends, queue):
    """Whether a queue has no entry."""
    return load(ends, 2 * queue) == load(ends, 2 * queue + 1)


@helper
def push(chunks, ends, shift, queue, node):
    """Append a node; returns its place. There must be a free chunk."""
    place = load(ends, 2 * queue + 1)
    store(chunks, place, np.int32(node))
    behind = place + 1
    if behind & ((1 << shift) - 1) == 0:  # the chunk is full: continue in another
        many, last = num_chunks(chunks, shift), ends.size - 1
        free = load(ends, last) - 1
        store(ends, last, free)
        chunk = np.int64(load(chunks, (many << shift) + many + free))
        store(chunks, (many << shift) + (place >> shift), np.int32(chunk))
        behind = chunk << shift
    store(ends, 2 * queue + 1, behind)
    return place


@helper
def drop(chunks, ends, shift, queue):
    """Remove the first entry."""
    place = load(ends, 2 * queue)
    behind = place + 1
    if behind & ((1 << shift) - 1) == 0:
        many, last = num_chunks(chunks, shift), ends.size - 1
        behind = np.int64(load(chunks, (many << shift) + (place >> shift))) << shift
        free = load(ends, last)
        store(chunks, (many << shift) + many + free, np.int32(place >> shift))
        store(ends, last, free + 1)
    store(ends, 2 * queue, behind)
