"""Belady's policy over a window of batches to come. Same hits and content as `reference.py`.

Every use announced has a place in a log, with its node and the place of the node's next use. Resident rows are found from two sides:
a row with a use in the window by a bit at the place of its next one, so that the row used furthest in the future is the last bit set; a
row without one in a queue per class of hotness, in the order in which rows came there (`penstock.kernels._queues`).

The directory, int32[2 * num_nodes], says of each node: its slot, or -1 - class where it is not resident; and where it was used last in the
log, or -2 - its place in the queues: an entry there is void if its node says something else.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._bits import highest_bit
from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_write, store
from penstock.kernels._queues import drop, first_place, is_empty, push
from penstock.kernels.cache_lookup.cpu import AHEAD, keep_resident

NO_USE = -1
"""In the log: no next use is announced. In the directory: no use in the window, and no place in a queue."""

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
def _set_bit(bits, place):
    word = place >> 6
    store(bits, word, load(bits, word) | (np.uint64(1) << np.uint64(place & 63)))


@helper
def _clear_bit(bits, place):
    word = place >> 6
    store(bits, word, load(bits, word) & ~(np.uint64(1) << np.uint64(place & 63)))


@helper
def _clear_bits(bits, start, count, mask):
    """Clear the bits of `count` places from `start` on."""
    while count > 0:
        at = start & mask
        here = min(64 - (at & 63), count)
        keep = ~(np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - here) << np.uint64(at & 63))
        store(bits, at >> 6, load(bits, at >> 6) & keep)
        start, count = start + here, count - here


@helper
def _class_of(classes, slot):
    return np.int64(load(classes, min(slot, classes.size - 1)))


@kernel
def announce(ids, entries, nodes, nexts, bits, start, position):
    """Add a batch to the window.

    Args:
        ids: int64[n], distinct.
        entries: int32[2 * num_nodes], the directory.
        nodes, nexts: int32[m], the log, m a power of two: node and place of its next use, per use; place p is at p % m. All of the window
            and this batch fit in.
        bits: uint64[ceil(m / 64)], a bit per place: a resident row is used there next.
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
        place = position + i
        before = np.int64(load(entries, 2 * node + 1))
        store(entries, 2 * node + 1, np.int32(place))
        store(nodes, place & mask, np.int32(node))
        store(nexts, place & mask, np.int32(NO_USE))
        if before >= start:
            store(nexts, before & mask, np.int32(place))
        elif load(entries, 2 * node) >= 0:
            _set_bit(bits, place & mask)


@kernel
def copy_window(start, end, nodes, nexts, bits, new_nodes, new_nexts, new_bits):
    """Copy the log's places from `start` to before `end` into a longer one."""
    mask, new_mask = nodes.size - 1, new_nodes.size - 1
    for place in range(start, end):
        new_nodes[place & new_mask], new_nexts[place & new_mask] = nodes[place & mask], nexts[place & mask]
        if (bits[(place & mask) >> 6] >> np.uint64(place & 63)) & np.uint64(1):
            _set_bit(new_bits, place & new_mask)


@kernel
def count_anew(entries, nexts, shift):
    """Count places in the log from `shift` on; earlier ones become NO_USE."""
    for node in range(entries.size >> 1):
        place = np.int64(entries[2 * node + 1])
        entries[2 * node + 1] = np.int32(max(place - shift, NO_USE) if place >= 0 else place)
    for k in range(nexts.size):
        nexts[k] = np.int32(max(np.int64(nexts[k]) - shift, NO_USE))


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
def look_up(ids, entries, nexts, bits, classes, chunks, ends, shift, start, cursor, hit_slots, missed, missed_classes):
    """First half of an access: note of the rows hit when they are used next. Returns how many missed.

    Args:
        classes: uint8[capacity], of the node in each slot; of one element where there is one class only.
        chunks, ends, shift: the queues, and their chunks' size.
        start: place of the batch's first use in the log.
        cursor: int64[2], see above.
        missed, missed_classes: int64[n], int32[n], receive positions and classes of the misses.
        ids, entries, nexts, bits: as in `announce`. hit_slots: as in `cache_fifo`.
    """
    mask, num_missed, lowest = nexts.size - 1, 0, cursor[LOWEST]
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_write(entries, 2 * load(ids, i + AHEAD))
            prefetch_write(bits, max(np.int64(load(nexts, (start + i + AHEAD) & mask)), 0) >> 6 & bits.size - 1)
        node = load(ids, i)
        slot = np.int64(load(entries, 2 * node))
        if slot < 0:
            store(hit_slots, i, np.int32(-1))
            store(missed, num_missed, np.int64(i))
            store(missed_classes, num_missed, np.int32(-1 - slot))
            num_missed += 1
            continue
        store(hit_slots, i, np.int32(slot))
        use = np.int64(load(nexts, (start + i) & mask))
        if use >= 0:
            _set_bit(bits, use & mask)
        else:
            node_class = _class_of(classes, slot)
            store(entries, 2 * node + 1, np.int32(-2 - push(chunks, ends, shift, node_class, node)))
            lowest = min(lowest, node_class)
    _clear_bits(bits, start, ids.size, mask)
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
def _find_furthest(bits, mask, place):
    """The last place with a bit, from `place` backwards; there is one."""
    at = place & mask
    word = load(bits, at >> 6) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(63 - (at & 63)))
    while word == 0:
        place -= (at & 63) + 1
        at = place & mask
        word = load(bits, at >> 6)
    return place - (at & 63) + highest_bit(word)


@kernel
def insert(
    ids, entries, nodes, nexts, bits, classes, capacity, chunks, ends, shift, num_classes, start, end, num_missed, cursor, inserted, into
):
    """Second half of an access: misses compete with the worst row, one after the other. Returns how many are inserted.

    Args:
        capacity: slots, at least one.
        num_classes: queues of rows without a use in the window.
        start, end: places of the batch's first use, and behind the window's last one.
        inserted, into: hold positions and classes of the `num_missed` misses; receive int64[k], int32[k], see `penstock.cache.Change`.
        ids, entries, nodes, nexts, bits, classes, chunks, ends, shift, cursor: as in `announce` and `look_up`.
    """
    mask, used, lowest, furthest, count = nodes.size - 1, cursor[USED], cursor[LOWEST], end - 1, 0
    latest, is_queued, is_crowded = -1, False, False  # may a row of this batch be among the victims?
    for k in range(num_missed):
        if k + AHEAD < num_missed:
            position = load(inserted, k + AHEAD)
            is_wanted = load(nexts, (start + position) & mask) >= 0 or load(into, k + AHEAD) > lowest
            prefetch_write(entries, 2 * load(ids, position) if is_wanted else 0)
        position, node_class = load(inserted, k), np.int64(load(into, k))
        use = np.int64(load(nexts, (start + position) & mask))
        if use < 0 and node_class <= lowest and used == capacity:
            continue
        slot = used
        if used < capacity:
            used += 1
        else:
            lowest = _find_unused(entries, chunks, ends, shift, lowest, num_classes)
            if lowest < num_classes:
                if use < 0 and node_class <= lowest:
                    continue
                victim = np.int64(load(chunks, first_place(ends, lowest)))
                drop(chunks, ends, shift, lowest)
                victim_class = lowest
                is_crowded |= is_queued
                slot = np.int64(load(entries, 2 * victim))
                store(entries, 2 * victim + 1, np.int32(NO_USE))
            else:
                furthest = _find_furthest(bits, mask, furthest)
                if use < 0 or use > furthest:
                    continue
                victim = np.int64(load(nodes, furthest & mask))
                _clear_bit(bits, furthest & mask)
                is_crowded |= furthest <= latest
                slot = np.int64(load(entries, 2 * victim))
                victim_class = _class_of(classes, slot)
            store(entries, 2 * victim, np.int32(-1 - victim_class))
        node = load(ids, position)
        store(classes, min(slot, classes.size - 1), np.uint8(node_class))
        store(entries, 2 * node, np.int32(slot))
        if use >= 0:
            _set_bit(bits, use & mask)
            furthest, latest = max(furthest, use), max(latest, use)
        else:
            is_queued = True
            store(entries, 2 * node + 1, np.int32(-2 - push(chunks, ends, shift, node_class, node)))
            lowest = min(lowest, node_class)
        store(inserted, count, position)
        store(into, count, np.int32(slot))
        count += 1
    cursor[USED], cursor[LOWEST] = used, lowest
    return keep_resident(ids, entries, count, inserted, into, 2) if is_crowded else count
