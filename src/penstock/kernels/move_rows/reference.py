"""Move rows of one table to places in another: the definition."""

from __future__ import annotations


def move_rows(source, source_rows, target, target_rows):
    """Set target[target_rows] = source[source_rows].

    Args:
        source: any dtype [num_source, ...].
        source_rows: int64[n], in range.
        target: same dtype and row shape, [num_target, ...].
        target_rows: int64[n], in range, distinct. On a device, rows with a negative target are skipped: there the number of rows to move is
            not known at launch.
    """
    target[target_rows] = source[source_rows]
