"""Belady's policy over a window of batches to come. Same hits and content as `reference.py`.

Per node the place of its last announced use in a log; per log entry the list that stands for the next use of the same node. Resident
rows are linked into a list per batch to come, and without a use in the window into one per class of hotness. All rows of the list of
a batch are the hits of that batch, so the list is cleared as a whole and rows are linked anew without being unlinked.

Lists, from the worst: classes 0 to num_classes - 1, then the batches, batch t at num_classes + t % num_batches. A node that is not
resident has -1 - class in the directory; a row remembers the class of its node while the slot stands there.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._lists import clear, is_empty, last_of, link_first, unlink
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident, release

NO_USE = -1
"""In the log: no next use is announced."""


@kernel
def announce(ids, slots, last_use, log, links, start, position, use_list, capacity):
    """Add a batch to the window.

    Args:
        ids: int64[n], distinct.
        slots: int32[num_nodes], the directory.
        last_use: int32[num_nodes], where in the log each node was used last; before `start`: not in the window.
        log: int32[m], m a power of two, list of the next use per use; place p is at p % m. All of the window and this batch fit in.
        links: int32[2 * (capacity + number of lists)], see `penstock.kernels._lists`.
        start, position: places of the window's first use and of this batch's first one.
        use_list: the list of this batch.
    """
    mask = log.size - 1
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_write(last_use, load(ids, i + AHEAD))
            prefetch_write(slots, load(ids, i + AHEAD))
        node = load(ids, i)
        before = np.int64(load(last_use, node))
        if before >= start:
            store(log, before & mask, np.int32(use_list))
        elif load(slots, node) >= 0:
            slot = np.int64(load(slots, node))
            unlink(links, slot)
            link_first(links, capacity + use_list, slot)
        store(last_use, node, np.int32(position + i))
        store(log, (position + i) & mask, np.int32(NO_USE))


@kernel
def renew_places(last_use, shift):
    """Count places in the log from `shift` on; earlier ones become -1."""
    for node in range(last_use.size):
        last_use[node] = np.int32(max(np.int64(last_use[node]) - shift, -1))


@kernel
def access(ids, slots, owners, classes, log, links, num_classes, start, now, cursor, hit_slots, inserted, into):
    """Ask for the oldest batch of the window; returns how many are inserted.

    Args:
        owners: int32[capacity], node in each slot. capacity > 0.
        classes: uint8[capacity], class of hotness of each row.
        start: place of the batch's first use in the log.
        now: the list of this batch.
        cursor: int64[1], slots in use.
        ids, slots, log, links: as in `announce`. hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, mask, num_missed = owners.size, log.size - 1, 0
    clear(links, capacity + now)
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_write(slots, load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            prefetch_write(links, 2 * max(np.int64(load(slots, load(ids, i + AHEAD))), 0))
        slot = np.int64(load(slots, load(ids, i)))
        if slot >= 0:
            store(hit_slots, i, np.int32(slot))
            use = np.int64(load(log, (start + i) & mask))
            link_first(links, capacity + (np.int64(load(classes, slot)) if use < 0 else use), slot)
        else:
            store(hit_slots, i, np.int32(-1))
            store(inserted, num_missed, np.int64(i))
            num_missed += 1
    num_lists = (links.size >> 1) - capacity
    count, worst, used, furthest = 0, 0, cursor[0], now - 1 if now > num_classes else num_lists - 1
    worst_rank = 0
    for k in range(num_missed):
        position = load(inserted, k)
        node = load(ids, position)
        use = np.int64(load(log, (start + position) & mask))
        node_class = -1 - np.int64(load(slots, node))
        use = node_class if use < 0 else use
        rank = use
        if use >= num_classes:  # the furthest batch has rank num_classes, nearer ones follow
            rank = num_classes + furthest - use
            rank = rank if rank >= num_classes else rank + num_lists - num_classes
        if used < capacity:
            slot = used
            used += 1
        else:
            while is_empty(links, capacity + worst):
                worst_rank += 1
                if worst_rank == num_classes:
                    worst = furthest
                elif worst_rank > num_classes:
                    worst = worst - 1 if worst > num_classes else num_lists - 1
                else:
                    worst += 1
            if rank <= worst_rank:
                continue
            slot = last_of(links, capacity + worst)
            unlink(links, slot)
            release(slots, np.int64(load(owners, slot)), np.int32(slot), -1 - np.int64(load(classes, slot)))
        store(owners, slot, np.int32(node))
        store(classes, slot, np.uint8(node_class))
        store(slots, node, np.int32(slot))
        link_first(links, capacity + use, slot)
        if rank < worst_rank:
            worst_rank, worst = rank, use
        store(inserted, count, position)
        store(into, count, np.int32(slot))
        count += 1
    cursor[0] = used
    return keep_resident(ids, slots, count, inserted, into)
