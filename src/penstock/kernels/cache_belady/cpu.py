"""Belady's policy over a window of batches to come. Same hits and content as `reference.py`.

Per node the place of its last announced use in a log; per log entry the list that stands for the next use of the same node. Resident
rows are linked into a list per batch to come, and without a use in the window into one per class of hotness. All rows of the list of
a batch are the hits of that batch, so the list is cleared as a whole and rows are linked anew without being unlinked.

Lists, from the worst: classes 0 to num_classes - 1, then the batches, batch t at num_classes + t % num_batches; their ends stand behind
the rows. A node that is not resident has -1 - class in the directory; the value of a row is the class of its node.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._lists import (
    clear,
    is_empty,
    link_first,
    node_of,
    prefetch_neighbors,
    prefetch_row,
    set_row,
    take_last,
    unlink,
    value_of,
)
from penstock.kernels._memory import load, prefetch_read, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident, release

NO_USE = -1
"""In the log: no next use is announced."""


@kernel
def digest(ids):
    """A number that tells batches of one size apart, and their orders."""
    total = np.int64(0)
    for i in range(ids.size):
        total += ids[i] * (i + 1)
    return total


@kernel
def announce(ids, slots, last_use, log, rows, start, position, use_list, capacity):
    """Add a batch to the window.

    Reads at random depend on each other: last use, then the log or the directory, then the row, then its neighbours. Each is
    prefetched in its turn, without branches: index 0 stands for what is not needed.

    Args:
        ids: int64[n], distinct.
        slots: int32[num_nodes], the directory.
        last_use: int32[num_nodes], where in the log each node was used last; before `start`: not in the window.
        log: int32[m], m a power of two, list of the next use per use; place p is at p % m. All of the window and this batch fit in.
        rows: int32[4 * (capacity + number of lists)], see `penstock.kernels._lists`.
        start, position: places of the window's first use and of this batch's first one.
        use_list: the list of this batch.
    """
    mask = log.size - 1
    for i in range(ids.size):
        if i + 3 * AHEAD < ids.size:
            prefetch_write(last_use, load(ids, i + 3 * AHEAD))
        if i + 2 * AHEAD < ids.size:
            node = load(ids, i + 2 * AHEAD)
            before = np.int64(load(last_use, node))
            prefetch_write(log, before & mask if before >= start else 0)
            prefetch_write(slots, 0 if before >= start else node)
        if i + AHEAD < ids.size:
            node = load(ids, i + AHEAD)
            prefetch_row(rows, load(slots, 0 if np.int64(load(last_use, node)) >= start else node))
        if i + AHEAD // 2 < ids.size:
            node = load(ids, i + AHEAD // 2)
            prefetch_neighbors(rows, load(slots, 0 if np.int64(load(last_use, node)) >= start else node))
        node = load(ids, i)
        before = np.int64(load(last_use, node))
        place = (position + i) & mask
        store(log, before & mask if before >= start else place, np.int32(use_list))
        store(log, place, np.int32(NO_USE))
        store(last_use, node, np.int32(position + i))
        slot = np.int64(load(slots, 0 if before >= start else node))
        if before < start and slot >= 0:
            unlink(rows, slot)
            link_first(rows, capacity + use_list, slot)


@kernel
def renew_places(last_use, shift):
    """Count places in the log from `shift` on; earlier ones become -1."""
    for node in range(last_use.size):
        last_use[node] = np.int32(max(np.int64(last_use[node]) - shift, -1))


@helper
def _link_hits(rows, log, capacity, start, now, hit_slots, positions, first):
    """Link the rows hit to the lists of their next uses, in the order of the batch: positions[first:] backwards."""
    mask = log.size - 1
    clear(rows, capacity + now)
    for k in range(positions.size - 1, first - 1, -1):
        if k >= AHEAD:
            prefetch_row(rows, load(hit_slots, load(positions, k - AHEAD)))
        position = load(positions, k)
        slot, use = np.int64(load(hit_slots, position)), np.int64(load(log, (start + position) & mask))
        link_first(rows, capacity + (value_of(rows, slot) if use < 0 else use), slot)


@kernel
def look_up(ids, slots, log, rows, capacity, start, now, hit_slots, missed, classes):
    """First half of an access: link the hits of the oldest batch of the window anew. Returns how many missed.

    Args:
        start: place of the batch's first use in the log.
        now: the list of this batch.
        missed, classes: int64[n], int32[n], receive positions and classes of the misses at the front; what is behind them is undefined.
        ids, slots, log, rows, capacity: as in `announce`. hit_slots: as in `cache_fifo`.
    """
    last, num_missed = ids.size - 1, 0
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_read(slots, load(ids, i + AHEAD))
        slot = np.int64(load(slots, load(ids, i)))
        store(hit_slots, i, np.int32(max(slot, -1)))
        store(missed, last - i + num_missed, np.int64(i))  # hits from the end, misses from the front, and no branch
        store(missed, num_missed, np.int64(i))
        store(classes, num_missed, np.int32(-1 - slot))
        num_missed += slot < 0
    _link_hits(rows, log, capacity, start, now, hit_slots, missed, num_missed)
    return num_missed


@kernel
def insert(ids, slots, log, rows, capacity, start, now, num_classes, num_missed, cursor, inserted, into):
    """Second half of an access: misses compete with the worst row, one after the other. Returns how many are inserted.

    Args:
        num_classes: lists of rows without a use in the window.
        cursor: int64[1], slots in use.
        inserted, into: hold positions and classes of the `num_missed` misses; receive int64[k], int32[k], see `penstock.cache.Change`.
        ids, slots, log, rows, capacity, start, now: as in `look_up`.
    """
    mask, num_lists, used, count = log.size - 1, (rows.size >> 2) - capacity, cursor[0], 0
    furthest = now - 1 if now > num_classes else num_lists - 1
    worst, worst_rank = 0, 0  # ranks count lists from the worst: classes, then batches from the furthest to the nearest
    for k in range(num_missed):
        position, node_class = load(inserted, k), np.int64(load(into, k))
        use = np.int64(load(log, (start + position) & mask))
        use = node_class if use < 0 else use
        rank = use if use < num_classes else num_classes + furthest - use
        if rank < num_classes <= use:
            rank += num_lists - num_classes
        if used < capacity:
            slot = used
            used += 1
        else:
            while is_empty(rows, capacity + worst):
                worst_rank += 1
                if worst_rank <= num_classes:
                    worst = worst_rank if worst_rank < num_classes else furthest
                else:
                    worst = worst - 1 if worst > num_classes else num_lists - 1
            if rank <= worst_rank:
                continue
            slot = take_last(rows, slots, capacity + worst)
            release(slots, node_of(rows, slot), np.int32(slot), -1 - value_of(rows, slot))
        node = load(ids, position)
        set_row(rows, slot, node, node_class)
        store(slots, node, np.int32(slot))
        link_first(rows, capacity + use, slot)
        if rank < worst_rank:
            worst_rank, worst = rank, use
        store(inserted, count, position)
        store(into, count, np.int32(slot))
        count += 1
    cursor[0] = used
    return keep_resident(ids, slots, count, inserted, into)
