"""Belady's policy over a window of coming batches. Same hits and content as `reference.py`.

Every announced use has a place in a log, which holds its node and the place of the node's next use. A resident row with a use in the window
has a bit set at the place of its next use, so the last set bit is the row used furthest in the future. A resident row without a use is in a
queue, one per class of hotness, in the order in which rows entered it (`penstock.kernels._queues`).

Setting a bit is a random write, and rows without a use leave first. So the bits of hits are set late, in the order of the log (`settle`):
when the furthest row is needed, or when the places of the log are reused. By then, most of these uses are over and need no bit.

The directory, int32[2 * num_nodes], has two numbers per node. The first is its slot, or -1 - class if it is not resident. The second is the
place of its latest use in the log, or -2 - its place in the queues; a queue entry is void if its node's number says something else.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._bits import clear_bit, has_bit, highest_bit, set_bit
from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels._queues import drop, first_place, is_empty, push
from penstock.kernels.cache_lookup.cpu import AHEAD, LOW, keep_resident
from penstock.kernels.id_hash.cpu import MULTIPLIER_3, mix

NO_USE = -1
"""In the log: no next use is announced. In the directory: no use in the window and no place in a queue."""

USED, LOWEST, SETTLED = range(3)
"""Indices in `cursor`: number of slots in use; a class below which no queue has rows; the place in the log up to which bits of hits are
set."""

GROUP = 16
"""Ids looked up at a time, without branches; then the hits among them that have no next use join their queues."""


@kernel
def digest(ids):
    """A hash of a batch and its order: two batches of one size have equal ones with probability 2**-64."""
    total = np.uint64(0)
    for i in range(ids.size):
        total += mix(np.uint64(load(ids, i)) + np.uint64(i) * MULTIPLIER_3)
    return np.int64(total)


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
        nodes, nexts: int32[m], the log: per use, the node and the place of its next use; place p is at index p % m. m is a power of two,
            at least 64; the window and this batch must fit.
        bits: uint64[m / 64], a bit per place: set if the next use of a resident row is there.
        start, position: place of the window's first use; place of this batch's first use.
    """
    mask, last = nodes.size - 1, ids.size - 1
    word, in_word = (position & mask) >> 6, np.uint64(0)
    for i in range(ids.size):
        prefetch_far(entries, 2 * load(ids, min(i + 2 * AHEAD, last)))
        before = np.int64(load(entries, 2 * load(ids, min(i + AHEAD, last)) + 1))
        prefetch_far(nexts, before & mask & ~(before - start >> 63))
        node, place = load(ids, i), position + i
        slot, before = np.int64(load(entries, 2 * node)), np.int64(load(entries, 2 * node + 1))
        is_first = before - start >> 63  # -1: no use in the window before this one
        store(entries, 2 * node + 1, np.int32(place))
        store(nodes, place & mask, np.int32(node))
        store(nexts, place & mask, np.int32(NO_USE))
        store(nexts, (place & is_first | before & ~is_first) & mask, np.int32(place | is_first))
        if (place & mask) >> 6 != word:
            store(bits, word, load(bits, word) | in_word)
            word, in_word = (place & mask) >> 6, np.uint64(0)
        in_word |= np.uint64(is_first & ~(slot >> 63) & 1) << np.uint64(place & 63)
    store(bits, word, load(bits, word) | in_word)


@kernel
def settle(nexts, bits, cursor, end, future):
    """Set the missing bits of hits before place `end` whose next use is at `future` or later."""
    mask, first = nexts.size - 1, cursor[SETTLED]
    for place in range(first, end):
        ahead = np.int64(load(nexts, min(place + AHEAD, end - 1) & mask))
        prefetch_far(bits, (ahead & mask & ~(ahead - future >> 63)) >> 6)
        use = np.int64(load(nexts, place & mask))
        is_over = use - future >> 63
        at = (use & ~is_over | place & is_over) & mask
        store(bits, at >> 6, load(bits, at >> 6) | np.uint64(is_over + 1) << np.uint64(at & 63))
    cursor[SETTLED] = max(first, end)


@kernel
def copy_window(start, end, nodes, nexts, bits, new_nodes, new_nexts, new_bits):
    """Copy the places [start, end) of the log into a longer log."""
    mask, new_mask = nodes.size - 1, new_nodes.size - 1
    for place in range(start, end):
        new_nodes[place & new_mask], new_nexts[place & new_mask] = nodes[place & mask], nexts[place & mask]
        if has_bit(bits, place & mask):
            set_bit(new_bits, place & new_mask)


@kernel
def count_anew(entries, nexts, shift):
    """Renumber the places of the log: place `shift` becomes 0, earlier ones become NO_USE."""
    for node in range(entries.size >> 1):
        place = np.int64(entries[2 * node + 1])
        entries[2 * node + 1] = np.int32(max(place - shift, NO_USE) if place >= 0 else place)
    for k in range(nexts.size):
        nexts[k] = np.int32(max(np.int64(nexts[k]) - shift, NO_USE))


@kernel
def enqueue(ids, node_classes, entries, chunks, ends, shift):
    """Append the initial content, int64[n], to the queues of its classes, int32[n]."""
    for i in range(ids.size):
        entries[2 * ids[i] + 1] = np.int32(-2 - push(chunks, ends, shift, np.int64(node_classes[i]), ids[i]))


@kernel
def squeeze(num_queues, entries, chunks, ends, new_chunks, new_ends, shift):
    """Move all queue entries that are not void to new, empty queues."""
    for queue in range(num_queues):
        while not is_empty(ends, queue):
            place = first_place(ends, queue)
            ahead = place + AHEAD if (place + AHEAD) >> shift == place >> shift else place
            prefetch_far(entries, 2 * np.int64(load(chunks, ahead)))
            node = np.int64(load(chunks, place))
            if load(entries, 2 * node + 1) == -2 - place:
                store(entries, 2 * node + 1, np.int32(-2 - push(new_chunks, new_ends, shift, queue, node)))
            drop(chunks, ends, shift, queue)


@kernel
def look_up(ids, entries, nexts, bits, classes, chunks, ends, shift, start, cursor, hit_slots, missed, missed_classes):
    """First half of an access. Returns the number of misses.

    Args:
        classes: uint8[capacity], class of the node in each slot; one element if there is only one class.
        chunks, ends, shift: the queues; a chunk has 2**shift entries.
        start: place of the batch's first use in the log. The next uses of misses are removed from the log.
        cursor: int64[3], see above.
        missed, missed_classes: int64[n], int32[n], receive next use << 32 | position, and class, of each miss.
        ids, entries, nexts, bits: as in `announce`. hit_slots: as in `cache_fifo`.
    """
    mask, num_missed, lowest, last = nexts.size - 1, 0, cursor[LOWEST], ids.size - 1
    idle = np.empty(GROUP, np.int64)
    for first in range(0, ids.size, GROUP):
        num_idle = 0
        for i in range(first, min(first + GROUP, ids.size)):
            prefetch_far(entries, 2 * load(ids, min(i + AHEAD, last)))
            slot, use = np.int64(load(entries, 2 * load(ids, i))), np.int64(load(nexts, (start + i) & mask))
            is_missed = slot >> 63
            store(hit_slots, i, np.int32(slot | is_missed))
            store(missed, num_missed, use << 32 | i)
            store(missed_classes, num_missed, np.int32(-1 - slot))
            num_missed -= is_missed
            store(nexts, (start + i) & mask, np.int32(use | is_missed))
            store(idle, num_idle, np.int64(i))
            num_idle += use >> 63 & ~is_missed & 1
        for k in range(num_idle):
            i = load(idle, k)
            node, node_class = load(ids, i), _class_of(classes, np.int64(load(hit_slots, i)))
            store(entries, 2 * node + 1, np.int32(-2 - push(chunks, ends, shift, node_class, node)))
            lowest = min(lowest, node_class)
    _clear_bits(bits, start, ids.size, mask)
    cursor[LOWEST] = lowest
    return num_missed


@helper
def _find_unused(entries, chunks, ends, shift, lowest, num_classes):
    """Drop void entries of the lowest classes. Returns the lowest class whose queue has a row, `num_classes` if none has."""
    while lowest < num_classes:
        while not is_empty(ends, lowest):
            place = first_place(ends, lowest)
            ahead = place + AHEAD if (place + AHEAD) >> shift == place >> shift else place
            prefetch_far(entries, 2 * np.int64(load(chunks, ahead)))
            if load(entries, 2 * np.int64(load(chunks, place)) + 1) == -2 - place:
                return lowest
            drop(chunks, ends, shift, lowest)
        lowest += 1
    return lowest


@helper
def _find_furthest(bits, mask, place):
    """The last place at or before `place` whose bit is set; one must be set."""
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
    """Second half of an access: misses compete with the worst row, one after another. Returns how many are inserted.

    Args:
        capacity: number of slots, at least one.
        num_classes: number of queues.
        start, end: place of the batch's first use; place after the window's last use.
        inserted, into: before, `missed` and `missed_classes` of the `num_missed` misses from `look_up`; receive int64[k], int32[k], see
            `penstock.cache.Change`.
        ids, entries, nodes, nexts, bits, classes, chunks, ends, shift, cursor: as in `announce` and `look_up`.
    """
    mask, used, lowest, furthest, count = nodes.size - 1, cursor[USED], cursor[LOWEST], end - 1, 0
    latest, is_queued, is_crowded = -1, False, False  # may a row of this batch be among the victims?
    if used == capacity:  # then no miss of class `lowest` or below without a use can enter: drop these
        num_wanted = 0
        for k in range(num_missed):
            miss, node_class = load(inserted, k), np.int64(load(into, k))
            store(inserted, num_wanted, miss)
            store(into, num_wanted, np.int32(node_class))
            num_wanted += 1 + ((miss & ~(lowest - node_class)) >> 63)
        num_missed = num_wanted
    for k in range(num_missed):
        prefetch_far(entries, 2 * load(ids, load(inserted, min(k + AHEAD, num_missed - 1)) & LOW))
        miss, node_class = load(inserted, k), np.int64(load(into, k))
        use, position = miss >> 32, miss & LOW
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
                settle(nexts, bits, cursor, start + ids.size, start + ids.size)
                furthest = _find_furthest(bits, mask, furthest)
                if use < 0 or use > furthest:
                    continue
                victim = np.int64(load(nodes, furthest & mask))
                clear_bit(bits, furthest & mask)
                is_crowded |= furthest <= latest
                slot = np.int64(load(entries, 2 * victim))
                victim_class = _class_of(classes, slot)
            store(entries, 2 * victim, np.int32(-1 - victim_class))
        node = load(ids, position)
        store(classes, min(slot, classes.size - 1), np.uint8(node_class))
        store(entries, 2 * node, np.int32(slot))
        if use >= 0:
            set_bit(bits, use & mask)
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
