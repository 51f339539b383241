"""Read pages of a file by pread, on several threads at once. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, store
from penstock.kernels._system import add_atomic, errno, pread
from penstock.kernels.read_pages.copy import copy_rows
from penstock.kernels.read_pages.rules import DONE, FAILED, RUNNING, judge

NEXT, NUM_DONE, STOP, COPYING, NUM_FAILED, VERDICT, READ, NUMBER = range(8)
"""Words of `shared`. Once STOP is not 0 and COPYING is 0, no thread copies to `out` any more."""

NUM_WORDS = 8


@kernel
def read_pages(
    shared, buffer, address, descriptor, starts, lengths, firsts, lasts, end, block_bytes, rows, places, row_bytes, data_offset, out
):
    """Take one read after another until none is left; see `reference.read_pages`.

    Args:
        shared: int64[NUM_WORDS], zeros; shared by all threads of a job.
        buffer, address: this thread's aligned uint8 vector, as long as the longest read; its address.
        descriptor: descriptor of the open file.
    """
    n = starts.size
    while add_atomic(shared, STOP, 0) == 0:
        k = add_atomic(shared, NEXT, 1)
        if k >= n:
            return
        start, length = load(starts, k), load(lengths, k)
        needed = min(length, end - start)
        verdict, got, tries, result = RUNNING, 0, 0, 0
        while verdict == RUNNING:
            result = pread(descriptor, address + got, length - got, start + got)
            if result < 0:
                result = -int(errno())
            verdict, got, tries = judge(result, got, tries, needed, block_bytes)
        if verdict != DONE:
            if add_atomic(shared, NUM_FAILED, 1) == 0:
                store(shared, READ, k)
                store(shared, NUMBER, -result if verdict == FAILED else got)
                add_atomic(shared, VERDICT, verdict)
            add_atomic(shared, STOP, 1)
            return
        add_atomic(shared, COPYING, 1)
        if add_atomic(shared, STOP, 0) == 0:
            copy_rows(buffer, 0, start, length, load(firsts, k), load(lasts, k), rows, places, row_bytes, data_offset, out, False)
            add_atomic(shared, NUM_DONE, 1)
        add_atomic(shared, COPYING, -1)
