"""Gather: ids -> rows, from wherever the rows are, into a given place."""

from penstock.gather.rows import RowTable

__all__ = ["RowTable"]
