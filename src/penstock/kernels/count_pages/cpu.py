"""How many pages of a file hold given rows, and in how many runs. Same result as `reference.py`, byte for byte.

A page's mark holds the number of the call, so marks need no clearing. A page is marked when it is found, and again when it was checked for
the begin of a run.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel
from penstock.kernels._memory import load, prefetch_read, store

AHEAD = 24


@kernel
def count_pages(ids, rows, row_bytes, data_offset, page_bytes, mark, marks, counts):
    """Write the numbers of pages and of runs to int64[2] `counts`; see `reference.count_pages`.

    Args:
        mark: odd; at least two above the marks of all earlier calls.
        marks: int32[num_pages], 0 at first; kept from call to call.
    """
    pages, runs = np.int64(0), np.int64(0)
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch_read(rows, np.int64(load(ids, i + AHEAD)))
        first = data_offset + np.int64(load(rows, np.int64(load(ids, i)))) * row_bytes
        for page in range(first // page_bytes, (first + row_bytes - 1) // page_bytes + 1):
            if load(marks, page) != mark:
                store(marks, page, np.int32(mark))
                pages += 1
    for i in range(ids.size):
        first = data_offset + np.int64(load(rows, np.int64(load(ids, i)))) * row_bytes
        for page in range(first // page_bytes, (first + row_bytes - 1) // page_bytes + 1):
            if load(marks, page) == mark:
                store(marks, page, np.int32(mark + 1))
                runs += page == 0 or load(marks, page - 1) < mark
    counts[0] = pages
    counts[1] = runs
