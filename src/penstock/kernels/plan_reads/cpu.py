"""Plan which pages of a file to read for given rows. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, store
from penstock.kernels.plan_reads.reference import PAGE_BYTES


@kernel
def plan_reads(rows, row_bytes, data_offset, block_bytes, gap_bytes, max_bytes, starts, lengths, firsts, lasts):
    """See `reference.plan_reads`; writes to four arrays int64[max_reads(...)]. Returns (number of reads, number of pages)."""
    k, start, end, num_pages, next_page = -1, 0, 0, 0, 0
    for i in range(rows.size):
        begin = data_offset + load(rows, i) * row_bytes
        past = (begin + row_bytes - 1) // PAGE_BYTES + 1
        num_pages += max(0, past - max(begin // PAGE_BYTES, next_page))
        next_page = past
        a = begin // block_bytes * block_bytes
        b = (begin + row_bytes + block_bytes - 1) // block_bytes * block_bytes
        if k >= 0:
            a = max(a, end)  # the read may hold its first blocks already
            if a < b and a - end <= gap_bytes and a < start + max_bytes:
                end = min(b, start + max_bytes)
                store(lengths, k, end - start)
                a = end
        while a < b:
            k += 1
            start, end = a, min(b, a + max_bytes)
            store(starts, k, start)
            store(lengths, k, end - start)
            store(firsts, k, i)
            a = end
        j = k
        while j >= 0 and load(starts, j) + load(lengths, j) > begin:  # several, if a read ends within the row
            store(lasts, j, i + 1)
            j -= 1
    return k + 1, num_pages


def max_reads(num_rows: int, row_bytes: int, block_bytes: int, max_bytes: int) -> int:
    """Most reads that `num_rows` rows can need."""
    return num_rows * -(-(row_bytes + 2 * block_bytes) // max_bytes)
