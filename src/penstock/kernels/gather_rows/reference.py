"""Gather the rows of a table by id: the definition."""

from __future__ import annotations


def gather_rows(table, ids):
    """Return table[ids].

    Args:
        table: any dtype [num_rows, ...].
        ids: int64[n], in range.
    """
    return table[ids]
