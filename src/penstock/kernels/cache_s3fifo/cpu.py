"""S3-FIFO: two rings of rows; the ghost queue lives in the directory. Same hits and content as `reference.py`.

A node that is not resident has -1 in the directory, or -2 - t if it was the t-th to leave the small queue for the ghost queue. How many
have left since then says whether it is still in the ghost queue. Before t gets too large for int32, `renew_marks` renumbers from zero.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_far, store
from penstock.kernels.cache_lookup.cpu import AHEAD, LOW, around, keep_resident, place_ahead
from penstock.kernels.cache_s3fifo.reference import MOST

SMALL_BEGIN, SMALL_LENGTH, MAIN_BEGIN, MAIN_LENGTH, USED, LEFT = range(6)
"""Indices in `cursor`."""


@kernel
def renew_marks(slots, shift):
    """Renumber the rows that left: number `shift` becomes 0, earlier ones are forgotten."""
    for node in range(slots.size):
        mark = np.int64(slots[node])
        if mark <= -2:
            slots[node] = np.int32(mark + shift if -2 - mark >= shift else -1)


@kernel
def access(ids, slots, hits, small, main, small_size, cursor, hit_slots, inserted, into):
    """Request a batch. Returns how many ids are inserted.

    Args:
        slots: int32[num_nodes], the directory, see above.
        hits: uint8[capacity], how often each row was hit, at most `MOST`. capacity > 0.
        small, main: int64[capacity] each, rings of entries node << 32 | slot.
        small_size: number of rows of the small queue.
        cursor: int64[6]: begin and length of the small queue; begin and length of the main queue; number of slots in use; how many rows
            have left the small queue for the ghost queue. The last plus n must be below 2**31 - 2.
        ids, hit_slots, inserted, into: as in `cache_fifo`.
    """
    capacity, count, fresh, taken = hits.size, 0, 0, 0
    small_begin, small_length, main_begin, main_length = cursor[SMALL_BEGIN], cursor[SMALL_LENGTH], cursor[MAIN_BEGIN], cursor[MAIN_LENGTH]
    used, num_left, ghost_size, main_before, crowded = cursor[USED], cursor[LEFT], capacity - small_size, cursor[MAIN_LENGTH], False
    for i in range(ids.size):
        if i + 2 * AHEAD < ids.size:
            prefetch_far(slots, load(ids, i + 2 * AHEAD))
        if i + AHEAD < ids.size:
            prefetch_far(hits, max(np.int64(load(slots, load(ids, i + AHEAD))), 0))
        node = load(ids, i)
        slot = np.int64(load(slots, node))
        if slot >= 0:
            store(hit_slots, i, np.int32(slot))
            store(hits, slot, np.uint8(min(np.int64(load(hits, slot)) + 1, MOST)))
            continue
        store(hit_slots, i, np.int32(-1))
        mark = slot
        if used < capacity:
            slot = used
            used += 1
        else:
            slot = np.int64(-1)
            while slot < 0:
                if small_length >= small_size:
                    near = place_ahead(small_begin, capacity)
                    prefetch_far(hits, load(small, place_ahead(near, capacity)) & LOW)
                    ahead = load(small, near)
                    prefetch_far(slots, ahead >> 32 if load(hits, ahead & LOW) <= 1 else 0)
                    entry = load(small, small_begin)
                    small_begin = around(small_begin + 1, capacity)
                    small_length -= 1
                    if small_length < fresh:
                        fresh, crowded = small_length, True
                    if load(hits, entry & LOW) <= 1:
                        slot = entry & LOW
                        store(slots, entry >> 32, np.int32(-2 - num_left))
                        num_left += 1
                        continue
                    store(hits, entry & LOW, np.uint8(0))
                else:
                    near = place_ahead(main_begin, capacity)
                    prefetch_far(hits, load(main, place_ahead(near, capacity)) & LOW)
                    ahead = load(main, near)
                    prefetch_far(slots, ahead >> 32 if load(hits, ahead & LOW) == 0 else 0)
                    entry = load(main, main_begin)
                    main_begin = around(main_begin + 1, capacity)
                    main_length -= 1
                    taken += 1
                    if load(hits, entry & LOW) == 0:
                        slot = entry & LOW
                        store(slots, entry >> 32, np.int32(-1))
                        continue
                    store(hits, entry & LOW, np.uint8(load(hits, entry & LOW) - 1))
                store(main, around(main_begin + main_length, capacity), entry)
                main_length += 1
        if mark <= -2 and num_left + 2 + mark <= ghost_size:
            store(main, around(main_begin + main_length, capacity), node << 32 | slot)
            main_length += 1
        else:
            store(small, around(small_begin + small_length, capacity), node << 32 | slot)
            small_length += 1
            fresh += 1
        store(hits, slot, np.uint8(0))
        store(slots, node, np.int32(slot))
        store(inserted, count, np.int64(i))
        store(into, count, np.int32(slot))
        count += 1
    cursor[SMALL_BEGIN], cursor[SMALL_LENGTH], cursor[MAIN_BEGIN], cursor[MAIN_LENGTH] = small_begin, small_length, main_begin, main_length
    cursor[USED], cursor[LEFT] = used, num_left
    return keep_resident(ids, slots, count, inserted, into) if crowded or taken >= main_before else count
