"""Search in ascending values, for kernels."""

from __future__ import annotations

from penstock.kernels._compile import helper
from penstock.kernels._memory import load


@helper
def first_at_least(values, first, end, value):
    """The first index in ascending values[first:end] whose value is at least `value`, else `end`."""
    while first < end:
        middle = (first + end) >> 1
        if load(values, middle) < value:
            first = middle + 1
        else:
            end = middle
    return first
