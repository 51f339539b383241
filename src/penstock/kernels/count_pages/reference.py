"""How many pages of a file hold given rows, and in how many runs: the definition."""

from __future__ import annotations

import numpy as np


def count_pages(ids, rows, row_bytes, data_offset, page_bytes):
    """Count the pages that hold the rows of some ids.

    Args:
        ids: int32 or int64[n].
        rows: int32 or int64[num_rows]: the row of each id in the file.
        row_bytes: at least 1; rows may straddle pages, or be larger than one.
        data_offset: where row 0 begins in the file.
        page_bytes: bytes of a page; page 0 begins with the file.
    Returns:
        int64[2]: number of distinct pages, and of runs of consecutive pages among them.
    """
    pages = set()
    for row in map(int, rows[ids]):
        first = data_offset + row * row_bytes
        pages.update(range(first // page_bytes, (first + row_bytes - 1) // page_bytes + 1))
    return np.array([len(pages), sum(page - 1 not in pages for page in pages)], dtype=np.int64)
