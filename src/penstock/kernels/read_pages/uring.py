"""Read pages of a file by io_uring, a ring driven by system calls. Same result as `reference.py`, byte for byte.

A ring serves one job at a time, and one thread at a time drives a job. Every slot of the buffer has at most one request in flight, and
there are no more requests in flight than entries in the submission queue, so neither queue can overflow. There are more slots than
requests: the next requests are submitted before the rows of completed ones are copied, so that the device does not wait for the copies.
Source: Axboe, "Efficient IO with io_uring", 2019; layout as in linux/io_uring.h.
"""

from __future__ import annotations

from errno import EAGAIN, EBUSY, EINTR, ETIME

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, store
from penstock.kernels._system import errno, fence, load_acquire, store_release, syscall
from penstock.kernels.read_pages.copy import copy_rows
from penstock.kernels.read_pages.rules import DONE, FAILED, RUNNING, judge

RING, SQ_HEAD, SQ_TAIL, SQ_MASK, CQ_HEAD, CQ_TAIL, CQ_MASK, CQES, WAIT_ARGUMENT, OPCODE, STREAMS = range(11)
"""Words of `layout`: descriptor of the ring; indices of heads and tails in `ring32`, and the masks; index in `ring64` where completions
begin; address of the wait argument; opcode of a read; whether rows are copied past the processor's caches."""

NEXT, NUM_DONE, NUM_FREE, NUM_OUT, READ, NUMBER = range(6)
"""Words of `state`."""

NUM_STATE, NUM_SLOT_ROWS = 6, 5
FREE, OVER, SLOT_READ, SLOT_GOT, SLOT_TRIES = range(NUM_SLOT_ROWS)
"""Rows of `slots`. FREE is a stack of free slots; OVER lists the slots whose rows must be copied."""

_ENTER = 426
_GETEVENTS, _EXT_ARG, _ARG_BYTES = 1, 8, 24
_MANY = 1 << 14
"""Completions after which a call returns, so that Python can handle signals."""


@helper
def _push(layout, ring32, sqes, slot, descriptor, address, start, length):
    """Put a request into the submission queue."""
    tail = ring32[layout[SQ_TAIL]]
    at = np.int64(tail & np.uint32(layout[SQ_MASK])) * 8
    store(sqes, at, np.uint64(layout[OPCODE]) | (np.uint64(descriptor) << np.uint64(32)))
    store(sqes, at + 1, np.uint64(start))
    store(sqes, at + 2, np.uint64(address))
    store(sqes, at + 3, np.uint64(length))
    store(sqes, at + 4, np.uint64(slot))
    store(sqes, at + 5, np.uint64(0))
    store_release(ring32, layout[SQ_TAIL], np.uint32(tail + np.uint32(1)))


@helper
def _fill(layout, ring32, sqes, state, slots, depth, address, slot_bytes, descriptor, starts, lengths):
    """Queue the next reads, as many as `depth` and the free slots allow."""
    while state[NUM_FREE] > 0 and state[NUM_OUT] < depth and state[NEXT] < starts.size:
        state[NUM_FREE] -= 1
        state[NUM_OUT] += 1
        slot, k = slots[FREE, state[NUM_FREE]], state[NEXT]
        slots[SLOT_READ, slot], slots[SLOT_GOT, slot], slots[SLOT_TRIES, slot] = k, 0, 0
        _push(layout, ring32, sqes, slot, descriptor, address + slot * slot_bytes, load(starts, k), load(lengths, k))
        state[NEXT] += 1


@helper
def _enter(layout, ring32, num_wanted):
    """Submit the queued requests and wait for completions, at most as long as the wait argument says. Returns 0 or -errno."""
    num_queued = np.int64(np.uint32(ring32[layout[SQ_TAIL]] - load_acquire(ring32, layout[SQ_HEAD])))
    if num_queued == 0 and num_wanted <= np.int64(np.uint32(load_acquire(ring32, layout[CQ_TAIL]) - ring32[layout[CQ_HEAD]])):
        return 0  # nothing to submit, and enough completions have come
    flags = _GETEVENTS | _EXT_ARG if num_wanted else 0
    argument, length = (layout[WAIT_ARGUMENT], _ARG_BYTES) if num_wanted else (0, 0)
    result = syscall(_ENTER, layout[RING], num_queued, num_wanted, flags, argument, length)
    return -np.int64(errno()) if result < 0 else 0


@kernel
def begin(layout, ring32, sqes, state, slots, depth, address, slot_bytes, descriptor, starts, lengths):
    """Submit the first reads of a job; `state` is fresh, all slots are free. Requests that the kernel does not take are submitted later."""
    _fill(layout, ring32, sqes, state, slots, depth, address, slot_bytes, descriptor, starts, lengths)
    _enter(layout, ring32, 0)


@kernel
def read_pages(
    layout, ring32, ring64, sqes, state, slots, buffer, depth, address, slot_bytes, num_wanted,
    descriptor, starts, lengths, firsts, lasts, end, block_bytes, rows, places, row_bytes, data_offset, out,
):  # fmt: skip
    """Continue a job until it is done or nothing has come for a while; see `reference.read_pages`.

    Args:
        layout, ring32, ring64, sqes: the ring.
        state, slots: the job's state.
        buffer, address, slot_bytes: the buffer for pages, its address, bytes of a slot.
        depth: most requests in flight at once.
        num_wanted: number of completions to wait for at a time.
        descriptor: descriptor of the open file.
    Returns:
        A verdict. With FAILED or ENDED, state[READ] is the read (-1: the ring itself failed), and state[NUMBER] the errno or the number of
        bytes it got.
    """
    n, num_seen = starts.size, 0
    while state[NUM_DONE] < n:
        _fill(layout, ring32, sqes, state, slots, depth, address, slot_bytes, descriptor, starts, lengths)
        failure = _enter(layout, ring32, min(state[NUM_OUT], num_wanted))
        if failure < 0 and -failure != EINTR and -failure != ETIME and -failure != EAGAIN and -failure != EBUSY:
            state[READ], state[NUMBER] = -1, -failure
            return FAILED
        head, tail, num_over = ring32[layout[CQ_HEAD]], load_acquire(ring32, layout[CQ_TAIL]), 0
        if head == tail:
            return RUNNING
        while head != tail:
            at = layout[CQES] + 2 * np.int64(head & np.uint32(layout[CQ_MASK]))
            slot, result = np.int64(ring64[at]), np.int64(np.int32(ring64[at + 1] & np.uint64(0xFFFFFFFF)))
            head = np.uint32(head + np.uint32(1))
            k = slots[SLOT_READ, slot]
            start, length = load(starts, k), load(lengths, k)
            verdict, got, tries = judge(result, slots[SLOT_GOT, slot], slots[SLOT_TRIES, slot], min(length, end - start), block_bytes)
            if verdict == DONE:
                slots[OVER, num_over] = slot
                num_over += 1
            elif verdict == RUNNING:
                slots[SLOT_GOT, slot], slots[SLOT_TRIES, slot] = got, tries
                _push(layout, ring32, sqes, slot, descriptor, address + slot * slot_bytes + got, start + got, length - got)
            else:
                state[READ], state[NUMBER] = k, -result if verdict == FAILED else got
                return verdict
        store_release(ring32, layout[CQ_HEAD], head)
        state[NUM_OUT] -= num_over
        _fill(layout, ring32, sqes, state, slots, depth, address, slot_bytes, descriptor, starts, lengths)
        _enter(layout, ring32, 0)
        for i in range(num_over):
            slot = slots[OVER, i]
            k = slots[SLOT_READ, slot]
            at, first, last = slot * slot_bytes, load(firsts, k), load(lasts, k)
            copy_rows(
                buffer, at, load(starts, k), load(lengths, k), first, last, rows, places, row_bytes, data_offset, out, layout[STREAMS]
            )
            slots[FREE, state[NUM_FREE]] = slot
            state[NUM_FREE] += 1
            state[NUM_DONE] += 1
        if layout[STREAMS]:
            fence()
        num_seen += num_over
        if state[NUM_DONE] < n and (failure == -EINTR or num_seen > _MANY):
            return RUNNING
    return DONE
