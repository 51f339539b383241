"""Move rows of one table to places in another, as bytes. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

from penstock.kernels._compile import kernel
from penstock.kernels._memory import copy_bytes, load, prefetch_bytes

AHEAD = 8
"""How many rows ahead a row is prefetched."""


@kernel
def move_rows(source, source_rows, target, target_rows, row_bytes):
    """Copy rows `source_rows` of `source` to rows `target_rows` of `target`.

    Args:
        source, target: uint8 vectors of whole rows.
        source_rows, target_rows: int64[n] or int32[n], in range; target_rows distinct.
        row_bytes: bytes of a row.
    """
    for i in range(source_rows.size):
        if i + AHEAD < source_rows.size:
            prefetch_bytes(source, load(source_rows, i + AHEAD) * row_bytes, row_bytes)
        copy_bytes(target, load(target_rows, i) * row_bytes, source, load(source_rows, i) * row_bytes, row_bytes)
