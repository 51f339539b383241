"""Least recently used, by a log of accesses in place of a linked list. Same hits and content as `reference.py`.

Each access appends its node to the log, a ring, and the directory keeps the place beside the slot; older entries of the node are then void.
The row to evict is the first entry that is not void. A linked list would need one dependent random read after another; the log is read in
order, so the directory can be prefetched. Nothing is kept per slot.

Void entries leave when they reach the front. Where hits make the log too long, void entries are squeezed out, a few with each access, so
that no batch pays for all of it: valid entries move to the front, in order, before a gap.

    begin .. kept entries .. gap .. read .. entries not yet looked at .. end
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels.cache_lookup.cpu import AHEAD, around, drop_first, place_ahead

BEGIN, KEPT, READ, REST, USED, IS_SQUEEZED = range(6)
"""Indices in `cursor`: where the log begins; number of kept entries there; where the other entries begin; their number; number of slots in
use; whether the log is being squeezed."""

LOG_ENTRIES = 4
"""Log entries per row."""

AT_ONCE = 4
"""Entries examined per access while squeezing. Squeezing e entries ends after e / 3 accesses, since each access appends an entry."""


@helper
def _squeeze(entries, log, begin, kept, read, rest):
    """Examine some entries: those that are not void go after the kept ones."""
    steps = min(rest, AT_ONCE)
    for _ in range(steps):
        prefetch_far(entries, 2 * np.int64(load(log, place_ahead(read, log.size))))
        node = np.int64(load(log, read))
        if load(entries, 2 * node + 1) == read:
            to = around(begin + kept, log.size)
            store(log, to, np.int32(node))
            store(entries, 2 * node + 1, np.int32(to))
            kept += 1
        read = around(read + 1, log.size)
    return kept, read, rest - steps


@kernel
def access(ids, entries, log, capacity, cursor, hit_slots, inserted, into):
    """Request a batch. Returns how many ids are inserted.

    Args:
        entries: int32[2 * num_nodes], the directory: slot, and place of the last access in the log; -1 and -1 if not resident.
        log: int32[LOG_ENTRIES * capacity], a ring of nodes in the order of accesses, zeros at first. capacity > 0.
        cursor: int64[6], see above.
        ids, hit_slots, inserted, into: as in `cache_fifo`.
    """
    size, count = log.size, 0
    begin, kept, read, rest, used, is_squeezed = cursor[BEGIN], cursor[KEPT], cursor[READ], cursor[REST], cursor[USED], cursor[IS_SQUEEZED]
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_far(entries, 2 * load(ids, i + AHEAD))
        node = load(ids, i)
        slot = np.int64(load(entries, 2 * node))
        store(hit_slots, i, np.int32(slot))
        if slot < 0:
            slot = used
            if used == capacity:
                is_void = True
                while is_void:
                    first = begin if kept > 0 else read
                    prefetch_far(entries, 2 * np.int64(load(log, place_ahead(first, size))))
                    old = np.int64(load(log, first))
                    is_void = load(entries, 2 * old + 1) != first
                    slot = np.int64(load(entries, 2 * old))
                    if kept > 0:
                        begin, kept = around(begin + 1, size), kept - 1
                    else:
                        read, rest = around(read + 1, size), rest - 1
                        begin = read
                store(entries, 2 * old, np.int32(-1))
                store(entries, 2 * old + 1, np.int32(-1))
            used = min(used + 1, capacity)
            store(entries, 2 * node, np.int32(slot))
            store(inserted, count, np.int64(i))
            store(into, count, np.int32(slot))
            count += 1
        end = around(read + rest, size)
        store(log, end, np.int32(node))
        store(entries, 2 * node + 1, np.int32(end))
        rest += 1
        if is_squeezed or 4 * rest >= 3 * size:
            is_squeezed = 1
            kept, read, rest = _squeeze(entries, log, begin, kept, read, rest)
            if rest == 0:
                read, rest, kept, is_squeezed = begin, kept, 0, 0
    cursor[BEGIN], cursor[KEPT], cursor[READ], cursor[REST], cursor[USED], cursor[IS_SQUEEZED] = begin, kept, read, rest, used, is_squeezed
    gone = 0  # if the batch has more ids than there are slots, the last ids stay
    while gone < count and load(inserted, gone) < ids.size - capacity:
        gone += 1
    return drop_first(gone, count, inserted, into)
