"""Many queues of nodes in one array, for kernels: chunks of a power of two entries, linked into a queue each.

Entries are read in order, so that what belongs to them can be prefetched, which a linked list of rows does not allow. An entry whose node
is wanted no more stays where it is, void: who pops tells it by what the node itself says of its place.

`chunks` int32[num_chunks * chunk size + num_chunks + num_chunks]: entries; the chunk after each in its queue; numbers of free chunks.
`ends` int64[2 * num_queues + 1]: place of each queue's first entry, place behind its last one; how many chunks are free.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper
from penstock.kernels._memory import load, store


@helper
def num_chunks(chunks, shift):
    """How many chunks there are."""
    return chunks.size // ((1 << shift) + 2)


@helper
def first_place(ends, queue):
    """Where the next entry to pop is."""
    return load(ends, 2 * queue)


@helper
def is_empty(ends, queue):
    """Whether a queue has no entry."""
    return load(ends, 2 * queue) == load(ends, 2 * queue + 1)


@helper
def push(chunks, ends, shift, queue, node):
    """Append a node; returns its place. A free chunk is there."""
    place = load(ends, 2 * queue + 1)
    store(chunks, place, np.int32(node))
    behind = place + 1
    if behind & ((1 << shift) - 1) == 0:  # the chunk is full, and the queue goes on in another
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
    """Take the first entry away."""
    place = load(ends, 2 * queue)
    behind = place + 1
    if behind & ((1 << shift) - 1) == 0:
        many, last = num_chunks(chunks, shift), ends.size - 1
        behind = np.int64(load(chunks, (many << shift) + (place >> shift))) << shift
        free = load(ends, last)
        store(chunks, (many << shift) + many + free, np.int32(place >> shift))
        store(ends, last, free + 1)
    store(ends, 2 * queue, behind)
