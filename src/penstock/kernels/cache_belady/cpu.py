"""Belady's policy over a window of batches to come. Same hits and content as `reference.py`.

Every use announced has a place in a log, with its node, the place of the node's next use, and, where a resident row is used there next,
the row's slot: so an access reads in order what hits and where, and the row used furthest in the future is the last one held. Blocks of
places say whether any row is held there, so that looking for it passes over those without. Rows that are not used in the window are in a
queue per class of hotness, in the order in which they came there (`penstock.kernels._queues`).

The directory, int32[2 * num_nodes], says of each node: its slot, or -1 - class where it is not resident; and where it was used last in the
log, or -2 - its place in the queues: an entry there is void if its node says something else.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels._queues import drop, first_place, is_empty, push
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident

NONE = -1
"""In the log: no next use is announced, no row is held. In the directory: no use in the window, and no place in a queue."""

BLOCK = 7
"""Places of the log in a block, a power of two."""

USED, LOWEST = range(2)
"""Places in `cursor`: slots in use; no class below this one has rows."""


@kernel
def digest(ids):
    """A number that tells batches of one size apart, and their orders."""
    total = np.int64(0)
    for i in range(ids.size):
        total += ids[i] * (i + 1)
    return total


@helper
def _hold(held, blocks, at, slot):
    """Note that a resident row is used at a place next."""
    store(held, at, np.int32(slot))
    store(blocks, at >> BLOCK, np.uint8(1))


@helper
def _class_of(classes, slot):
    return np.int64(load(classes, min(slot, classes.size - 1)))


@kernel
def announce(ids, entries, nodes, nexts, held, blocks, start, position):
    """Add a batch to the window.

    Args:
        ids: int64[n], distinct.
        entries: int32[2 * num_nodes], the directory.
        nodes, nexts, held: int32[m], the log, m a power of two: node, place of its next use, slot of the row held for this use, per use;
            -1 where there is none. Place p is at p % m. All of the window and this batch fit in.
        blocks: uint8[m >> BLOCK], 0: no row is held in a block of places.
        start, position: places of the window's first use and of this batch's first one.
    """
    mask = nodes.size - 1
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_write(entries, 2 * load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            before = np.int64(load(entries, 2 * load(ids, i + AHEAD) + 1))
            prefetch_write(nexts, before & mask if before >= start else 0)
        node = load(ids, i)
        at = (position + i) & mask
        before, slot = np.int64(load(entries, 2 * node + 1)), np.int64(load(entries, 2 * node))
        store(entries, 2 * node + 1, np.int32(position + i))
        store(nodes, at, np.int32(node))
        store(nexts, at, np.int32(NONE))
        if before >= start:
            store(nexts, before & mask, np.int32(position + i))
            store(held, at, np.int32(NONE))
        elif slot >= 0:
            _hold(held, blocks, at, slot)
        else:
            store(held, at, np.int32(NONE))


@kernel
def copy_window(start, end, nodes, nexts, held, blocks, new_nodes, new_nexts, new_held, new_blocks):
    """Copy the log's places from `start` to before `end` into a longer one."""
    mask, new_mask = nodes.size - 1, new_nodes.size - 1
    for place in range(start, end):
        new_nodes[place & new_mask], new_nexts[place & new_mask] = nodes[place & mask], nexts[place & mask]
        new_held[place & new_mask] = held[place & mask]
        new_blocks[(place & new_mask) >> BLOCK] = 1


@kernel
def count_anew(entries, nexts, shift):
    """Count places in the log from `shift` on; earlier ones become NONE."""
    for node in range(entries.size >> 1):
        place = np.int64(entries[2 * node + 1])
        entries[2 * node + 1] = np.int32(max(place - shift, NONE) if place >= 0 else place)
    for k in range(nexts.size):
        nexts[k] = np.int32(max(np.int64(nexts[k]) - shift, NONE))


@kernel
def enqueue(ids, node_classes, entries, chunks, ends, shift):
    """Append the initial content to the queues of its classes, int32[n]."""
    for i in range(ids.size):
        entries[2 * ids[i] + 1] = np.int32(-2 - push(chunks, ends, shift, np.int64(node_classes[i]), ids[i]))


@kernel
def squeeze(num_queues, entries, chunks, ends, new_chunks, new_ends, shift):
    """Move the entries of all queues that are not void to empty ones."""
    for queue in range(num_queues):
        while not is_empty(ends, queue):
            place = first_place(ends, queue)
            ahead = place + AHEAD if (place + AHEAD) >> shift == place >> shift else place
            prefetch_write(entries, 2 * np.int64(load(chunks, ahead)))
            node = np.int64(load(chunks, place))
            if load(entries, 2 * node + 1) == -2 - place:
                store(entries, 2 * node + 1, np.int32(-2 - push(new_chunks, new_ends, shift, queue, node)))
            drop(chunks, ends, shift, queue)


@kernel
def look_up(ids, entries, nexts, held, blocks, classes, chunks, ends, shift, start, cursor, hit_slots, missed):
    """First half of an access: note of the rows hit when they are used next. Returns how many missed.

    Args:
        classes: uint8[capacity], of the node in each slot; of one element where there is one class only.
        chunks, ends, shift: the queues, and their chunks' size.
        start: place of the batch's first use in the log.
        cursor: int64[2], see above.
        missed: int64[n], receives positions of the misses.
        ids, entries, nexts, held, blocks: as in `announce`. hit_slots: as in `cache_fifo`.
    """
    mask, num_missed, lowest = nexts.size - 1, 0, cursor[LOWEST]
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            at = (start + i + AHEAD) & mask
            use, is_hit = np.int64(load(nexts, at)), load(held, at) >= 0
            prefetch_write(held, use & mask if is_hit and use >= 0 else at)
            prefetch_write(entries, 2 * load(ids, i + AHEAD) if is_hit and use < 0 else 0)
        at = (start + i) & mask
        slot = np.int64(load(held, at))
        store(hit_slots, i, np.int32(slot))
        if slot < 0:
            store(missed, num_missed, np.int64(i))
            num_missed += 1
            continue
        use = np.int64(load(nexts, at))
        if use >= 0:
            _hold(held, blocks, use & mask, slot)
        else:
            node, node_class = load(ids, i), _class_of(classes, slot)
            store(entries, 2 * node + 1, np.int32(-2 - push(chunks, ends, shift, node_class, node)))
            lowest = min(lowest, node_class)
    cursor[LOWEST] = lowest
    return num_missed


@helper
def _find_unused(entries, chunks, ends, shift, lowest, num_classes):
    """Drop void entries of the lowest classes. Returns the lowest class that has a row, `num_classes` if none has."""
    while lowest < num_classes:
        while not is_empty(ends, lowest):
            place = first_place(ends, lowest)
            ahead = place + AHEAD if (place + AHEAD) >> shift == place >> shift else place
            prefetch_write(entries, 2 * np.int64(load(chunks, ahead)))
            if load(entries, 2 * np.int64(load(chunks, place)) + 1) == -2 - place:
                return lowest
            drop(chunks, ends, shift, lowest)
        lowest += 1
    return lowest


@helper
def _find_furthest(held, blocks, mask, place):
    """The last place where a row is held, from `place` backwards; there is one."""
    while load(held, place & mask) < 0:
        place -= 1
        while load(blocks, (place & mask) >> BLOCK) == 0:
            place = (place >> BLOCK << BLOCK) - 1
    return place


@kernel
def insert(
    ids, entries, nodes, nexts, held, blocks, classes, capacity, chunks, ends, shift, num_classes, start, end, num_missed, cursor,
    inserted, into,
):  # fmt: skip
    """Second half of an access: misses compete with the worst row, one after the other. Returns how many are inserted.

    Args:
        capacity: slots, at least one.
        num_classes: queues of rows without a use in the window.
        start, end: places of the batch's first use, and behind the window's last one.
        inserted, into: the first holds positions of the `num_missed` misses; receive int64[k], int32[k], see `penstock.cache.Change`.
        ids, entries, nodes, nexts, held, blocks, classes, chunks, ends, shift, cursor: as in `announce` and `look_up`.
    """
    mask, used, lowest, furthest, count = nodes.size - 1, cursor[USED], cursor[LOWEST], end - 1, 0
    latest, is_queued, is_crowded = -1, False, False  # may a row of this batch be among the victims?
    for k in range(num_missed):
        if k + AHEAD < num_missed:
            position = load(inserted, k + AHEAD)
            is_wanted = lowest < num_classes - 1 or load(nexts, (start + position) & mask) >= 0
            prefetch_write(entries, 2 * load(ids, position) if is_wanted else 0)
        position = load(inserted, k)
        use = np.int64(load(nexts, (start + position) & mask))
        if use < 0 and lowest >= num_classes - 1 and used == capacity:
            continue  # no row is worth less
        node = load(ids, position)
        node_class, slot = -1 - np.int64(load(entries, 2 * node)), used
        if used < capacity:
            used += 1
        else:
            lowest = _find_unused(entries, chunks, ends, shift, lowest, num_classes)
            if lowest < num_classes:
                if use < 0 and node_class <= lowest:
                    continue
                victim, victim_class = np.int64(load(chunks, first_place(ends, lowest))), lowest
                slot = np.int64(load(entries, 2 * victim))
                drop(chunks, ends, shift, lowest)
                store(entries, 2 * victim + 1, np.int32(NONE))
                is_crowded |= is_queued
            else:
                furthest = _find_furthest(held, blocks, mask, furthest)
                if use < 0 or use > furthest:
                    continue
                victim, slot = np.int64(load(nodes, furthest & mask)), np.int64(load(held, furthest & mask))
                victim_class = _class_of(classes, slot)
                store(held, furthest & mask, np.int32(NONE))
                is_crowded |= furthest <= latest
            store(entries, 2 * victim, np.int32(-1 - victim_class))
        store(classes, min(slot, classes.size - 1), np.uint8(node_class))
        store(entries, 2 * node, np.int32(slot))
        if use >= 0:
            _hold(held, blocks, use & mask, slot)
            furthest, latest = max(furthest, use), max(latest, use)
        else:
            store(entries, 2 * node + 1, np.int32(-2 - push(chunks, ends, shift, node_class, node)))
            lowest, is_queued = min(lowest, node_class), True
        store(inserted, count, position)
        store(into, count, np.int32(slot))
        count += 1
    cursor[USED], cursor[LOWEST] = used, lowest
    return keep_resident(ids, entries, count, inserted, into, 2) if is_crowded else count
